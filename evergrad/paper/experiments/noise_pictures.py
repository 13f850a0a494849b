"""Pictures of the noise figures: 1 − cosine on a log axis, since what matters lies near 1; both sizes together."""

from typing import Any

import numpy as np

from evergrad._training.plots import line_style, marker, subplots
from evergrad.paper.experiment import Picture
from evergrad.paper.experiments.panels import PANEL, UNTRAINED

TOGETHER = {"figA6": "figA3", "figA7": "fig3"}  # the smaller network that a large one is shown beside
_FLOOR = 1e-5  # below this 1 − cosine is rounding, of the curves as they are kept


def pictures(found: dict[str, Any]) -> list[Picture]:
    made = [_one("figA2", "Figure A.2: untrained, PTB", found["figA2"], "networks"), _sizes(found["figA5"])]
    for key in ("fig3", "figA3", "figA4"):
        if key in found:
            made.append(_one(key, f"{PANEL[key].figure}: {PANEL[key].title}", found[key], "repetitions"))
    made += [_both(key, small, found) for key, small in TOGETHER.items() if key in found and small in found]
    return made


def _draw(axes, estimators, *, labels=None, thin=False):
    for i, (label, row) in enumerate(estimators.items()):
        step, cosine = (np.array(row["curve"][name]) for name in ("step", "cosine"))
        spread = np.array(row["curve"]["spread"])
        away = np.maximum(1 - cosine, _FLOOR)
        style = line_style(i) | ({"linewidth": 0.8} if thin else {"linewidth": 1.6})
        axes.plot(step, away, label=f"{label}{labels or ''}", **style)
        if not thin:
            low, high = np.maximum(away - spread, away / 3), np.minimum(away + spread, 2)
            axes.fill_between(step, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR / 2, 2)
    axes.set_xlabel("steps with frozen weights")
    axes.set_ylabel("1 − cosine of estimate and exact gradient")


def _one(key, title, found, over):
    figure, axes = subplots(figsize=(8, 5.2))
    _draw(axes, found["estimators"])
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return Picture(key, figure, f"{title} ({found['subject']}). {_how(found, over)}")


def _how(found, over):
    return (
        f"Lower is better: 1 − cosine, mean and one standard deviation over {found[over]} {over}, averaged over short stretches "
        f"of {found['steps']:,} steps; what is below {_FLOOR:g} is rounding and drawn there."
    )


def _both(key, small, found):
    """The large network with thick lines, the small one with thin ones of the same colours."""
    figure, axes = subplots(figsize=(8, 5.6))
    _draw(axes, found[key]["estimators"], labels=", 512 units")
    _draw(axes, found[small]["estimators"], labels=", smaller network", thin=True)
    axes.set_xlim(0, found[key]["steps"])
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    subjects = f"{found[key]['subject']}; thin: {found[small]['subject']}"
    return Picture(
        key, figure, f"{PANEL[key].figure}: {PANEL[key].title} ({subjects}). {_how(found[key], 'repetitions')}"
    )


def _sizes(found):
    figure, axes = subplots(figsize=(8, 4.8))
    sizes = [int(n) for n in found]
    for i, label in enumerate(UNTRAINED):
        away, error = zip(*(_mean_and_error(found[str(n)][label]) for n in sizes), strict=True)
        beside = [n * 2 ** (0.08 * (i - (len(UNTRAINED) - 1) / 2)) for n in sizes]  # so that no bar hides another
        axes.errorbar(beside, away, error, label=label, marker=marker(i), capsize=3, **line_style(i))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_xlabel("units")
    axes.set_ylabel("1 − cosine after 100 steps")
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    counts = sorted({len(row.get("cosines", ())) for each in found.values() for row in each.values()} - {0})
    networks = (
        f"{' and '.join(map(str, counts))} networks of each size (OK, KF)" if counts else "10 networks of each size"
    )
    text = f"Figure A.5: untrained networks of different size, PTB, 100 steps. Mean and its standard error over {networks}."
    return Picture("figA5", figure, text)


def _mean_and_error(row):
    """Older results have the mean and the spread over ten networks."""
    if "cosines" not in row:
        return 1 - row["cosine"], row["spread"] / np.sqrt(10)
    cosines = np.array(row["cosines"])
    return 1 - cosines.mean(), cosines.std(ddof=1) / np.sqrt(len(cosines))
