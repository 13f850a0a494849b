"""Pictures of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from evergrad._core.files import written_whole
from evergrad._style import finished, line_style as line_style, marker as marker, subplots as subplots
from evergrad._training.folder import Folder
from evergrad._training.reports import rows

_AXES = {
    "copy": ("bits per symbol", "length", "length T learned (symbols)"),
    "cue": ("bits per question", "wrong", "share of wrong answers"),
    "text": ("bits per character", "valid_bpc", "validation (bits per character)"),
    "series": ("squared error (standardised)", "relative_error", "error / error of persistence"),
}
_KNOWN = ("of a scored step", "excess", "excess (0: the optimum, 1: knowing nothing)")
_MARK = {"Software": "evergrad"}


def save(figure: Any, path: Path) -> None:
    """As PNG, whole or not at all, with our mark in it."""
    with written_whole(path) as beside:
        finished(figure).savefig(beside, dpi=120, format="png", metadata=_MARK)
    plt.close(figure)


def plot_run(folder: Folder) -> None:
    """The loss and the task's figure over the steps, as plot.png in the run's folder."""
    _plot([(str(folder.path.name), folder.settings.task, rows(folder.metrics))], folder.plot)


def plot_comparison(runs: Sequence[tuple[str, Folder]], path: Path) -> None:
    """Several runs of one task in one picture."""
    _plot([(name, folder.settings.task, rows(folder.metrics)) for name, folder in runs], path)


def _plot(runs: Sequence[tuple[str, str, list[dict[str, Any]]]], path: Path) -> None:
    loss_unit, figure, figure_unit = _AXES.get(runs[0][1], _KNOWN)
    pictures, (top, bottom) = subplots(2, 1, figsize=(8, 6.5), sharex=True)
    for axes, name in ((top, "loss"), (bottom, figure)):
        for i, (label, _, found) in enumerate(runs):
            points = [(row["step"], row[name]) for row in found if row.get(name) is not None]
            dot = "o" if len(points) < 30 else None
            style = {"label": label, "marker": dot, "markersize": 3} | line_style(i)
            axes.plot(*zip(*points, strict=True), **style) if points else None
    if figure == "relative_error":
        bottom.axhline(1, color="grey", linewidth=1, label="persistence")
    top.set_ylabel(f"loss ({loss_unit})" if "(" not in loss_unit else f"loss, {loss_unit}")
    if figure == "length":
        bottom.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    bottom.set_ylabel(figure_unit)
    bottom.set_xlabel("steps")
    pictures.align_ylabels()
    handles, labels = bottom.get_legend_handles_labels()
    pictures.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)))
    save(pictures, path)
