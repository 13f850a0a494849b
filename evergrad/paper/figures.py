"""Learning curves with the released ones behind them, as points at their own sampling."""

import dataclasses
from typing import Any

import numpy as np

from evergrad._training.plots import line_style, marker, subplots
from evergrad.paper.curves import Curve
from evergrad.paper.rates import rate_in_words
from evergrad.paper.results import Trace

AXES = {"copy": "string length T learned (symbols)", "text": "validation (bits per character)"}


@dataclasses.dataclass(frozen=True)
class Look:
    """`early`: an inset of so many first steps. `top`: the highest value shown, where one line would take the scale."""

    x: str
    log: bool = False
    early: int | None = None
    top: float | None = None


def learning_curves(traces: list[Trace], look: Look, *, theirs: Trace | None = None) -> Any:
    """Mean over the seeds and the band from the lowest to the highest; a label has one colour at all its rates."""
    figure, axes = subplots(figsize=(8, 5.8))
    _draw(axes, traces, theirs, look)
    axes.set_xlabel(look.x)
    axes.set_ylabel(AXES[traces[0].task] if traces else "")
    if look.early is not None and max((trace.reached for trace in traces), default=0) > 4 * look.early:
        inset = axes.inset_axes((0.62, 0.07, 0.36, 0.38))
        _draw(inset, traces, theirs, dataclasses.replace(look, early=None), end=look.early)
        inset.tick_params(labelsize=7)
        inset.set_title(f"the first {look.early:,} steps", fontsize=8)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _draw(axes, traces, theirs, look, end=None):
    last = end or max((trace.reached for trace in traces), default=1)
    if theirs is not None:
        for i, curve in enumerate(theirs.curves):
            kept = curve.steps <= 1.05 * last
            name = f"{theirs.label} ({len(theirs.runs)} runs)" if not i else None
            axes.plot(curve.steps[kept], curve.values[kept], ".", color="0.6", markersize=3, zorder=1, label=name)
    labels = list(dict.fromkeys(trace.label for trace in traces))
    seen: set[str] = set()
    for i, trace in enumerate(traces):
        style = line_style(labels.index(trace.label)) | {"marker": marker(i)}
        again = {"linestyle": "-", "linewidth": 0.9, "markerfacecolor": "white"}
        style |= again if trace.label in seen else {"linewidth": 1.6}
        seen.add(trace.label)
        _draw_line(axes, trace, style, last)
    _scales(axes, look, last, lengths=bool(traces) and traces[0].task == "copy")


def _scales(axes, look, last, *, lengths):
    if look.log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.02 * last)
    if look.top is not None:
        axes.set_ylim(top=look.top)
    axes.xaxis.set_major_formatter(lambda value, _: thousands(value))
    if lengths:
        axes.set_ylim(bottom=0)
        axes.yaxis.get_major_locator().set_params(integer=True)


def thousands(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value else "0"


def in_math(text: str) -> str:
    """10^-2.5 with its exponent raised, as Matplotlib writes it."""
    base, _, exponent = text.partition("^")
    return f"{base.removesuffix('10')}$10^{{{exponent}}}$" if exponent else text


def legend(trace: Trace) -> str:
    count = len(trace.runs)
    rate = "" if trace.rate is None else f", {in_math(rate_in_words(trace.rate))}"
    return f"{trace.label}{rate} ({count} seed{'s' if count > 1 else ''})"


def _draw_line(axes: Any, trace: Trace, style: dict[str, Any], last: int) -> None:
    steps, values = _together([curve for curve in trace.curves if len(curve.steps)], last)
    if not len(steps):
        return
    drawn = "steps-post" if trace.task == "copy" else "default"  # a length holds until the next report
    every = max(1, len(steps) // 8)
    marks = {"markersize": 5, "markevery": (every // 2, every), "drawstyle": drawn}
    axes.plot(steps, np.nanmean(values, axis=0), label=legend(trace), zorder=3, **marks, **style)
    if len(values) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        step = "post" if trace.task == "copy" else None
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0, zorder=2, step=step)


def _together(curves: list[Curve], last: int) -> tuple[np.ndarray, np.ndarray]:
    """All seeds at the steps of the longest run."""
    if not curves:
        return np.array([]), np.array([])
    steps = max((curve.steps for curve in curves), key=lambda steps: steps[-1])
    values = np.array([np.interp(steps, c.steps, c.values, left=np.nan, right=np.nan) for c in curves])
    kept = np.isfinite(values).any(axis=0) & (steps <= last)
    return steps[kept], values[:, kept]


def caption(what: str, traces: list[Trace]) -> str:
    """With networks, seeds and steps."""
    each = "; ".join(f"{t.name}: {len(t.runs)} seed{'s' * (len(t.runs) > 1)} to {t.reached:,} steps" for t in traces)
    band = "Mean, and the range over seeds where there are several (the paper's bands are standard deviations)."
    return f"{what} {band} {each}."
