from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.blocks import added, all_rows, block, first_of, reached, size_of, with_zeros
from evergrad._core.checks import refuse_unless
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, check_split
from evergrad._core.maps import rows_of
from evergrad._core.parameters import parameters
from evergrad._core.reading import through
from evergrad._core.rounded_influence import check_dtype, kept_in
from evergrad._core.units import UNIT, is_unit_local
from evergrad._estimators.base import WINDOWS
from evergrad._estimators.local import Units
from evergrad._estimators.windowed import Windowed, check_window


class RTRL(Windowed):
    """Real-time recurrent learning: G itself, so the gradient is exact. Works on any differentiable cell.

    Memory n³ a stream; time n⁴ a step, or n³ with `window=n` (Schmidhuber's hybrid): a window of k steps is folded
    with k products of n³ and one of n⁴. On a cell whose units do not see each other (`eg.UnitCell`) both are of the order
    of the parameters. dtype=jnp.bfloat16 keeps G in half the bytes, rounded at random: then it is no longer exact, but right in
    the mean. Reference: Williams & Zipser 1989; Schmidhuber 1992.

    Examples:
        >>> estimator = eg.RTRL(window=8)
        >>> estimator.unbiased, estimator.exact_for(eg.GRU(inputs=3, units=8, key=key))
        (True, True)
    """

    window: int = eqx.field(static=True)
    dtype: str | None = eqx.field(static=True, default=None)

    recommended: ClassVar[str] = "it is exact, and it fits."

    @classmethod
    def choices(cls, cell):
        return [cls(window=k) for k in sorted({*WINDOWS, cell.units}, reverse=True)]

    @classmethod
    def usual(cls, cell):
        return [cls(window=cell.units)]

    def __init__(self, *, window: int = 0, dtype: Any = None):
        call = f"RTRL(window={window})"
        check_window(window, call)
        self.window, self.dtype = window, check_dtype(dtype, call)

    @property
    def influence(self):
        return kept_in(self.dtype, Whole())


class Whole(Influence):
    """G itself: all of it, or, where units do not see each other, the s numbers a parameter that are not zero."""

    unbiased: ClassVar[bool] = True

    def exact_for(self, cell):
        return True

    def init(self, cell):
        return _stored(cell).init(cell)

    def absorb(self, carried, cells, memories, key):
        return _stored(cells).absorb(carried, cells, memories, key)

    def contract(self, carried, cell, delta):
        return _stored(cell).contract(carried, cell, delta)

    def materialise(self, carried, cell):
        return _stored(cell).materialise(carried, cell)

    def cost(self, sizes, block):
        return (Units(UNIT) if sizes.unit_local else Dense()).cost(sizes, block)

    def split(self, cell, parts):
        return _stored(cell).split(cell, parts)


def _stored(cell: Cell) -> Influence:
    return Units(UNIT) if is_unit_local(cell) else Dense()


class Dense(Influence):
    """For every parameter the rows of the state that it can reach."""

    unbiased: ClassVar[bool] = True

    def init(self, cell):
        """For every parameter the rows of the state that it can reach; None for one that a step does not look at."""

        def zeros(a, rows):
            return None if rows is None else jnp.zeros((len(rows), *a.shape), a.dtype)

        return jax.tree.map(zeros, parameters(cell), reached(cell))

    def absorb(self, carried, cells, memories, key):
        found, cell = block(cells, memories), first_of(cells)

        def carry(a, new, rows):
            return found.carry(a, rows) + new

        return jax.tree.map(carry, carried, added(cell, found), reached(cell))

    def cost(self, sizes, block):
        m, all_, k = sizes.m, sizes.m * sizes.parameters, max(block, 1)
        pulled = m * sizes.pull if block or sizes.dense else 0
        products = pulled + (all_ * m / k if block else sizes.apply * sizes.parameters)
        return Cost(products, all_ if block else 0, all_ * (1 + 8 / k), 2.2 * all_ + 2 * k * m * m)

    def contract(self, carried, cell, delta):
        def of_leaf(a, rows):
            mine = rows_of(delta, rows, axis=1)
            return jnp.tensordot(mine, a, 2) if a.dtype == mine.dtype else through(mine, a).sum(0)

        return with_zeros(cell, jax.tree.map(of_leaf, carried, reached(cell)))

    def split(self, cell, parts):
        """G along an axis of the parameters: H G stays on a device."""
        if isinstance(cell, KroneckerCell):
            check_split(cell.weight.shape[1], parts, f"the {cell.weight.shape[1]} columns of W")
        axes = _cut(cell, parts)
        refuse_unless(
            max(jax.tree.leaves(axes)) >= 0,
            f'`Learner.init(shard="influence")`: no parameter of {type(cell).__name__} has an axis that can be cut into '
            f"{parts} equal parts: use another number of devices.",
        )
        return jax.tree.map(lambda axis: axis + 1 if axis >= 0 else -1, axes)

    def materialise(self, carried, cell):
        m = size_of(cell)
        return with_zeros(cell, jax.tree.map(lambda a, rows: all_rows(a, rows, m), carried, reached(cell)), m)


def _cut(cell: Cell, parts: int) -> Cell:
    """The axis of every parameter that G is cut along: the last one with equal parts, −1 for a parameter without one."""

    def last(a):
        return max((i for i, n in enumerate(a.shape) if n % parts == 0), default=-1)

    return jax.tree.map(lambda a, rows: None if rows is None else last(a), parameters(cell), reached(cell))
