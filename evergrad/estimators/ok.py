from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.checks import refuse_unless, whole_number
from evergrad.estimators.base import Estimator, check_window
from evergrad.linearize import dense_diagonals, initial_state, suffix_products, transition, weight_gradient
from evergrad.low_rank import MIXES, Mix, compress


class OK(Estimator):
    """Optimal Kronecker-sum approximation: G ≈ Σ_{i≤r} uᵢ ⊗ Aᵢ, reduced from more terms at minimum variance.

    window=0, the paper's:  Σ uᵢ ⊗ HAᵢ + ĥ ⊗ D  (r + 1 terms → r at every step)
    window=k, ours:         Σ uᵢ ⊗ PAᵢ + Σₛ ĥₛ ⊗ SₛDₛ  (r + k terms → r every k steps, no noisier)

    mix: "sampling" keeps r of the singular directions, "signs" (the paper's) mixes them, "truncate" keeps the r
    largest, which is biased (B-OK). Memory r·n²; time r·n³ a step, with a window (g·r/k + 1)·n³.
    Reference: Benzing et al. 2019.
    """

    rank: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    mix: Mix = eqx.field(static=True)
    needs_kronecker: ClassVar[bool] = True

    def __init__(self, *, rank: int = 8, window: int = 16, mix: Mix = "sampling"):
        call = f'OK(rank={rank}, window={window}, mix="{mix}")'
        whole_number(rank, 1, call, "rank", "the number of Kronecker products that are kept")
        check_window(window, call)
        refuse_unless(mix in MIXES, f'`{call}`: mix "{mix}" is unknown: choose one of {", ".join(MIXES)}.')
        self.rank, self.window, self.mix = rank, window, mix

    @property
    def unbiased(self) -> bool:
        return self.mix != "truncate"

    def check_kronecker(self, cell):
        p = len(cell.weight)
        refuse_unless(
            self.rank < p,
            f"`OK(rank={self.rank})` keeps at least as many terms as the influence has ({cell.units} units, {p} "
            f"regressors), so nothing is approximated: use `RTRL()` or a rank below {p}.",
        )

    def init(self, cell):
        m, (p, q) = initial_state(cell).size, cell.weight.shape
        dtype = cell.weight.dtype
        return jnp.zeros((self.rank, p), dtype), jnp.zeros((m, self.rank, q), dtype)

    def step(self, carried, cell, memory, key):
        u, a = carried
        product = transition(cell, memory).matmul(a.reshape(len(a), -1)).reshape(a.shape)
        fresh = dense_diagonals(memory.diagonals)[None]
        return self._squeeze(u, product, memory.regressor[None], fresh, key)

    def fold(self, carried, cell, memories, key):
        u, a = carried
        product, fresh = suffix_products(cell, memories)
        return self._squeeze(u, jnp.tensordot(product, a, 1), memories.regressor, fresh, key)

    def _squeeze(self, u, a, regressors, fresh, key):
        """Σ uᵢ ⊗ Aᵢ + Σ ĥₛ ⊗ Bₛ as r terms."""
        everything = jnp.concatenate([a, jnp.moveaxis(fresh, 0, 1)], axis=1)
        vectors = jnp.concatenate([u, regressors])
        gram = jnp.einsum("miq,mjq->ij", everything, everything)
        left, right = mixing(vectors @ vectors.T, gram, self.rank, self.mix, key)
        return left.T @ vectors, jnp.einsum("ir,miq->mrq", right, everything)

    def gradient(self, carried, cell, delta):
        u, a = carried
        return weight_gradient(cell, jnp.einsum("brp,brq->pq", u, jnp.einsum("bm,bmrq->brq", delta, a)))

    def influence(self, carried, cell):
        u, a = carried
        return weight_gradient(cell, jnp.einsum("rp,mrq->mpq", u, a))


def mixing(
    gram_u: Float[Array, "N N"], gram_a: Float[Array, "N N"], rank: int, mix: Mix, key: jax.Array
) -> tuple[Float[Array, "N r"], Float[Array, "N r"]]:
    """Random left and right [N, r] with E[left @ right.T] = I, from the Gram matrices of the uᵢ and of the Aᵢ.

    Σⱼ (Σᵢ leftᵢⱼ uᵢ) ⊗ (Σᵢ rightᵢⱼ Aᵢ) is then an unbiased r-term approximation of Σ uᵢ ⊗ Aᵢ, of minimum variance.
    With L Lᵀ the Gram matrix of unit-norm u, and Lᵀ (Gram of the A that take over the norms) L = X d² Xᵀ, the sum has
    the singular directions Û L⁻ᵀ X, the singular values d, and A-sides (A L X). L⁻ᵀ X Xᵀ Lᵀ = I for *any* invertible
    L and orthogonal X, so neither the jitter that keeps L invertible nor rounding in X costs unbiasedness; a d_j below
    what the Gram matrices resolve is raised to that level, where its direction is only kept more often than need be.
    Terms that are zero take no part.
    """
    norms = jnp.sqrt(jnp.diagonal(gram_u))
    live = (norms > 0) & (jnp.diagonal(gram_a) > 0)
    scale = jnp.where(live, norms, 1)
    both = live[:, None] & live[None]
    eps = jnp.finfo(gram_u.dtype).eps
    cosines = jnp.where(both, gram_u / (scale[:, None] * scale[None]), 0)
    cosines = jnp.where(jnp.eye(len(norms), dtype=bool), 1 + 8 * len(norms) * eps, cosines)
    lower = jnp.linalg.cholesky(cosines)
    weighted = jnp.where(both, gram_a * (scale[:, None] * scale[None]), 0)
    # a zero term is set apart by a negative eigenvalue, so that no eigenvector mixes it with a living one
    apart = jnp.where(live, 0, -1 - jnp.trace(weighted))
    squares, x = jnp.linalg.eigh(lower.T @ weighted @ lower + jnp.diag(apart))
    d = jnp.where(squares < 0.5 * apart.min(), 0, jnp.sqrt(jnp.maximum(squares, eps * squares[-1:])))
    z = compress(d, rank, mix, key)
    left = jax.scipy.linalg.solve_triangular(lower, x @ z, trans="T", lower=True)
    right = lower @ (x @ jnp.where(d[:, None] > 0, z / jnp.where(d > 0, d, 1)[:, None], 0))
    return left / scale[:, None], right * scale[:, None]
