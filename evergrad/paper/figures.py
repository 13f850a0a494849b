"""Learning curves with the released ones behind them."""

from typing import Any

import numpy as np

from evergrad._training.plots import line_style, marker, plt
from evergrad.paper.rates import estimator_of, is_best
from evergrad.paper.results import Curve, Result

BAND = "mean, and range over seeds where there are several (the paper's bands are standard deviations)"


def learning_curves(
    result: Result, *, x: str, y: str, released: list[Curve], released_label: str, log: bool = False
) -> Any:
    """Mean over the seeds and the band from the lowest to the highest; the authors' runs, thin and grey, behind.

    The line of a best rate has its estimator's colour, thin and with hollow marks. With `log`, steps are logarithmic.
    """
    figure, axes = plt.subplots(figsize=(8, 5.4), layout="constrained")
    lengths = all(line["task"] == "copy" for line in result.lines())
    drawn = "steps-post" if lengths else "default"  # a length holds until the next report
    end = max((run["steps"] for line in result.lines() for run in line["runs"]), default=1)
    for i, (steps, values) in enumerate(released):
        kept = steps <= 1.05 * end
        if kept.any():
            name = None if i else released_label
            axes.plot(steps[kept], values[kept], color="0.6", linewidth=0.9, zorder=1, label=name, drawstyle=drawn)
    own = [each for each in result.labels() if not is_best(each)]
    for i, line in enumerate(result.lines()):
        style = line_style(own.index(estimator_of(line["label"])) if estimator_of(line["label"]) in own else i)
        thin = {"linestyle": "-", "linewidth": 1.0, "markerfacecolor": "white"}
        style |= thin if is_best(line["label"]) else {"linewidth": 1.8}
        draw_line(axes, label(line), result.curves(line), style | {"marker": marker(i), "drawstyle": drawn})
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    if log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g} k" if value else "0")
    if lengths:
        axes.yaxis.get_major_locator().set_params(integer=True)  # pyright: ignore[reportCallIssue]
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def label(line: dict[str, Any]) -> str:
    count = len(line["runs"])
    return f"{line['label']} ({count} seed{'s' if count > 1 else ''})"


def draw_line(axes: Any, name: str, curves: list[Curve], style: dict[str, Any]) -> None:
    curves = [curve for curve in curves if len(curve[0])]
    if not curves:
        return
    steps = max((curve[0] for curve in curves), key=len)
    values = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in curves])
    known = np.isfinite(values).any(axis=0)
    steps, values = steps[known], values[:, known]
    every = max(1, len(steps) // 8)
    marks = {"markersize": 5, "markevery": (every // 2, every)}
    axes.plot(steps, np.nanmean(values, axis=0), label=name, zorder=3, **marks, **style)
    if len(curves) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        step = "post" if style["drawstyle"] == "steps-post" else None
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0, zorder=2, step=step)
