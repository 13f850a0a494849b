"""Who is tried: a cell and an estimator, with what a fair comparison has to say of them."""

import dataclasses
import fractions
import re
from collections.abc import Sequence
from typing import Any

import jax

import evergrad as eg
from evergrad._core.checks import InputError
from evergrad._core.planner import multiply_adds
from evergrad._registry import ESTIMATORS
from evergrad.arena.challenges import Challenge

HORIZONS = tuple(2**i for i in range(3, 10))  # of rolling TBPTT, 8 to 512, which is always there
_TWICE = ("local", "tbptt")  # a name for what others are already; and what is there with every horizon


@dataclasses.dataclass(frozen=True)
class Entrant:
    cell: str
    units: int
    estimator: eg.Estimator

    @property
    def label(self) -> str:
        """As the estimator is written in Python, without what is usual."""
        return re.sub(r", mix='sampling'|, diagonal_rank=None|, stride=1\b|\(window=0\)", "", repr(self.estimator))

    @property
    def name(self) -> str:
        """For files."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.cell}-n{self.units}-{self.label}".lower()).strip("-")

    @property
    def horizon(self) -> int | None:
        """How far back a gradient can reach; None if to the beginning."""
        past: Any = self.estimator
        return getattr(past, "horizon", None) or getattr(past, "cap", None)

    @property
    def rolling(self) -> bool:
        """Whether this is the baseline: TBPTT with an update at every step."""
        return isinstance(self.estimator, eg.TBPTT) and self.estimator.stride == 1

    def about(self, model: eg.Model) -> dict[str, Any]:
        """What every row says, so that nobody has to guess what was compared with what."""
        stride = self.estimator.past.stride
        return {
            "cell": self.cell,
            "units": self.units,
            "estimator": self.label,
            "rolling": self.rolling,
            "exact": self.estimator.exact_for(model.cell),
            "unbiased": self.estimator.unbiased,
            "horizon": self.horizon,
            "stride": stride,
            "updates_per_sample": float(fractions.Fraction(1, stride)),
            "multiply_adds": _work(self.estimator, model.cell),
        }


def _work(estimator: eg.Estimator, cell: eg.Cell) -> int | None:
    try:
        return multiply_adds(estimator, cell)
    except (InputError, NotImplementedError):  # of an estimator or a cell that does not say
        return None


def entrants(
    challenge: Challenge,
    lag: int,
    cells: Sequence[str],
    units: int,
    estimators: Sequence[eg.Estimator] | None,
    horizons: Sequence[int],
) -> list[Entrant]:
    """Every cell that the task allows with every estimator that the cell allows, and rolling TBPTT of every horizon.

    Without `estimators`: those of the registry, each as it is usually used.
    """
    found = []
    for cell in challenge.cells or cells:
        model = challenge.at(lag).model(cell, units, jax.random.key(0))
        wanted = list(estimators) if estimators is not None else _all(model.cell)
        wanted += [eg.TBPTT(horizon=horizon, stride=1) for horizon in horizons]
        allowed = [Entrant(cell, units, each) for each in wanted if allows(model.cell, each)]
        found += list({entrant.name: entrant for entrant in allowed}.values())
    return found


def _all(cell: eg.Cell) -> list[eg.Estimator]:
    kinds = [entry.load() for name, entry in ESTIMATORS.items() if name not in _TWICE]
    usual = [[each for each in kind.usual(cell) if allows(cell, each)][:1] for kind in kinds]
    exact: list[eg.Estimator] = [each for family in usual for each in family]
    if eg.RTRL().exact_for(cell) and _unit_local(cell):  # then a window is no use
        exact = [eg.RTRL() if isinstance(each, eg.RTRL) else each for each in exact]
    return exact


def _unit_local(cell: eg.Cell) -> bool:
    return eg.SnAp1().exact_for(cell)


def allows(cell: eg.Cell, estimator: eg.Estimator) -> bool:
    try:
        estimator.check(cell)
    except InputError:
        return False
    return True
