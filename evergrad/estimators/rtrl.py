from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad import across
from evergrad.cells.base import Cell, KroneckerCell
from evergrad.checks import refuse_unless
from evergrad.costs import Cost
from evergrad.estimators.base import Estimator, check_split, check_window
from evergrad.linearize import carried_forward, immediate, initial_state, suffix_products, transition, weight_gradient


class RTRL(Estimator):
    """Real-time recurrent learning: G itself, so the gradient is exact. Works on any differentiable cell.

    Memory n³ a stream; time n⁴ a step, or n³ with `window=n` (Schmidhuber's hybrid): a window of k steps is folded
    with k products of n³ and one of n⁴. Reference: Williams & Zipser 1989; Schmidhuber 1992.
    """

    window: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True

    def __init__(self, *, window: int = 0):
        check_window(window, f"RTRL(window={window})")
        self.window = window

    def init(self, cell):
        m = initial_state(cell).size
        return jax.tree.map(lambda a: jnp.zeros((m, *a.shape), a.dtype), eqx.filter(cell, eqx.is_inexact_array))

    def step(self, carried, cell, memory, key):
        fresh = _own(cell, immediate(cell, memory))
        return jax.tree.map(jnp.add, _apply(transition(cell, memory).matmul, carried), fresh)

    def fold(self, carried, cells, memories, key):
        if not isinstance(cells, KroneckerCell):
            return Estimator.fold(self, carried, cells, memories, key)
        product, suffixes = suffix_products(cells, memories)
        fresh = jnp.einsum("kp,mkq->mpq", memories.regressor, carried_forward(memories, suffixes))
        fresh = weight_gradient(cells, fresh, across.own(cells.mask, axis=1))
        return jax.tree.map(jnp.add, _apply(lambda a: product @ a, carried), fresh)

    def cost(self, sizes):
        n, m, all_, k = sizes.n, sizes.m, sizes.m * sizes.parameters, max(self.window, 1)
        products = n * m * m + all_ * m / k if self.window else n * all_
        return Cost(products, all_ if self.window else 0, all_ * (1 + 8 / k), 2.2 * all_ + 2 * k * m * m)

    def gradient(self, carried, cell, delta):
        return _whole(cell, jax.tree.map(lambda a: jnp.tensordot(delta, a, 2), carried))

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

    def influence(self, carried, cell):
        return carried


def _apply(matmul: Any, carried: Any) -> Any:
    return jax.tree.map(lambda a: matmul(a.reshape(len(a), -1)).reshape(a.shape), carried)


def _cut(cell: Cell, parts: int) -> Cell:
    """The axis of every parameter that G is cut along: the last one with equal parts, −1 for a parameter without one."""
    last = lambda a: max((i for i, n in enumerate(a.shape) if n % parts == 0), default=-1)  # noqa: E731
    return jax.tree.map(last, eqx.filter(cell, eqx.is_inexact_array))


def _own(cell: Cell, influence: Cell) -> Cell:
    parts = across.parts(across.INFLUENCE)
    if parts == 1:
        return influence
    own = lambda a, axis: a if axis < 0 else across.own(a, axis + 1)  # noqa: E731
    return jax.tree.map(own, influence, _cut(cell, parts))


def _whole(cell: Cell, gradient: Cell) -> Cell:
    parts = across.parts(across.INFLUENCE)
    if parts == 1:
        return gradient
    return jax.tree.map(lambda a, axis: a if axis < 0 else across.whole(a, axis), gradient, _cut(cell, parts))
