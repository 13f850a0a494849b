"""What a step costs, counted rather than measured: the figures that the planner goes by."""

import dataclasses
import math

import jax

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.unit import UnitCell
from evergrad._core.maps import maps_of
from evergrad._core.parameters import parameters
from evergrad._core.units import is_unit_local


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of one linear map of a cell: n units, m state variables that it can reach, p regressors, q columns, and its parameters."""

    n: int
    m: int
    p: int
    q: int
    parameters: int
    dense: bool = False  # whether ∂h'/∂z and H have no structure
    unit_local: bool = False  # whether no unit sees another's state

    @property
    def pull(self) -> int:
        """Multiply-adds that carry one row back through a step."""
        return self.p * self.q if self.dense else self.n * self.m

    @property
    def apply(self) -> int:
        """Multiply-adds of H times a vector."""
        return self.m * self.m if self.dense else self.n * self.m


def sizes_of(cell: Cell) -> tuple[list[Sizes], list[Sizes]]:
    """Of every linear map, and of every other parameter as if it were one of a single row."""
    if isinstance(cell, KroneckerCell):
        p, q = cell.weight.shape
        return [Sizes(cell.units, cell.states * cell.units, p, q, p * q, unit_local=is_unit_local(cell))], []
    if isinstance(cell, UnitCell):
        return _of_units(cell)
    found = maps_of(cell)
    maps = [Sizes(cell.units, len(each.rows), each.p, each.q, each.p * each.q, dense=True) for each in found.maps]
    sizes = [(len(each.rows), math.prod(each.shape)) for each in found.rest]
    return maps, [Sizes(cell.units, m, 1, size, size, dense=True) for m, size in sizes]


def _of_units(cell: UnitCell) -> tuple[list[Sizes], list[Sizes]]:
    p, q = cell.weight.shape
    others = sum(math.prod(a.shape) for a in jax.tree.leaves(parameters(cell))) - p * q
    m = cell.states * cell.units
    rest = [Sizes(cell.units, m, 1, others, others, dense=True, unit_local=True)] if others else []
    return [Sizes(cell.units, m, p, q, p * q, dense=True, unit_local=True)], rest


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one stream and step, in numbers.

    `products` are multiply-adds in large matrix products, `thin` in products with a short side, and `touched` numbers
    that are read or written in passes over large arrays; `calls` are operations too small for that to matter. `scratch` are
    numbers that are held beside the state.
    """

    products: int | float = 0
    thin: int | float = 0
    touched: int | float = 0
    scratch: int | float = 0
    calls: int | float = 0

    @property
    def multiply_adds(self) -> int | float:
        return self.products + self.thin + self.touched / 2

    def __radd__(self, nothing: int) -> "Cost":
        """Of a sum, which begins with 0."""
        return self

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))
