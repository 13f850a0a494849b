"""Learning curves with the released ones behind them."""

from typing import Any

import numpy as np

from evergrad.paper.results import Curve, Result
from evergrad.plots import line_style, marker, plt


def learning_curves(result: Result, *, x: str, y: str, released: list[Curve], released_label: str) -> Any:
    """Mean over the seeds and the band from the lowest to the highest; the authors' runs, thin and grey, behind."""
    figure, axes = plt.subplots(figsize=(8, 5.4), layout="constrained")
    end = max((run["steps"] for line in result.lines() for run in line["runs"]), default=1)
    for i, (steps, values) in enumerate(released):
        kept = steps <= 1.05 * end
        if kept.any():
            name = None if i else released_label
            axes.plot(steps[kept], values[kept], color="0.6", linewidth=0.9, zorder=1, label=name)
    for i, line in enumerate(result.lines()):
        draw_line(axes, i, label(line), result.curves(line))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g} k" if value else "0")
    if all(line["task"] == "copy" for line in result.lines()):  # lengths
        axes.yaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def label(line: dict[str, Any]) -> str:
    count = len(line["runs"])
    return f"{line['label']} ({count} seed{'s' if count > 1 else ''})"


def draw_line(axes: Any, i: int, name: str, curves: list[Curve]) -> None:
    curves = [curve for curve in curves if len(curve[0])]
    if not curves:
        return
    steps = max((curve[0] for curve in curves), key=len)
    values = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in curves])
    known = np.isfinite(values).any(axis=0)
    steps, values = steps[known], values[:, known]
    style = line_style(i)
    every = max(1, len(steps) // 8)
    marks = {"marker": marker(i), "markersize": 5, "markevery": (every // 2, every)}
    axes.plot(steps, np.nanmean(values, axis=0), label=name, linewidth=1.8, zorder=3, **marks, **style)
    if len(curves) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
