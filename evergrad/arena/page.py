"""The arena's page: one HTML file with everything in it."""

from html import escape
from pathlib import Path
from typing import Any

from evergrad._core.files import write_whole
from evergrad.arena.challenges import CHALLENGES
from evergrad.arena.pictures import pictures
from evergrad.arena.results import WITHIN, Row, bites, lines, rows
from evergrad.paper.experiment import Grid
from evergrad.paper.page import document, picture_of, table_of
from evergrad.paper.record import made_with, now

TITLE = "Where the horizon bites"
_HEAD = (
    "task",
    "lag",
    "cell",
    "estimator",
    "horizon",
    "stride",
    "updates a sample",
    "ms a step",
    "multiply-adds a step",
)
_HEAD += ("learned", "median error", "errors by seed", "seeds", "steps", "streams", "rate", "start")


def write_page(trials: list[dict[str, Any]], folder: Path) -> Path:
    """page.html, and both pictures as PNG beside it."""
    found = rows(trials)
    drawn = lines(found)
    body = [f"<h1>{TITLE}</h1>", _lead(), *_sentences(drawn), *(picture_of(folder, each) for each in pictures(drawn))]
    body += [
        *_notes(folder),
        _tasks(found),
        f"<details><summary class='part'>Every row</summary>{_table(found)}</details>",
        _about(),
    ]
    write_whole(folder / "page.html", document(TITLE, body))
    return folder / "page.html"


def _lead() -> str:
    text = (
        "Tasks whose lag can be turned, and whose best possible loss is known. Everyone who meets at a task and a lag has the same "
        "cell, the same first weights, streams, samples, optimiser and rate; only the estimator differs. Error 0 is the optimum, "
        f"1 knowing nothing; a seed has learned below {WITHIN:g}, in the mean of its last reports, and an entrant if more than half "
        "of its seeds have. The baseline is rolling TBPTT: an update at every step, as all others."
    )
    return f"<p>{escape(text)}</p>"


def _sentences(drawn) -> list[str]:
    return ["<ul>", *(f"<li>{escape(bite.sentence)}</li>" for bite in bites(drawn)), "</ul>"]


def _notes(folder: Path) -> list[str]:
    """What a person has to say about it: notes.txt beside the page, a paragraph each."""
    path = folder / "notes.txt"
    return [f"<p>{escape(text.strip())}</p>" for text in path.read_text("utf-8").split("\n\n")] if path.exists() else []


def _tasks(found: list[Row]) -> str:
    names = dict.fromkeys(row.task for row in found)
    told = [(name, CHALLENGES[name].about, CHALLENGES[name].holds) for name in names]
    return table_of(Grid("The tasks, and what has to be held", ("task", "what", "held"), told))


def _table(found: list[Row]) -> str:
    return table_of(Grid("", _HEAD, [_cells(row) for row in found]))


def _cells(row: Row) -> tuple[str, ...]:
    horizon = "to the beginning" if row.horizon is None else f"{row.horizon}"
    spent = "–" if row.milliseconds is None else f"{row.milliseconds:.3g}"
    work = "–" if row.multiply_adds is None else f"{row.multiply_adds:.2g}"
    errors = ", ".join("diverged" if trial["diverged"] else _number(trial["error"]) for trial in row.trials)
    told = (row.task, str(row.lag), f"{row.cell} {row.units}", row.estimator, horizon, str(row.stride))
    told += (f"{row.updates_per_sample:g}", spent, work, row.of, f"{row.error:.3f}", errors)
    seeds = ", ".join(map(str, row.seeds))
    return (*told, seeds, f"{row.steps:,}", str(row.batch), f"{row.rate:g}", row.initial or "the task's")


def _number(error: float | None) -> str:
    return "–" if error is None else f"{error:.3f}"


def _about() -> str:
    made = ", ".join(f"{name} {value}" for name, value in made_with().items() if value)
    text = (
        f"Written {now()} by `evergrad arena report` with {made}. Times are those of the trials, on whatever else the machine had to "
        "do; `evergrad arena time` takes them again, everyone in turn."
    )
    return f'<p class="small">{escape(text)}</p>'
