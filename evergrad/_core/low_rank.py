"""Optimal unbiased low-rank approximation (Theorem 2 of Benzing et al. 2019), the heart of OK and KTP.

For singular values d the cheapest unbiased way to keep only r of N directions is to keep direction j with
probability p_j = min(1, d_j/τ), where τ is such that Σp = r, and with the size max(d_j, τ) when kept: large
directions stay exactly as they are, small ones share what room is left. Any random rank-r projection whose expected
diagonal is p does as well as any other in one step; the two here are `sampled_rows` and `signed_rows`.
"""

from typing import Literal, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core.checks import refuse_unless, require_key, whole_number

Mix = Literal["signs", "sampling", "truncate"]
MIXES: tuple[Mix, ...] = ("signs", "sampling", "truncate")


def inclusion(d: Float[Array, " N"], rank: int) -> Float[Array, " N"]:
    """p_j = min(1, d_j/τ) with Σp = min(rank, number of d_j > 0), for d ≥ 0 in any order."""
    if rank >= len(d):
        return jnp.asarray(d > 0, d.dtype)
    descending = jnp.sort(d, descending=True)
    tail = jnp.cumsum(descending[::-1])[::-1]  # s₁ for every candidate m
    room = rank - jnp.arange(rank)  # r − m + 1
    room = jnp.asarray(room, d.dtype)
    first = jax.lax.argmax(room * descending[:rank] <= tail[:rank], 0, jnp.int32)  # true at the latest where room is 1
    tau = tail[first] / room[first]
    p = jnp.where(tau > 0, d / jnp.where(tau > 0, tau, 1), jnp.asarray(d > 0, d.dtype))
    almost = 1 - 4 * len(d) * jnp.finfo(d.dtype).eps  # rounding must not drop a direction that is to stay
    return jnp.where(p > almost, 1, p)


def sampled_rows(p: Float[Array, " N"], rank: int, u: Float[Array, ""]) -> Float[Array, "N r"]:
    """Random Z of distinct unit rows and zero rows, row j not zero with probability p_j: E[Z Zᵀ] = diag(p).

    Systematic sampling: one uniform number u in [0, 1), and row j is in when u + an integer falls into its stretch of the
    cumulative sum. O(N).
    """
    count = jnp.ceil(jnp.cumsum(p) - u)
    chosen = jnp.diff(count, prepend=0) > 0
    slot = jnp.asarray(count, jnp.int32) - 1
    return jnp.asarray(chosen[:, None] & (slot[:, None] == jnp.arange(rank, dtype=jnp.int32)[None]), p.dtype)


def uniform(key: jax.Array, dtype: jnp.dtype) -> Float[Array, ""]:
    """In [0, 1), with all the bits that float64 has: what is kept with a probability of 10⁻¹² is kept so often."""
    high, low = jax.random.bits(key, (2,), jnp.uint32)
    bits = jnp.finfo(dtype).nmant
    if bits < 32:
        return jnp.asarray(high >> (32 - bits), dtype) / 2**bits
    return (jnp.asarray(high, dtype) + jnp.asarray(low >> (64 - bits), dtype) / 2 ** (bits - 32)) / 2**32


def _signs(key: jax.Array, count: int, dtype: jnp.dtype) -> Float[Array, " N"]:
    return 1 - 2 * jnp.asarray(jax.random.bits(key, (count,), jnp.uint32) >> 31, dtype)


def signed_rows(p: Float[Array, " N"], rank: int, key: jax.Array) -> Float[Array, "N r"]:
    """Random Z with Zᵀ Z a projection, squared row norms p and E[Z Zᵀ] = diag(p); Σp is a whole number ≤ rank.

    Starts from unit rows and zero rows and rotates one pair at a time: the active row meets a zero row when it is
    longer than row j should be, and the next unit row when it is shorter; one of the two becomes row j, the other
    stays active. Every row then gets a random sign, which makes all correlations vanish in the mean. The longest rows
    go first, so that rounding in Σp can only cost the shortest. O(N r).
    """
    order = jnp.argsort(p, descending=True)

    def rotate(carry, target):
        active, length, used = carry
        shorten = length >= target
        fresh = jax.nn.one_hot(used, rank, dtype=p.dtype)
        cos2_shorten = jnp.where(length > 0, target / jnp.where(length > 0, length, 1), 1)
        cos2_extend = (1 - target) / jnp.where(length < 1, 1 - length, 1)
        cos2 = jnp.clip(jnp.where(shorten, cos2_shorten, cos2_extend), 0, 1)
        cos, sin = jnp.sqrt(cos2), jnp.sqrt(1 - cos2)
        partner = jnp.where(shorten, jnp.zeros_like(fresh), fresh)
        row, rest = cos * active + sin * partner, cos * partner - sin * active
        left = jnp.clip(jnp.where(shorten, length - target, length + 1 - target), 0, 1)
        return (rest, left, used + jnp.where(shorten, 0, 1)), row

    first = jax.nn.one_hot(0, rank, dtype=p.dtype)
    _, rows = jax.lax.scan(rotate, (first, jnp.ones((), p.dtype), jnp.ones((), jnp.int32)), p[order])
    rows = jnp.zeros_like(rows).at[order].set(rows)
    return rows * _signs(key, len(p), p.dtype)[:, None]


