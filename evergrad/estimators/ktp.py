from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad.checks import refuse_unless, whole_number
from evergrad.costs import Cost
from evergrad.estimators.base import Estimator, check_window
from evergrad.estimators.diagonal import largest_rank, low_rank_diagonals
from evergrad.estimators.scaling import mixed
from evergrad.linearize import initial_state, transition, weight_gradient


class KTP(Estimator):
    """Kronecker triple product: G ≈ Σ_{i≤r} aᵢ ⊗ bᵢ ⊗ cᵢ over ĥ, the state and the gates.

        D ≈ Σ dᵢ ⊗ d̃ᵢ (optimal, unbiased);  aᵢ' = aᵢ + s₁ĥ,  bᵢ' = H bᵢ + s₂dᵢ,  cᵢ' = cᵢ + s₁s₂d̃ᵢ

    with random signs s₁, s₂ of each i, and every product's norm first shared out evenly among its three factors.
    Memory r·n, time r·n², as TBPTT. Reference: Benzing et al. 2019.
    """

    rank: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def __init__(self, *, rank: int = 16, window: int = 0):
        call = f"KTP(rank={rank}, window={window})"
        whole_number(rank, 1, call, "rank", "the number of triple products that are kept")
        check_window(window, call)
        self.rank, self.window = rank, window

    def check_kronecker(self, cell):
        available = largest_rank(cell)
        refuse_unless(
            self.rank <= available,
            f"`KTP(rank={self.rank})`: D of {type(cell).__name__}(units={cell.units}) has rank {available} at most, so "
            f"further terms would stay zero: use a rank up to {available}.",
        )

    def init(self, cell):
        p, q = cell.weight.shape
        sizes = (p, initial_state(cell).size, q)
        return tuple(jnp.zeros((self.rank, size), cell.weight.dtype) for size in sizes)

    def step(self, carried, cell, memory, key):
        a, b, c = carried
        rank_key, sign_key = jax.random.split(key)
        d, d_gates = low_rank_diagonals(memory.diagonals, self.rank, rank_key)
        signs = jax.random.rademacher(sign_key, (self.rank, 2), b.dtype)
        b = jax.vmap(transition(cell, memory).matvec)(b)
        regressors = jnp.broadcast_to(memory.regressor[None], a.shape)
        signs = (signs[:, 0], signs[:, 1], signs[:, 0] * signs[:, 1])
        return jax.vmap(mixed)((a, b, c), (regressors, d, d_gates), signs)

    def cost(self, sizes):
        n, p, q, numbers = sizes.n, sizes.p, sizes.q, self.rank * (sizes.p + sizes.m + sizes.q)
        return Cost(0, self.rank * (n * q + p * q), 8 * numbers, numbers, 20)

    def gradient(self, carried, cell, delta):
        a, b, c = carried
        return weight_gradient(cell, jnp.einsum("brp,brq->pq", a, jnp.einsum("bm,brm->br", delta, b)[..., None] * c))

    def influence(self, carried, cell):
        a, b, c = carried
        return weight_gradient(cell, jnp.einsum("rp,rm,rq->mpq", a, b, c))
