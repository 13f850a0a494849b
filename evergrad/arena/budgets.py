"""What is tried: a budget, with what somebody said in its place."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import evergrad as eg
from evergrad._core.checks import refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._registry import CELLS
from evergrad.arena.challenges import CHALLENGES
from evergrad.arena.entrants import HORIZONS, Entrant, entrants
from evergrad.arena.trial import REPORTS, Terms


@dataclasses.dataclass(frozen=True)
class Budget:
    """What is tried unless somebody says otherwise. A trial takes `factor` steps for each step of its lag, `least` at least."""

    about: str
    tasks: tuple[str, ...]
    lags: tuple[int, ...]
    cells: tuple[str, ...]
    units: int
    seeds: int
    factor: int
    least: int
    rate: float
    estimators: tuple[str, ...] | None  # None: all of the registry


BUDGETS = {
    "quick": Budget(
        "two minutes: a small network, two lags, a few estimators, to see that everything works",
        ("chain",),
        (16, 64),
        ("lstm", "mingru"),
        8,
        1,
        30,
        1000,
        0.01,
        ("rtrl", "ok:rank=4,window=8", "uoro", "snap1"),
    ),
    "desk": Budget(
        "hours: all tasks, all estimators, lags up to eight times the units",
        tuple(CHALLENGES),
        (16, 64, 256),
        ("lstm", "mingru", "rglru", "lru"),
        32,
        3,
        100,
        4000,
        0.003,
        None,
    ),
}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to try: a budget with what was said on the command line in its place."""

    budget: str
    tasks: Sequence[str]
    lags: Sequence[int]
    cells: Sequence[str]
    units: Sequence[int]
    estimators: Sequence[eg.Estimator] | None
    horizons: Sequence[int]
    seeds: Sequence[int]
    factor: int
    least: int
    batch: int
    rate: float

    def stands(self) -> Iterator[tuple[Terms, Entrant]]:
        """All who meet at a task and a lag, one after the other."""
        for task in self.tasks:
            for lag in self.lags:
                terms = Terms(task, lag, max(self.least, self.factor * lag), self.batch, self.rate)
                for units in self.units:
                    tried = entrants(CHALLENGES[task], lag, self.cells, units, self.estimators, self.horizons)
                    yield from ((terms, entrant) for entrant in tried)


def wanted(budget: str, said: dict[str, Any]) -> Wanted:
    """`said` has the command line's words, None where it said nothing."""
    refuse_unknown("budget", budget, BUDGETS)
    usual = BUDGETS[budget]
    tasks, cells = _names(said["tasks"], usual.tasks), _names(said["cells"], usual.cells)
    for task in tasks:
        refuse_unknown("task of the arena", task, CHALLENGES)
    for cell in cells:
        refuse_unknown("cell", cell, CELLS)
    first, seeds = said["first_seed"] or 0, said["seeds"] or usual.seeds
    names = said["estimators"] or usual.estimators
    return Wanted(
        budget,
        tasks,
        _numbers("--lags", said["lags"], usual.lags),
        cells,
        _numbers("--units", said["units"], (usual.units,)),
        None if names is None else _estimators(names),
        _numbers("--horizons", said["horizons"], HORIZONS),
        range(first, first + seeds),
        said["steps_per_lag"] or usual.factor,
        said["least_steps"] or max(REPORTS, usual.least),
        said["batch"],
        said["rate"] or usual.rate,
    )


def _names(text: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    return usual if text is None else tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _numbers(option: str, text: str | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    if text is None:
        return usual
    words = [word.strip() for word in text.split(",") if word.strip()]
    refuse_unless(
        all(word.isdecimal() and 0 < int(word) <= 1_000_000 for word in words),
        f"{option} {text}: give whole numbers from 1 to a million, with commas between them.",
    )
    return tuple(sorted({int(word) for word in words}))


def _estimators(names: Sequence[str]) -> list[eg.Estimator]:
    from evergrad.lab.subject import parse_estimator

    return [parse_estimator(name) for name in names]
