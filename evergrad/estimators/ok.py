from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import across
from evergrad.checks import refuse_unless, whole_number
from evergrad.estimators.base import Estimator, check_split, check_window
from evergrad.linearize import initial_state, own_diagonals_times, suffix_products, weight_gradient
from evergrad.low_rank import MIXES, Mix, compress
from evergrad.streamwise import streamwise


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
        return jnp.zeros((self.rank, p), cell.weight.dtype), jnp.zeros((self.rank, q, m), cell.weight.dtype)  # Aᵢᵀ

    def step(self, carried, cell, memory, key):
        return self.fold(carried, cell, jax.tree.map(lambda a: a[None], memory), key)

    def fold(self, carried, cell, memories, key):
        u, a = carried
        product, suffixes = suffix_products(cell, memories)
        a = _times(a, product)
        vectors = jnp.concatenate([u, memories.regressor])
        u, weights = mixing(vectors, across.summed(_gram(a, memories.diagonals, suffixes)), self.rank, self.mix, key)
        return u, _combine(a, memories.diagonals, suffixes, weights)

    def gradient(self, carried, cell, delta):
        u, a = carried
        gradient = jnp.einsum("brp,brq->pq", u, jnp.einsum("bm,brqm->brq", delta, a))
        return weight_gradient(cell, across.whole(gradient, axis=1))

    def split(self, cell, parts):
        """Every Aᵢ along the gates' units: H A and combinations stay on a device, the Gram matrix is a sum over all."""
        q = cell.weight.shape[1]
        check_split(q, parts, f"the {q} columns of each A")
        return -1, 1

    def influence(self, carried, cell):
        u, a = carried
        return weight_gradient(cell, jnp.einsum("rp,rqm->mpq", u, a))


@streamwise
def _times(a: Float[Array, "r q m"], product: Float[Array, "m m"]) -> Float[Array, "r q m"]:
    """(P Aᵢ)ᵀ from Aᵢᵀ and Pᵀ."""
    return (a.reshape(-1, a.shape[-1]) @ product).reshape(a.shape)


@streamwise
def _gram(a: Float[Array, "r q m"], diagonals: Float[Array, "k s g n"], suffixes: Float[Array, "k m m"]):
    """Inner products of all Aᵢ and SₛDₛ."""
    a, fresh = a.reshape(len(a), -1), own_diagonals_times(diagonals, suffixes).reshape(len(suffixes), -1)
    across = a @ fresh.T
    return jnp.block([[a @ a.T, across], [across.T, fresh @ fresh.T]])


@streamwise
def _combine(
    a: Float[Array, "r q m"],
    diagonals: Float[Array, "k s g n"],
    suffixes: Float[Array, "k m m"],
    weights: Float[Array, "N r"],
):
    """r combinations of all Aᵢ and SₛDₛ."""
    old, fresh = a.reshape(len(a), -1), own_diagonals_times(diagonals, suffixes).reshape(len(suffixes), -1)
    return (weights[: len(a)].T @ old + weights[len(a) :].T @ fresh).reshape(a.shape)


def mixing(
    vectors: Float[Array, "N p"], gram: Float[Array, "N N"], rank: int, mix: Mix, key: jax.Array
) -> tuple[Float[Array, "r p"], Float[Array, "N r"]]:
    """Σ uᵢ ⊗ Aᵢ as r terms: random u' [r, p] and weights w [N, r] with E[Σⱼ u'ⱼ ⊗ (Σᵢ wᵢⱼ Aᵢ)] = Σ uᵢ ⊗ Aᵢ, quietest.

    Of the Aᵢ, the largest arrays there are, only the Gram matrix is needed. With (u₁ … u_N) = Q R and the singular values
    d and left vectors X of R L, for L Lᵀ the Gram matrix, the sum's singular directions are Q X on one side and the rows
    of Xᵀ R A, of length d, on the other. E[u' ⊗ A'] = Q X E[Z Zᵀ]/d Xᵀ R A = Q R A for *any* orthogonal X and positive
    d: the jitter that keeps a Cholesky factorisation of dependent Aᵢ from breaking can therefore cost a little
    optimality, but no bias. A term that is zero has a zero row in L or column in R, and takes no part.
    """
    q, r = jnp.linalg.qr(vectors.T)
    left, d, _ = jnp.linalg.svd(r @ _square_root(gram), full_matrices=False)
    left = left * _orientation(q @ left)[None]
    d = jnp.where(d > len(d) * jnp.finfo(d.dtype).eps * d[:1], d, 0)
    z = compress(d, rank, mix, key)
    share = jnp.where(d[:, None] > 0, z / jnp.where(d > 0, d, 1)[:, None], 0)
    return (q @ (left @ z)).T, r.T @ (left @ share)


def _orientation(directions: Float[Array, "p N"]) -> Float[Array, " N"]:
    """±1 for each direction, such that a draw depends on the influence and not on the signs that an SVD happens to give."""
    generic = jnp.cos(jnp.arange(1, len(directions) + 1, dtype=directions.dtype))
    return jnp.where(generic @ directions < 0, -1, 1).astype(directions.dtype)


def _square_root(gram: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """L with L Lᵀ = gram, a whisker larger, whatever rank gram has and whatever scales its terms have."""
    norms = jnp.sqrt(jnp.diagonal(gram))
    safe = jnp.where(norms > 0, norms, 1)
    cosines = gram / (safe[:, None] * safe[None])
    jitter = 1 + 8 * len(norms) * jnp.finfo(gram.dtype).eps
    return norms[:, None] * jnp.linalg.cholesky(jnp.where(jnp.eye(len(norms), dtype=bool), jitter, cosines))
