"""Optimal unbiased low-rank approximation of D, whose singular vectors are known without looking for them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.cells.base import KroneckerCell
from evergrad.low_rank import compress


def largest_rank(cell: KroneckerCell) -> int:
    """The largest rank that D can have."""
    return cell.units * min(cell.states, len(cell.gates))


def low_rank_diagonals(
    diagonals: Float[Array, "s g n"], rank: int, key: jax.Array
) -> tuple[Float[Array, "r m"], Float[Array, "r gn"]]:
    """Random d [r, m] and d̃ [r, gn] with E[Σ dᵢ ⊗ d̃ᵢ] = D, at minimum variance.

    D only links the states and gates of one unit, so its singular values are those of n blocks of s x g.
    """
    left, values, right = unit_svd(diagonals)
    z = compress(values.reshape(-1), rank, "sampling", key).reshape(*values.shape, rank)
    return (
        jnp.einsum("inr,ain->ran", z, left).reshape(rank, -1),
        jnp.einsum("inr,ign->rgn", z, right).reshape(rank, -1),
    )


def unit_svd(
    diagonals: Float[Array, "s g n"],
) -> tuple[Float[Array, "s i n"], Float[Array, "i n"], Float[Array, "i g n"]]:
    """The singular value decomposition of every unit's s x g block of D."""
    s, _, _ = diagonals.shape
    if s == 1:
        values = jnp.linalg.norm(diagonals, axis=1)
        safe = jnp.where(values > 0, values, 1)
        return jnp.ones_like(diagonals[:, :1]), values, diagonals / safe[:, None]
    if s == 2:
        return _two_by_many(diagonals)
    left, values, right = jnp.linalg.svd(jnp.moveaxis(diagonals, -1, 0), full_matrices=False)
    return jnp.moveaxis(left, 0, -1), values.T, jnp.moveaxis(right, 0, -1)


def _two_by_many(diagonals):
    """The same for s = 2, by the angle that makes the two rows of every block orthogonal; LAPACK would be called n times."""
    first, second = diagonals
    angle = 0.5 * jnp.arctan2(2 * (first * second).sum(0), (first**2).sum(0) - (second**2).sum(0))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    left = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
    rows = jnp.stack([cos[None] * first + sin[None] * second, cos[None] * second - sin[None] * first])
    values = jnp.linalg.norm(rows, axis=1)
    safe = jnp.where(values > 0, values, 1)
    return left, values, rows / safe[:, None]
