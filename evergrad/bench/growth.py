"""How time and memory grow with the units n and with the rank r (for TBPTT: the horizon T), as fitted exponents."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

import evergrad as eg
from evergrad.bench.settings import Setting
from evergrad.bench.timing import medians, training
from evergrad.estimators import Estimator

TOLERANCE = 0.35
UNITS = 256  # where the rank varies


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

    @property
    def middle(self) -> int:
        return self.ranks[len(self.ranks) // 2]


_CUBIC, _SQUARE = (128, 256, 512, 1024), (256, 512, 1024, 2048)
_RANKS = (8, 16, 32, 64)
LAWS = (
    Law("RTRL", lambda _: eg.RTRL(), (4, 0), (3, 0), (128, 256, 512), (1,), 1),
    Law("UORO", lambda _: eg.UORO(), (2, 0), (2, 0), _SQUARE, (1,), 8),
    Law("KF(copies=r)", lambda r: eg.KF(copies=r), (3, 1), (2, 1), _CUBIC, (2, 4, 8, 16), 2),
    Law("OK(rank=r, window=0)", lambda r: eg.OK(rank=r, window=0), (3, 1), (2, 1), _CUBIC, (2, 4, 8, 16), 2),
    Law("KTP(rank=r)", lambda r: eg.KTP(rank=r), (2, 1), (1, 1), _SQUARE, _RANKS, 8),
    Law("TBPTT(T, stride=1)", lambda r: eg.TBPTT(horizon=r, stride=1), (2, 1), (1, 1), _SQUARE, _RANKS, 8),
)


QUICK = ("UORO", "OK(rank=r, window=0)")


@dataclasses.dataclass(frozen=True)
class Fit:
    name: str
    what: str  # time or memory
    over: str  # n or r
    expected: float
    fitted: float
    points: dict[int, float]  # seconds a step, or bytes a stream

    @property
    def passed(self) -> bool:
        return abs(self.fitted - self.expected) <= TOLERANCE


def growth(rounds: int, quick: bool, say: Callable[[str], None]) -> Iterator[Fit]:
    for law in LAWS:
        if quick and law.name not in QUICK:
            continue
        units = law.units[:2] if quick else law.units
        yield from _fits(law, "n", 0, {n: (n, law.middle) for n in units}, rounds, say)
        if len(law.ranks) > 1 and not quick:
            yield from _fits(law, "r", 1, {r: (UNITS, r) for r in law.ranks}, rounds, say)


def _fits(law, over, axis, points, rounds, say):
    say(f"growth of {law.name} in {over}")
    seconds, sizes = {}, {}
    for at, (units, rank) in points.items():
        setting, estimator = _setting(law, units), law.estimator(rank)
        steps = 2 if law.time[0] > 2 else 4 * max(estimator.window, 4)
        case = {law.name: training(setting, estimator, steps)}
        seconds[at] = medians(case, rounds if units < 512 else min(rounds, 3))[law.name]
        sizes[at] = bytes_a_stream(setting, estimator)
    yield Fit(law.name, "time", over, law.time[axis], exponent(seconds), seconds)
    yield Fit(law.name, "memory", over, law.memory[axis], exponent(sizes), sizes)


def _setting(law, units):
    return Setting(law.name, units=units, batch=law.batch, rank=law.middle, symbols=4)


def exponent(points: dict[int, float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def bytes_a_stream(setting: Setting, estimator: Estimator) -> float:
    """What one stream more costs, by the compiled program's own analysis."""
    one, two = (program_bytes(dataclasses.replace(setting, batch=batch), estimator) for batch in (2, 4))
    return (two - one) / 2


def program_bytes(setting: Setting, estimator: Estimator, steps: int = 2) -> int:
    """All memory of a compiled `run`: its state, and its temporaries."""
    analysis = setting.learner(estimator).compile(*setting.data(steps)).memory_analysis()
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
        + analysis.temp_size_in_bytes
    )
