"""Two pictures: error against lag at equal samples, and lag learned against the time of a step."""

from typing import Any

from evergrad._style import THEIRS, line_style, marker, subplots
from evergrad.arena.results import WITHIN, Line, front, panels
from evergrad.paper.experiment import Picture

_MOST = 1.2  # of the error axis: who diverged is drawn there


def pictures(lines: list[Line]) -> list[Picture]:
    return [_by_lag(lines), _by_time(lines)]


def _by_lag(lines: list[Line]) -> Picture:
    groups = panels(lines)
    figure, axes = _grid(len(groups))
    for place, ((task, cell, units), group) in zip(axes, groups.items(), strict=True):
        for line, style in _styled(group):
            lags = [row.lag for row in line.rows]
            place.plot(lags, [_shown(row.error) for row in line.rows], label=line.estimator, **style)
            for row in line.rows:
                place.plot([row.lag] * len(row.errors), list(map(_shown, row.errors)), ls="", ms=2, **_dot(style))
        place.axhline(WITHIN, color="grey", lw=0.8, ls="--")
        place.axhline(1, color="grey", lw=0.8)
        place.axhline(0, color="grey", lw=0.8)
        place.set(xscale="log", ylim=(-0.05, _MOST + 0.05), xlabel="lag (steps)", ylabel="error")
        place.set_title(f"{task}, {cell} {units}", fontsize=10)
        lags = sorted({row.lag for line in group for row in line.rows})
        place.set_xticks(lags, list(map(str, lags)))
        place.minorticks_off()
        place.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    caption = (
        "Error against lag, everyone with the same samples: 0 is the known optimum, 1 is knowing nothing, the "
        f"dashed line is within {100 * WITHIN:.0f} %. A line is the median of the seeds, dots are seeds; who diverged is at {_MOST:g}. Grey: rolling TBPTT."
    )
    return Picture("error-by-lag", figure, caption)


def _by_time(lines: list[Line]) -> Picture:
    by_task: dict[str, list[Line]] = {}
    for line in lines:
        by_task.setdefault(line.task, []).append(line)
    figure, axes = _grid(len(by_task))
    for place, (task, group) in zip(axes, by_task.items(), strict=True):
        _scatter(place, [line for line in group if line.milliseconds is not None])
        best = front(group)
        place.step(
            [line.milliseconds for line in best], [line.reached for line in best], where="post", color=THEIRS, lw=1
        )
        lags = sorted({row.lag for line in group for row in line.rows})
        place.set_yscale("symlog", linthresh=lags[0])
        place.set_yticks([0, *lags], ["none", *map(str, lags)])
        place.set(xscale="log", xlabel="milliseconds a step", ylabel="longest lag learned")
        place.set_title(task, fontsize=10)
        place.margins(x=0.15)
        _plain_numbers(place.xaxis)
        place.minorticks_off()
    caption = (
        "The longest lag that more than half of the seeds have learned, as all shorter ones, against the time of a step, all streams "
        "together. The line is the Pareto front. Squares: rolling TBPTT, with its horizon; full marks: untruncated gradients."
    )
    return Picture("lag-by-time", figure, caption)


def _scatter(place: Any, group: list[Line]) -> None:
    cells = list(dict.fromkeys((line.cell, line.units) for line in group))
    for at, line in enumerate(sorted(group, key=lambda line: (line.reached or 0, line.milliseconds))):
        colour = line_style(cells.index((line.cell, line.units)))["color"]
        filled = colour if line.untruncated else "none"
        where = line.milliseconds, line.reached or 0
        place.plot(*where, marker="s" if line.rolling else "o", ls="", ms=6, mec=colour, mfc=filled)
        if line.reached is None and not line.rolling:  # too many, one on another
            continue
        words = str(line.horizon) if line.rolling else line.estimator.partition("(")[0]
        place.annotate(
            words, where, xytext=(4, -9 if at % 2 else 3), textcoords="offset points", fontsize=6, color=colour
        )
    for at, (cell, units) in enumerate(cells):
        place.plot([], [], marker="o", ls="", color=line_style(at)["color"], label=f"{cell} {units}")
    # outside, since its marks look like what they stand for
    place.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _plain_numbers(axis: Any) -> None:
    """0.5 rather than 5 × 10⁻¹."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _grid(count: int) -> tuple[Any, list[Any]]:
    """Panels one below the other, so that a page as wide as a phone can show them."""
    figure, axes = subplots(count, 1, figsize=(8, 3.4 * count), squeeze=False)
    return figure, list(axes.flat)


def _styled(group: list[Line]) -> list[tuple[Line, dict[str, Any]]]:
    """Rolling TBPTT in greys, the darker the longer its horizon; all others in colours."""
    rolling = sorted((line for line in group if line.rolling), key=lambda line: line.horizon)
    others = [line for line in group if not line.rolling]
    found = []
    for at, line in enumerate(rolling):
        shade = str(0.85 - 0.75 * at / max(1, len(rolling) - 1))
        found.append((line, {"color": shade, "marker": "s", "ms": 3, "lw": 1}))
    for at, line in enumerate(others):
        found.append((line, line_style(at) | {"marker": marker(at), "ms": 5, "lw": 2 if line.untruncated else 1.2}))
    return found


def _dot(style):
    return {"color": style["color"], "marker": style["marker"], "alpha": 0.6}


def _shown(error: float) -> float:
    return min(_MOST, error)
