"""The arena's rows as a table in Markdown, for a page of one's own."""

from collections.abc import Iterator
from typing import Any

from evergrad.arena.results import Row, bites, lines, rows

_HEAD = ("task", "lag", "cell", "estimator", "horizon, stride", "seeds that learned", "errors")
_HEAD += ("multiply-adds a step and stream", "ms a step")


def markdown(trials: list[dict[str, Any]]) -> Iterator[str]:
    """Lines: the table, and what follows from it."""
    found = rows(trials)
    yield _line(_HEAD)
    yield "|" + "---|" * len(_HEAD)
    yield from (_line(_cells(row)) for row in found)
    yield ""
    yield from (f"* {bite.sentence}" for bite in bites(lines(found)))


def _line(cells):
    return f"| {' | '.join(cells)} |"


def _cells(row: Row) -> tuple[str, ...]:
    horizon = "to the beginning" if row.horizon is None else f"{row.horizon}"
    work = "–" if row.multiply_adds is None else f"{row.multiply_adds:,}"
    least, most = min(row.errors), "diverged" if any(t["diverged"] for t in row.trials) else f"{max(row.errors):.3f}"
    told = (row.task, str(row.lag), f"{row.cell} {row.units}", f"`{row.estimator}`", f"{horizon}, {row.stride}", row.of)
    return (*told, f"{least:.3f} to {most}", work, _time(row.milliseconds))


def _time(spent):
    return "–" if spent is None else f"{spent:.3f}" if spent < 0.1 else f"{spent:.2f}"
