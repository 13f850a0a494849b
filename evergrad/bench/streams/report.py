"""The comparison as a table and as a picture."""

from pathlib import Path
from typing import Any

from rich.table import Table

from evergrad.bench.streams.bench import DEEP_RIVER
from evergrad.bench.streams.rivals import OURS


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
    figure, axes = style.subplots(1, len(streams), figsize=(2.6 * len(streams) + 2.2, 3.2), sharey=True, squeeze=False)
    models = list(dict.fromkeys(row["model"] for row in rows))[::-1]
    for axis, stream in zip(axes[0], streams, strict=True):
        here = {row["model"]: row for row in rows if row["stream"] == stream}
        unit = here["persistence"]["error"]
        for place, model in enumerate(models):
            if model in here:
                colour = {OURS: style.OURS, DEEP_RIVER: style.THEIRS}.get(model, style.OTHERS)
                height, spread = here[model]["error"] / unit, here[model]["spread"] / unit
                axis.barh(place, min(height, 3), xerr=spread, color=colour)
                if height > 3:
                    axis.text(2.95, place, f"{height:.1f}", ha="right", va="center", fontsize=7, color="white")
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(stream, fontsize=9)
        axis.set_xlim(0, 3)
    axes[0][0].set_yticks(range(len(models)), models, fontsize=8)
    figure.supxlabel("error / error of persistence (cut at 3)", fontsize=9)
    save(figure, path)
