"""Several runs beside each other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from evergrad._core.checks import refuse_unless
from evergrad._core.printable import printable
from evergrad._registry import ESTIMATORS
from evergrad._training.folder import Folder, open_run
from evergrad._training.reports import newest, rows
from evergrad._training.settings import Settings

_FIGURES = {
    "copy": ("length",),
    "cue": ("wrong",),
    "text": ("valid_bpc",),
    "series": ("error", "persistence_error", "seasonal_error"),
}
_SCORES = ("error", "persistence_error", "seasonal_error", "relative_error")


def named_runs(paths: Sequence[Path], complain: Callable[[str], None]) -> list[tuple[str, Folder]]:
    """Runs by name, refused unless all are of one task and have reported; `complain` hears of damaged reports."""
    found = [(str(path), open_run(path)) for path in paths]
    tasks = sorted({folder.settings.task for _, folder in found})
    refuse_unless(len(tasks) == 1, f"these are runs of different tasks ({', '.join(tasks)}): compare those of one.")
    for name, folder in found:
        refuse_unless(len(rows(folder.metrics, complain)) > 0, f"{name} has no report yet: let it run for a while.")
    return found


def estimator_in_words(settings: Settings) -> str:
    entry = ESTIMATORS[settings.estimator]
    said = [f"{p}={getattr(settings, p)}" for p in entry.parameters if getattr(settings, p) is not None]
    return f"{entry.name}({', '.join(said)})"


def summary(folder: Folder) -> dict[str, Any]:
    """The newest figures; for a series, errors over all forecasts of the run."""
    found = rows(folder.metrics)
    last = newest(found) or {}
    scored = [row for row in found if row.get("scored")]
    if scored:
        total = sum(row["scored"] for row in scored)
        for name in _SCORES:
            if name in last:
                last[name] = sum(row["scored"] * row[name] for row in scored if row[name] is not None) / total
    return last


def table(runs: Sequence[tuple[str, Folder]]) -> Table:
    task = runs[0][1].settings.task
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = _FIGURES.get(task, ("excess", "optimum"))
    for title in ("run", "cell", "estimator", "batch", "steps", "loss", *shown, "steps/s"):
        words = title in ("run", "cell", "estimator")
        made.add_column(title, justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    for name, folder in runs:
        s, last, speed = folder.settings, summary(folder), rows(folder.speed)
        seconds = sum(r["seconds"] for r in speed)
        rate = sum(r["steps_per_second"] * r["seconds"] for r in speed) / seconds if seconds else None
        figures = [_shown(last.get(figure)) for figure in ("loss", *shown)]
        cells = (
            f"{s.cell} {s.units}",
            estimator_in_words(s),
            str(s.batch),
            f"{last['step']:,}",
            *figures,
            "–" if rate is None else f"{rate:,.0f}",
        )
        made.add_row(Text(printable(name)), *cells)
    return made


def _shown(value) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
