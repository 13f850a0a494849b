"""Sums of Kronecker products by kernels: groups of streams, one for each thread, whose arrays are still in the cache when they are mixed."""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import _native as native
from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.linearize import KroneckerMemory, Memory, recurrent_weights
from evergrad._core.machine import cores
from evergrad._core.streamwise import group

LITTLE = 1 << 17  # numbers of a stream below which XLA's operations cost more than threads without work

Mixing = Callable[[Array, Array, Array], tuple[Array, Array]]
Carried = tuple[Float[Array, "B r p"], Float[Array, "B m r q"]]


def busy(streams: int) -> bool:
    """Whether most threads would have work."""
    return 2 * group(streams) > cores()


def fold_or(
    pure: Callable[..., tuple[Array, ...]],
    mixing: Mixing,
    carried: tuple[Array, ...],
    cells: Cell,
    memories: Memory,
    keys: Array,
) -> tuple[Array, ...]:
    """`fold` where that is faster, else pure(carried, memories, keys), which must do the same."""
    if not isinstance(memories, KroneckerMemory) or not native.worth(carried[1][0]):
        return pure(carried, memories, keys)
    if not busy(len(keys)) and carried[1][0].size > LITTLE:
        return pure(carried, memories, keys)

    def kernel(carried, memories, keys):
        return fold(mixing, carried, cast(KroneckerCell, cells), memories, keys)

    return native.either(kernel, pure, carried, memories, keys)


def fold(mixing: Mixing, carried: Carried, cells: KroneckerCell, memories: KroneckerMemory, keys: Array) -> Carried:
    """Σ uᵢ ⊗ Aᵢ of all streams carried forward over the remembered steps, and with what they add made r terms again.

    `mixing(vectors, gram, key)` chooses the new terms of one stream: u' and the weights of all old and added Aᵢ in the new.
    The Gram matrix is in float64, packed.
    """
    size = group(len(keys))
    weights = jnp.transpose(recurrent_weights(cells), (0, 2, 3, 1))

    def some(i, carried):
        u, a = carried
        first = i * size

        def pick(tree):
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, size), tree)

        memory = pick(memories)
        a, fresh, gram = _carry(a, first, memory, weights)
        vectors = jnp.concatenate([pick(u), memory.regressor], axis=1)
        chosen, mix = jax.vmap(mixing)(vectors, gram, pick(keys))
        a = native.call("combine", _like(a), a, first, fresh, mix, in_place=True)
        return jax.lax.dynamic_update_slice_in_dim(u, chosen, first, 0), a

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(len(keys) // size), some, carried)


def _carry(a, first, memory, weights):
    _, m, r, q = a.shape
    size, k = memory.alive.shape
    steps = memory.diagonals, memory.direct, memory.alive
    fresh = jax.ShapeDtypeStruct((size, m, k, q), a.dtype)
    gram = jax.ShapeDtypeStruct((size, r + k, r + k, 2), jnp.uint32)
    return native.call("carry", (_like(a), fresh, gram), a, first, *steps, weights, in_place=True)


def _like(a):
    return jax.ShapeDtypeStruct(a.shape, a.dtype)