def compress(d: Float[Array, " N"], rank: int, mix: Mix, key: jax.Array) -> Float[Array, "N r"]:
    """Random Z with r columns and E[Z Zᵀ] = diag(d) at minimum variance; "truncate": Z Zᵀ = diag(the r largest d)."""
    if mix == "truncate":
        order = jnp.argsort(jnp.argsort(d, descending=True))
        p = jnp.asarray((order < rank) & (d > 0), d.dtype)
    else:
        p = inclusion(d, rank)
    rows = signed_rows(p, rank, key) if mix == "signs" else sampled_rows(p, rank, uniform(key, p.dtype))
    return _sized(d, p, rows)


def sampled(d: Float[Array, " N"], rank: int, u: Float[Array, ""]) -> Float[Array, "N r"]:
    """`compress` by sampling, with a given number in [0, 1)."""
    p = inclusion(d, rank)
    return _sized(d, p, sampled_rows(p, rank, u))


def _sized(d, p, rows):
    kept = p > 0
    return jnp.sqrt(jnp.where(kept, d / jnp.where(kept, p, 1), 0))[:, None] * rows


def optimal_low_rank(
    matrix: Float[Array, "m n"], rank: int, *, key: jax.Array | None = None, method: str = "signs"
) -> tuple[Float[Array, "m r"], Float[Array, "n r"]]:
    """Random `left` [m, rank] and `right` [n, rank] with E[left @ right.T] == matrix, at the minimum variance.

    `method` is "signs" (the paper's construction) or "sampling" (systematic sampling of singular directions); both
    reach `optimal_variance`. A matrix of rank at most `rank` comes back exactly. Cost: one SVD.

    Examples:
        >>> matrix = jax.random.normal(key, (6, 5))
        >>> left, right = eg.optimal_low_rank(matrix, 2, key=key)
        >>> left.shape, right.shape
        ((6, 2), (5, 2))
    """
    refuse_unless(
        method in ("signs", "sampling"), f'optimal_low_rank(method="{method}"): choose "signs" or "sampling".'
    )
    key = require_key(key, "optimal_low_rank(matrix, rank, key=...)")
    u, d, vt = _svd(matrix, rank, "optimal_low_rank")
    z = compress(d, rank, cast(Mix, method), key)
    return u @ z, vt.T @ z


def optimal_variance(matrix: Float[Array, "m n"], rank: int) -> Float[Array, ""]:
    """E‖C' − C‖² of the best unbiased C' of that rank: s₁²/k − s₂ in the paper's letters.

    Examples:
        >>> f"{float(eg.optimal_variance(jnp.diag(jnp.array([3.0, 2.0, 2.0])), 2)):.3f}"
        '7.500'
    """
    _, d, _ = _svd(matrix, rank, "optimal_variance")
    p = inclusion(d, rank)
    return jnp.sum(jnp.where(p > 0, d**2 * (1 / jnp.where(p > 0, p, 1) - 1), 0))


def _svd(matrix, rank, name):
    whole_number(rank, 1, f"{name}(matrix, rank={rank})", "rank", "the number of terms to keep")
    matrix = jnp.asarray(matrix)
    matrix = matrix if jnp.issubdtype(matrix.dtype, jnp.inexact) else matrix * 1.0
    refuse_unless(
        matrix.ndim == 2, f"{name}: matrix has shape {list(matrix.shape)}: pass one m x n matrix (jax.vmap for many)."
    )
    u, d, vt = jnp.linalg.svd(matrix, full_matrices=False)
    negligible = max(matrix.shape) * jnp.finfo(d.dtype).eps * d[:1]
    return u, jnp.where(d > negligible, d, 0), vt
