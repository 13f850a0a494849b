"""Unbiased low-rank approximation of B = ∂h'/∂z: optimal where it is the diagonal D of a Kronecker cell, whose singular
vectors are known without looking for them, and by random projections where it is dense and never built."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.blocks import pulled
from evergrad._core.linearize import KroneckerMemory, Memory
from evergrad._core.low_rank import sampled, uniform
from evergrad._core.maps import maps_of


def largest_rank(cell: Cell) -> int:
    """The largest rank that B can have, of any map."""
    if isinstance(cell, KroneckerCell):
        return cell.units * min(cell.states, len(cell.gates))
    return max(min(len(each.rows), each.q) for each in maps_of(cell).maps)


def low_rank_columns(memory: Memory, columns: Float[Array, "m q"], rank: int, key: jax.Array) -> Float[Array, "m q"]:
    """B of one use of a map, approximated at a rank; right in the mean."""
    if isinstance(memory, KroneckerMemory):
        left, right = low_rank_diagonals(memory.diagonals, rank, key)
        return left.T @ right
    signs = jax.random.rademacher(key, (rank, len(columns)), columns.dtype)
    return signs.T @ (signs @ columns) / rank


def directions(
    cell: Cell, memory: Memory, rank: int, keys: list[jax.Array]
) -> list[list[tuple[Float[Array, " p"], Float[Array, "r m"], Float[Array, "r q"]]]]:
    """For every use of every map its vector a, and random d and d̃ with E[Σ dᵢ ⊗ d̃ᵢ] = B."""
    if isinstance(memory, KroneckerMemory):
        return [[(memory.regressor, *low_rank_diagonals(memory.diagonals, rank, keys[0]))]]
    return [_projected(cell, memory, each, rank, key) for each, key in zip(maps_of(cell).maps, keys, strict=True)]


def _projected(cell, memory, each, rank, key):
    """E[ν νᵀ] = I: random signs on the rows that the map can reach, pulled back to its z."""
    found = []
    for i, use in enumerate(each.uses):
        signs = jax.random.rademacher(jax.random.fold_in(key, i), (rank, len(each.rows)), memory.state.dtype)
        whole = jnp.zeros((rank, memory.state.size), signs.dtype).at[:, each.rows].set(signs)
        _, _, columns, vectors = pulled(cell, memory, whole)
        found.append((vectors[use], signs, columns[use] / rank))
    return found


def low_rank_diagonals(
    diagonals: Float[Array, "s g n"], rank: int, key: jax.Array
) -> tuple[Float[Array, "r m"], Float[Array, "r gn"]]:
    """Random d [r, m] and d̃ [r, gn] with E[Σ dᵢ ⊗ d̃ᵢ] = D, at minimum variance.

    D only links the states and gates of one unit, so its singular values are those of n blocks of s x g.
    """
    return sampled_diagonals(diagonals, rank, uniform(key, diagonals.dtype))


def sampled_diagonals(
    diagonals: Float[Array, "s g n"], rank: int, u: Float[Array, ""]
) -> tuple[Float[Array, "r m"], Float[Array, "r gn"]]:
    """The same with a given number in [0, 1), which decides all."""
    left, values, right = unit_svd(diagonals)
    z = sampled(values.reshape(-1), rank, u).reshape(*values.shape, rank)
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
