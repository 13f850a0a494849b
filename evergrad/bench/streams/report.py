"""The comparison as a table and as a picture."""

from pathlib import Path
from typing import Any

from rich.table import Table

from evergrad.bench.streams.bench import DEEP_RIVER
from evergrad.bench.streams.rivals import OURS

_COLUMNS, _CUT = 4, 3  # panels beside each other, and where their bars end


def table(rows: list[dict[str, Any]]) -> Table:
    """The last column compares median times: how many samples a model takes while deep-river takes one."""
    shown = Table(title="Progressive validation: mean absolute error, or share of wrong labels (Elec2)")
    for name in ("stream", "model", "error", "± over seeds", "median ms", "p99 ms", "MB", "speed / deep-river's"):
        shown.add_column(name, justify="left" if name in ("stream", "model") else "right")
    theirs = {row["stream"]: row["median_ms"] for row in rows if row["model"] == DEEP_RIVER}
    for row in rows:
        numbers = f"{row['error']:.4f}", f"{row['spread']:.4f}", f"{row['median_ms']:.3f}", f"{row['p99_ms']:.3f}"
        style = "bold" if row["model"] == OURS else None
        speed = f"{theirs[row['stream']] / row['median_ms']:.1f}" if row["stream"] in theirs else ""
        shown.add_row(row["stream"], row["model"], *numbers, f"{row['megabytes']:.3f}", speed, style=style)
    return shown


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Errors relative to persistence, a panel a stream."""
    from evergrad import _style as style
    from evergrad._training.plots import save

    streams = list(dict.fromkeys(row["stream"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))[::-1]
    columns = min(_COLUMNS, len(streams))
    lines = -(-len(streams) // columns)
    size = 2.2 * columns + 2.2, (0.25 * len(models) + 0.6) * lines + 0.4
    figure, axes = style.subplots(lines, columns, figsize=size, sharey=True, squeeze=False)
    for axis, stream in zip(axes.flat, streams, strict=False):
        _panel(axis, stream, {row["model"]: row for row in rows if row["stream"] == stream}, models)
    for axis in axes.flat[len(streams) :]:
        axis.set_visible(False)
    for line in axes:
        line[0].set_yticks(range(len(models)), models, fontsize=8)
    figure.supxlabel(f"error / error of persistence (cut at {_CUT})", fontsize=9)
    save(figure, path)


def _panel(axis: Any, stream: str, here: dict[str, dict[str, Any]], models: list[str]) -> None:
    from evergrad import _style as style

    unit = here["persistence"]["error"]
    for place, model in enumerate(models):
        if model in here:
            colour = {OURS: style.OURS, DEEP_RIVER: style.THEIRS}.get(model, style.OTHERS)
            height, spread = here[model]["error"] / unit, here[model]["spread"] / unit
            axis.barh(place, min(height, _CUT), xerr=spread if height <= _CUT else None, color=colour)
            if height > _CUT:
                axis.text(_CUT - 0.05, place, f"{height:.1f}", ha="right", va="center", fontsize=7, color="white")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_title(stream, fontsize=9)
    axis.set_xlim(0, _CUT)
