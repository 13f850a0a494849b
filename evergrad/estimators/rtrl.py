from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad.cells.base import KroneckerCell
from evergrad.costs import Cost
from evergrad.estimators.base import Estimator, check_window
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
        return jax.tree.map(jnp.add, _apply(transition(cell, memory).matmul, carried), immediate(cell, memory))

    def fold(self, carried, cell, memories, key):
        if not isinstance(cell, KroneckerCell):
            return Estimator.fold(self, carried, cell, memories, key)
        product, suffixes = suffix_products(cell, memories)
        fresh = jnp.einsum("kp,mkq->mpq", memories.regressor, carried_forward(memories, suffixes))
        return jax.tree.map(jnp.add, _apply(lambda a: product @ a, carried), weight_gradient(cell, fresh))

    def cost(self, sizes):
        n, m, all_, k = sizes.n, sizes.m, sizes.m * sizes.parameters, max(self.window, 1)
        products = n * m * m + all_ * m / k if self.window else n * all_
        return Cost(products, all_ if self.window else 0, all_ * (1 + 8 / k), 2.2 * all_ + 2 * k * m * m)

    def gradient(self, carried, cell, delta):
        return jax.tree.map(lambda a: jnp.tensordot(delta, a, 2), carried)

    def influence(self, carried, cell):
        return carried


def _apply(matmul: Any, carried: Any) -> Any:
    return jax.tree.map(lambda a: matmul(a.reshape(len(a), -1)).reshape(a.shape), carried)
