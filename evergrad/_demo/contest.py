"""What a demo is: who learns what, and what is said of it in the end."""

import abc
import dataclasses
import fractions
from pathlib import Path
from typing import Any, ClassVar

import jax
import optax

import evergrad as eg


@dataclasses.dataclass(frozen=True)
class Entrant:
    """An estimator in the demo, with what a fair comparison has to say of it; the cell where it is not that of the others."""

    estimator: eg.Estimator
    cell: str | None = None

    @property
    def label(self) -> str:
        e: Any = self.estimator
        if isinstance(e, eg.TBPTT):
            return f"TBPTT(horizon={e.horizon}, stride={e.stride})"
        if isinstance(e, eg.RTRL):
            return f"RTRL on {self.cell}"
        return f"{type(e).__name__}(rank={e.rank}, window={e.window})"

    @property
    def reach(self) -> str:
        """How far back a gradient of this estimator goes."""
        e: Any = self.estimator
        if isinstance(e, eg.TBPTT):
            return f"reaches back {e.horizon} steps" if e.stride == 1 else f"reaches back 1 to {e.horizon} steps"
        if isinstance(e, eg.RTRL):
            return "remembers no steps, the influence is exact and reaches back to the beginning"
        return f"remembers {e.window} to {2 * e.window - 1} steps, the influence reaches back to the beginning"

    @property
    def updates(self) -> fractions.Fraction:
        """Updates of the weights for each sample of a stream."""
        return fractions.Fraction(1, self.estimator.past.stride)


@dataclasses.dataclass(frozen=True)
class Contest(abc.ABC):
    """Everything but the estimator is the same for all: readout, data, streams, optimiser, seeds, and the cell, unless an entrant says."""

    seeds: int
    steps: int

    name: ClassVar[str]
    chunk: ClassVar[int]  # steps from one report to the next; every entrant takes as many in its turn
    batch: ClassVar[int] = 16
    rate: ClassVar[float]
    clip: ClassVar[float] = 1.0
    figure: ClassVar[str]  # on the terminal, the head of the column of the latest figure
    column: ClassVar[str]  # and of that of the seeds that are done

    @property
    @abc.abstractmethod
    def title(self) -> str: ...

    @property
    @abc.abstractmethod
    def entrants(self) -> list[Entrant]: ...

    @property
    @abc.abstractmethod
    def source(self) -> Any:
        """A `Source` that has a `start(batch=..., key=...)`."""

    @abc.abstractmethod
    def model(self, entrant: Entrant, key: jax.Array) -> eg.Model: ...

    @abc.abstractmethod
    def report(self, position: Any, steps: int) -> tuple[dict[str, Any], Any]:
        """What is told of the last chunk, and the position to go on with."""

    @abc.abstractmethod
    def shown(self, report: dict[str, Any]) -> str:
        """The figure on the terminal."""

    @abc.abstractmethod
    def success(self, reports: list[dict[str, Any]]) -> Any:
        """How one seed has done."""

    @abc.abstractmethod
    def total(self, curves: list[list[dict[str, Any]]]) -> str:
        """How all seeds that are done have done."""

    @abc.abstractmethod
    def sentences(self, results: list[dict[str, Any]]) -> list[str]:
        """What has come out, from the results alone."""

    @abc.abstractmethod
    def draw(self, results: list[dict[str, Any]], path: Path) -> None: ...

    def learner(self, entrant: Entrant) -> eg.Learner:
        """One for all seeds, so that its loop is compiled once; the weights are in the state."""
        model = self.model(entrant, jax.random.key(0))
        return eg.Learner(model, entrant.estimator, optax.adam(self.rate), clip=self.clip)


def times(a: float, b: float) -> str:
    """a as a multiple of b."""
    if not b:
        return "–"
    return f"{a / b:.1f} times" if a / b >= 0.1 else f"{a / b:.1g} times"
