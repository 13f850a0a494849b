"""How time and memory grow with the units n and with the rank r (for TBPTT: the horizon T), as fitted exponents.

The laws of PAPER.md's table are about large sizes, so the sizes go from 128 units up as far as memory, and a quarter of an
hour for all, allow. Streams are few where a step is n³ or n⁴ work. UORO has many: with few, its arrays would be in the
cache at 128 units and out of it at 1,024, and that is what would be seen, rather than the law.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import evergrad as eg
from evergrad._estimators import Estimator
from evergrad.bench.settings import Setting
from evergrad.bench.timing import patient, training

TOLERANCE = 0.35
SECONDS = 1.5  # to time a size for


@dataclasses.dataclass(frozen=True)
class Law:
    """What PAPER.md's table says of an estimator, a stream and a step: exponents of time and memory in n and in r."""

    name: str
    estimator: Callable[[int], Estimator]  # of the rank, the copies or the horizon
    time: tuple[float, float]
    memory: tuple[float, float]
    units: tuple[int, ...]
    ranks: tuple[int, ...]
    batch: int

    def points(self, over: str) -> dict[int, tuple[int, int]]:
        """Units and rank to measure at, when one of them varies and the other has a middle value."""
        if over == "n":
            return {n: (n, self.ranks[len(self.ranks) // 2]) for n in self.units}
        return {r: (self.units[len(self.units) // 2], r) for r in self.ranks}


_CUBIC, _SQUARE = (128, 256, 512, 1024), (128, 256, 512, 1024, 2048)
_FEW, _MANY = (2, 4, 8, 16), (8, 16, 32, 64)
LAWS = (
    Law("RTRL", lambda _: eg.RTRL(), (4, 0), (3, 0), (128, 256, 512), (1,), 1),
    Law("UORO", lambda _: eg.UORO(), (2, 0), (2, 0), _CUBIC, (1,), 128),
    Law("KF(copies=r)", lambda r: eg.KF(copies=r), (3, 1), (2, 1), _CUBIC, _FEW, 2),
    Law("OK(rank=r, window=0)", lambda r: eg.OK(rank=r, window=0), (3, 1), (2, 1), _CUBIC, _FEW, 2),
    Law("KTP(rank=r)", lambda r: eg.KTP(rank=r), (2, 1), (1, 1), _SQUARE, _MANY, 16),
    Law("TBPTT(T, stride=1)", lambda r: eg.TBPTT(horizon=r, stride=1), (2, 1), (1, 1), _SQUARE, _MANY, 16),
)


@dataclasses.dataclass(frozen=True)
class Count:
    """Growth in something else, where what is counted is no power: the exponent of the count at the same points is expected."""

    name: str
    over: str
    at: tuple[int, ...]
    setting: Callable[[int], Setting]
    estimator: Callable[[int], Estimator]
    work: Callable[[int], float]
    numbers: Callable[[int], float]


def _stacked(layers: int) -> Setting:
    return Setting("depth", units=128, batch=1, rank=4, symbols=4, cell="RNN", layers=layers)


def _deeper_work(layers: int) -> float:
    """H A of every layer: its own rows of the state and those of the layers above it reach each other."""
    return sum(rows**2 for rows in range(1, layers + 1))


def _deeper_numbers(layers: int) -> float:
    return sum(range(1, layers + 1))


_WIDE = Setting("window", units=256, batch=4, rank=8, symbols=4)


def _window_work(window: int) -> float:
    """(g r/k + 1) n³: P A once a window, and a suffix product a step."""
    return _WIDE.gates * _WIDE.rank / window + 1


def _window_numbers(window: int) -> float:
    """A, and 2k − 1 remembered steps with what a fold makes of them; see `KroneckerSum.cost`."""
    n, q = _WIDE.units, _WIDE.gates * _WIDE.units
    return _WIDE.rank * n * q + (2 * window - 1) * (_WIDE.symbols + 2 * n + 1 + q)


COUNTS = (
    Count(
        "OK(rank=4, window=0) on a stack",
        "layers",
        (1, 2, 3, 4),
        _stacked,
        lambda _: eg.OK(rank=4, window=0),
        _deeper_work,
        _deeper_numbers,
    ),
    Count(
        "OK(rank=8, window=k)",
        "k",
        (2, 4, 8, 16, 32),
        lambda _: _WIDE,
        lambda k: eg.OK(rank=8, window=k),
        _window_work,
        _window_numbers,
    ),
)
QUICK = "OK(rank=r, window=0)"  # in n alone, at the three largest sizes


@dataclasses.dataclass(frozen=True)
class Fit:
    name: str
    what: str  # time or memory
    over: str  # n or r, layers or k
    expected: float
    fitted: float
    points: dict[int, float]  # seconds a step, or bytes a stream

    @property
    def passed(self) -> bool:
        return abs(self.fitted - self.expected) <= TOLERANCE


def growth(quick: bool, say: Callable[[str], None]) -> Iterator[Fit]:
    for law in LAWS:
        if quick and law.name == QUICK:
            yield from fits(dataclasses.replace(law, units=law.units[-3:]), "n", say)
        elif not quick:
            yield from fits(law, "n", say)
            if len(law.ranks) > 1:
                yield from fits(law, "r", say)
    for count in () if quick else COUNTS:
        yield from counted(count, say)


def fits(law: Law, over: str, say: Callable[[str], None], seconds_each: float = SECONDS) -> list[Fit]:
    """Exponents of time and of memory."""
    seconds, sizes, axis = {}, {}, "nr".index(over)
    for at, (units, rank) in law.points(over).items():
        say(f"growth of {law.name} in {over}, at {at}")
        setting = Setting(law.name, units=units, batch=law.batch, rank=rank, symbols=4)
        seconds[at], sizes[at] = measured(setting, law.estimator(rank), seconds_each)
    return [
        Fit(law.name, "time", over, law.time[axis], exponent(seconds), seconds),
        Fit(law.name, "memory", over, law.memory[axis], exponent(sizes), sizes),
    ]


def counted(count: Count, say: Callable[[str], None], seconds_each: float = SECONDS) -> list[Fit]:
    """Exponents of time and of memory, beside those of what is counted."""
    seconds, sizes = {}, {}
    for at in count.at:
        say(f"growth of {count.name} in {count.over}, at {at}")
        seconds[at], sizes[at] = measured(count.setting(at), count.estimator(at), seconds_each)
    work, numbers = ({at: count_of(at) for at in count.at} for count_of in (count.work, count.numbers))
    return [
        Fit(count.name, "time", count.over, exponent(work), exponent(seconds), seconds),
        Fit(count.name, "memory", count.over, exponent(numbers), exponent(sizes), sizes),
    ]


def measured(setting: Setting, estimator: Estimator, seconds: float) -> tuple[float, float]:
    """Seconds of a training step of all streams, timed for about so long, and bytes that one stream more costs."""
    fewest = max(2, 1024 // setting.units)  # of small networks many, so that calling does not count
    block = estimator.past.period  # a whole number of folds, and of updates
    steps = block * -(-fewest // block)
    return patient(training(setting, estimator, steps), seconds / steps), bytes_a_stream(setting, estimator)


def exponent(points: dict[int, float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def bytes_a_stream(setting: Setting, estimator: Estimator) -> float:
    """What one stream more costs, by the compiled program's own analysis.

    From four streams on: fewer may all be folded at once, for which XLA sets memory of another kind aside.
    """
    few, more = (program_bytes(dataclasses.replace(setting, batch=batch), estimator) for batch in (4, 8))
    return (more - few) / 4


def program_bytes(setting: Setting, estimator: Estimator, steps: int = 2) -> int:
    """All memory of a compiled `run`: its state, and its temporaries."""
    analysis: Any = setting.learner(estimator).compile(*setting.data(steps)).memory_analysis()
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
        + analysis.temp_size_in_bytes
    )
