"""What a step costs, counted rather than measured: the figures that the planner goes by."""

import dataclasses

import jax

from evergrad.cells.base import Cell, KroneckerCell
from evergrad.linearize import initial_state
from evergrad.parameters import parameters


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a cell: n units, m state variables, p regressors, q = gates·n, and all its parameters."""

    n: int
    m: int
    p: int
    q: int
    parameters: int


def sizes_of(cell: Cell) -> Sizes:
    m = initial_state(cell).size
    count = sum(a.size for a in jax.tree.leaves(parameters(cell)))
    if isinstance(cell, KroneckerCell):
        return Sizes(cell.units, m, *cell.weight.shape, count)
    p = cell.inputs + cell.units + 1
    return Sizes(cell.units, m, p, -(-count // p), count)


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

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))
