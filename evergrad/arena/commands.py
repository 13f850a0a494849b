"""What `evergrad arena` does."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._registry import CELLS
from evergrad._training.signals import Stop
from evergrad.arena import results
from evergrad.arena.challenges import CHALLENGES
from evergrad.arena.entrants import HORIZONS, Entrant, entrants
from evergrad.arena.page import write_page
from evergrad.arena.trial import REPORTS, Stand, Terms, initial_of
from evergrad.paper.plan import Stopped


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
    estimators: tuple[str, ...] | None  # None: all of the registry


BUDGETS = {
    "quick": Budget(
        "two minutes: a small network, two lags, a few estimators, to see that everything works",
        ("chain",),
        (16, 64),
        ("lstm", "mingru"),
        8,
        1,
        20,
        800,
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
        said["rate"],
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


def run(want: Wanted, out: Path, stop: Stop, say: Callable[[str], None]) -> bool:
    """Every trial that is not there yet; the JSON is written after each. False if a signal stopped it."""
    path = out / results.FILE
    trials = results.read(path)
    known = {results.key(trial) for trial in trials}
    stands = list(want.stands())
    refuse_unless(bool(stands), "nothing to try: none of these cells can be used with any of these estimators.")
    progress = _Progress(len(stands) * len(want.seeds), say)

    def check():
        if stop.signal is not None:
            raise Stopped

    try:
        for terms, entrant in stands:
            stand = None
            for seed in want.seeds:
                about = dataclasses.asdict(terms) | {"cell": entrant.cell, "units": entrant.units}
                initial = initial_of(terms.made(), entrant.cell)
                about |= {"estimator": entrant.label, "initial": initial, "seed": seed}
                if results.key(about) in known:
                    progress.skip()
                    continue
                stand = stand or Stand(terms, entrant)
                trial = dataclasses.asdict(terms) | stand.about | stand.trial(seed, check)
                trials.append(trial)
                known.add(results.key(trial))
                results.write(path, trials, want.budget)
                progress.told(trial)
    except Stopped:
        return False
    return True


class _Progress:
    """A line for every trial, with how many are left and about how long they will take."""

    def __init__(self, total: int, say: Callable[[str], None]):
        self._left, self._total, self._say = total, total, say
        self._began, self._done = time.monotonic(), 0

    def skip(self) -> None:
        self._left -= 1

    def told(self, trial: dict[str, Any]) -> None:
        self._left -= 1
        self._done += 1
        each = (time.monotonic() - self._began) / self._done
        spent = trial["milliseconds_a_step"]
        figure = (
            "diverged"
            if trial["diverged"]
            else "nothing scored"
            if trial["error"] is None
            else f"error {trial['error']:.3f}"
        )
        clock = "" if spent is None else f", {spent:.3g} ms a step"
        self._say(
            f"[{self._total - self._left}/{self._total}] {trial['task']} {trial['lag']}, {trial['cell']} {trial['units']}, "
            f"{trial['estimator']}, seed {trial['seed']}: {figure}{clock}; about {self._left * each / 60:.1f} min left"
        )


def report(paths: Sequence[Path], out: Path) -> Path:
    """The page of the trials of these files, all in one."""
    trials = [trial for path in paths for trial in results.read(path)]
    if not trials:
        raise InputError(f"no trials in {', '.join(map(str, paths))}: make some with `evergrad arena run`.")
    return write_page(trials, out)


def retime(path: Path, stop: Stop, say: Callable[[str], None], *, rounds: int = 5, steps: int = 200) -> bool:
    """The time of a step of everyone in a file, taken again: all who meet at a task and a lag in turn, the median of the rounds."""
    trials = results.read(path)
    refuse_unless(bool(trials), f"{path} has no trials: make some with `evergrad arena run`.")
    meetings: dict[tuple, list[results.Row]] = {}
    for row in results.rows(trials):
        meetings.setdefault((row.task, row.lag, row.cell, row.units), []).append(row)
    for at, (meeting, group) in enumerate(meetings.items()):
        if stop.signal is not None:
            return False
        for row, spent in zip(group, _times(group, rounds, steps), strict=True):
            for trial in row.trials:
                trial["milliseconds_a_step"] = spent
        results.write(path, trials, "retimed")
        say(f"[{at + 1}/{len(meetings)}] timed {' '.join(map(str, meeting))}")
    return True


def _times(group: list[results.Row], rounds: int, steps: int) -> list[float]:
    stands = [_stand(row, steps) for row in group]
    states = [stand.start(0) for stand in stands]
    found: list[list[float]] = [[] for _ in group]
    for turn in range(rounds + 1):
        for at, stand in enumerate(stands):
            *states[at], _, spent = stand.advance(*states[at], steps)
            if turn:  # the first time it is compiled
                found[at].append(1000 * spent / steps)
    return [round(statistics.median(each), 4) for each in found]


def _stand(row: results.Row, steps: int) -> Stand:
    """As it was in the trials."""
    terms = Terms(row.task, row.lag, steps * REPORTS, row.batch, row.rate, row.clip)
    return Stand(terms, Entrant(row.cell, row.units, estimator_of(row.estimator)))


def estimator_of(label: str) -> eg.Estimator:
    """From the label of a row, which is the call in Python without what is usual. Only names of the registry, and plain values."""
    import ast

    from evergrad._registry import ESTIMATORS

    call: Any = ast.parse(label, mode="eval").body
    name = call.id if isinstance(call, ast.Name) else call.func.id
    said = {} if isinstance(call, ast.Name) else {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    kinds = {entry.name: entry for entry in ESTIMATORS.values()}
    refuse_unknown("estimator", name, kinds)
    usual = {"stride": 1} if name == "TBPTT" else {}
    return kinds[name].load()(**(usual | said))
