"""What trials have shown: one JSON with every trial in it, and what follows from them."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError
from evergrad._core.files import write_whole
from evergrad._core.not_none import not_none
from evergrad.paper.record import made_with, now

WITHIN = 0.1  # of the way from the optimum to knowing nothing: so near counts as learned
FILE = "result.json"
_ABOUT = ("task", "lag", "steps", "batch", "rate", "clip", "initial", "cell", "units", "estimator")


def read(path: Path) -> list[dict[str, Any]]:
    """The trials of a file; none if there is no file."""
    if not path.exists():
        return []
    try:
        document = json.loads(path.read_text("utf-8"))
        trials = document["trials"]
        keys = [key(trial) for trial in trials]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no result of the arena, or damaged ({error!r}): take it away, or mend it."
        ) from None
    return [trial for at, trial in enumerate(trials) if keys[at] not in keys[at + 1 :]]


def write(path: Path, trials: list[dict[str, Any]], budget: str) -> None:
    """All of it, whole or not at all."""
    document = {"product": "evergrad", "arena": 1, "budget": budget, "written": now(), "machine": made_with()}
    text = ",\n".join(json.dumps(trial, ensure_ascii=False) for trial in trials)
    head = json.dumps(document, indent=1, ensure_ascii=False)[:-2]
    write_whole(path, f'{head},\n "trials": [\n{text}\n ]\n}}\n')


def key(trial: dict[str, Any]) -> tuple:
    """What a trial is known by."""
    return (*(trial[name] for name in _ABOUT), trial["seed"])


@dataclasses.dataclass(frozen=True)
class Row:
    """All seeds of an entrant at a task and a lag."""

    trials: tuple[dict[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        """What the trials have in common."""
        try:
            return self.trials[0][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def seeds(self) -> list[int]:
        return sorted(trial["seed"] for trial in self.trials)

    @property
    def errors(self) -> list[float]:
        """One a seed; whoever diverged knows less than nothing."""
        return [2.0 if trial["error"] is None else trial["error"] for trial in self.trials]

    @property
    def error(self) -> float:
        return statistics.median(self.errors)

    @property
    def count(self) -> int:
        """Seeds that have learned."""
        return sum(error <= WITHIN for error in self.errors)

    @property
    def learned(self) -> bool:
        """More than half of the seeds."""
        return 2 * self.count > len(self.trials)

    @property
    def of(self) -> str:
        return f"{self.count} of {len(self.trials)}"

    @property
    def milliseconds(self) -> float | None:
        """A step's, as the clock said on a machine that may have had other things to do."""
        known = [each for trial in self.trials if (each := trial["milliseconds_a_step"]) is not None]
        return statistics.median(known) if known else None

    @property
    def untruncated(self) -> bool:
        """Whether gradients reach back to the beginning, and are right in the mean."""
        return self.horizon is None and (self.exact or self.unbiased)


def rows(trials: Iterable[dict[str, Any]]) -> list[Row]:
    return [Row(tuple(found)) for found in _grouped(trials, lambda trial: key(trial)[:-1]).values()]


@dataclasses.dataclass(frozen=True)
class Line:
    """An entrant on a task, over the lags, which rise."""

    rows: tuple[Row, ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows[0], name)

    @property
    def at(self) -> dict[int, Row]:
        return {row.lag: row for row in self.rows}

    @property
    def reached(self) -> int | None:
        """The longest lag that was learned, as were all shorter ones; None if not even the shortest."""
        found = None
        for row in self.rows:
            if not row.learned:
                break
            found = row.lag
        return found

    @property
    def learns(self) -> str:
        """The lags that were learned, in words."""
        lags = [row.lag for row in self.rows if row.learned]
        if lags[-1] == self.reached:
            return f"up to a lag of {self.reached}"
        return f"at {', '.join(map(str, lags))} but not at all shorter lags"

    @property
    def milliseconds(self) -> float | None:
        known = [each for row in self.rows if (each := row.milliseconds) is not None]
        return statistics.median(known) if known else None


def lines(found: Iterable[Row]) -> list[Line]:
    grouped = _grouped(found, lambda row: (row.task, row.cell, row.units, row.estimator))
    return [Line(tuple(sorted(group, key=lambda row: row.lag))) for group in grouped.values()]


def _grouped(items: Iterable[Any], by: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for item in items:
        found.setdefault(by(item), []).append(item)
    return found


def panels(found: Iterable[Line]) -> dict[tuple[str, str, int], list[Line]]:
    """Those who can be compared: the same task, cell and units."""
    return _grouped(found, lambda line: (line.task, line.cell, line.units))


def rival(row: Row, others: Iterable[Row]) -> Row | None:
    """Rolling TBPTT of no less time a step: the shortest horizon that takes as long; None if none does."""
    same = [each for each in others if each.rolling and each.lag == row.lag and each.milliseconds is not None]
    if not same or row.milliseconds is None:
        return None
    slower = [each for each in same if not_none(each.milliseconds) >= row.milliseconds]
    return min(slower, key=lambda each: each.horizon) if slower else None


@dataclasses.dataclass(frozen=True)
class Bite:
    """An untruncated entrant, and where rolling TBPTT of no less time a step stays behind."""

    line: Line
    rivals: dict[int, Row]  # by lag

    @property
    def lags(self) -> list[int]:
        """Where the entrant has learned and its rival has not."""
        return [lag for lag, other in self.rivals.items() if self.line.at[lag].learned and not other.learned]

    @property
    def sentence(self) -> str:
        line = self.line
        who = f"{line.task}, {line.cell} {line.units}: {line.estimator} ({_time(line.milliseconds)} over all lags)"
        if not any(row.learned for row in line.rows):
            told = ", ".join(f"{row.lag} ({row.of} seeds)" for row in line.rows)
            return f"{who} learns at none of the lags {told}."
        if not self.rivals:
            return f"{who} learns {line.learns}; no rolling TBPTT of as much time a step was tried."
        if not self.lags:
            return f"{who} learns {line.learns}; rolling TBPTT of no less time a step learns wherever it does."
        told = "; ".join(self._at(lag) for lag in self.lags)
        return f"{who} learns {line.learns}, where rolling TBPTT of no less time a step does not: {told}."

    def _at(self, lag):
        ours, other = self.line.at[lag], self.rivals[lag]
        mine, theirs = _time(ours.milliseconds), _time(other.milliseconds)
        return f"at {lag} in {ours.of} seeds ({mine}), {other.estimator} ({theirs}) in {other.of}"


def bites(found: list[Line]) -> list[Bite]:
    """For everyone whose gradients are untruncated."""
    made = []
    for group in panels(found).values():
        everyone = [row for line in group for row in line.rows]
        for line in (line for line in group if line.untruncated):
            rivals = {row.lag: other for row in line.rows if (other := rival(row, everyone)) is not None}
            made.append(Bite(line, rivals))
    return made


def front(group: Iterable[Line]) -> list[Line]:
    """Those than whom nobody learns as long a lag in less time a step, the quickest first."""
    best: list[Line] = []
    known = [line for line in group if line.milliseconds is not None and line.reached is not None]
    for line in sorted(known, key=lambda line: (line.milliseconds, -not_none(line.reached))):
        if not best or not_none(line.reached) > not_none(best[-1].reached):
            best.append(line)
    return best


def _time(milliseconds: float | None) -> str:
    return "not timed" if milliseconds is None else f"{milliseconds:.3g} ms a step"
