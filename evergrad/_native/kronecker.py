"""Sums of Kronecker products by kernels, every thread a stream at a time."""

import math
from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad import _native as native
from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.linearize import KroneckerMemory, Memory, recurrent_weights
from evergrad._core.low_rank import Mix
from evergrad._core.machine import cores
from evergrad._core.rounding import noise_of

LITTLE = 1 << 17  # numbers of a stream below which XLA's operations cost more than threads without work

Mixing = Callable[[Array, Array, Array], tuple[Array, Array]]
Carried = tuple[Float[Array, "B r p"], Float[Array, "B m r q"]]
Fold = Callable[[Carried, KroneckerCell, KroneckerMemory, Array], Carried]

_NARROWED = {"float32": (jnp.bfloat16,)}  # what an influence can be kept in besides, with weights in this
_MIXES: dict[Mix, int] = {"sampling": 0, "signs": 1, "truncate": 2}  # as mixing.h counts them


def busy(streams: int) -> bool:
    """Whether most threads would have work."""
    return 2 * streams > cores()


def fold_or(
    pure: Callable[..., tuple[Array, ...]],
    fold: Fold,
    carried: tuple[Array, ...],
    cells: Cell,
    memories: Memory,
    keys: Array,
) -> tuple[Array, ...]:
    """fold(carried, cells, memories, keys) where that is faster, else pure(carried, memories, keys), which must do the same."""
    if not isinstance(memories, KroneckerMemory) or not _worth(carried, len(keys)):
        return pure(carried, memories, keys)

    def kernel(carried, memories, keys):
        return fold(carried, cast(KroneckerCell, cells), memories, keys)

    return native.either(kernel, pure, carried, memories, keys)


def _worth(carried: tuple[Array, ...], streams: int) -> bool:
    """Whether the terms are large enough, most threads would have work or none is needed, and a kernel knows what they are kept in."""
    u, a = carried
    one = jax.ShapeDtypeStruct(a.shape[1:], u.dtype)
    known = a.dtype in (u.dtype, *_NARROWED.get(u.dtype.name, ()))
    return known and (busy(streams) or math.prod(one.shape) <= LITTLE) and native.worth(one)


def fold(mix: Mix, carried: Carried, cells: KroneckerCell, memories: KroneckerMemory, keys: Array) -> Carried:
    """Σ uᵢ ⊗ Aᵢ of all streams carried forward over the remembered steps, and with what they add made r terms again: OK."""
    return _folded(mix, carried, cells, memories, keys, jnp.zeros((len(keys), 2), jnp.uint32))


def fold_rounded(
    mix: Mix, carried: Carried, cells: KroneckerCell, memories: KroneckerMemory, keys: Array, rounding_keys: Array
) -> Carried:
    """`fold` with the Aᵢ in bfloat16, rounded at random by the numbers that `rounded_at_random` draws from a key.

    As right in the mean as with all digits, and not the same number for number: the factors of the products are rounded at random
    too, and inner products are summed in float32.
    """
    return _folded(mix, carried, cells, memories, keys, jax.vmap(noise_of)(rounding_keys))


def _folded(mix, carried, cells, memories, keys, rounding):
    u, a = carried
    bits = random_bits(mix, u.shape[1] + memories.alive.shape[1], keys)
    steps = memories.regressor, memories.diagonals, memories.direct, memories.alive
    given = (a, u, *steps, _turned(cells), bits, rounding)
    a, u = native.call("fold", (_like(a), _like(u)), *given, in_place=True, mix=_MIXES[mix])
    return u, a


def random_bits(mix: Mix, terms: int, keys: Array) -> UInt32[Array, "B N"]:
    """What `low_rank.compress` draws for so many terms: a uniform number, or a sign for each."""
    return jax.vmap(lambda key: jax.random.bits(key, (terms if mix == "signs" else 2,), jnp.uint32))(keys)


def fold_by(mixing: Mixing, carried: Carried, cells: KroneckerCell, memories: KroneckerMemory, keys: Array) -> Carried:
    """`fold` over one step, with the new terms of a stream chosen by `mixing(vectors, gram, key)`: u' and the weights of all old
    and added Aᵢ in the new. The Gram matrix is in float64, packed.
    """
    u, a = carried
    steps, terms = (memories.diagonals, memories.direct, memories.alive), u.shape[1] + 1
    gram = jax.ShapeDtypeStruct((len(u), terms, terms, 2), jnp.uint32)
    a, found = native.call("carry", (_like(a), gram), a, *steps, _turned(cells), in_place=True)
    u, mix = jax.vmap(mixing)(jnp.concatenate([u, memories.regressor], axis=1), found, keys)
    return u, native.call("combine", _like(a), a, memories.diagonals, mix, in_place=True)


def _turned(cells):
    """Wₕ of each step, gate by gate, to unit first."""
    return jnp.transpose(recurrent_weights(cells), (0, 2, 3, 1))


def _like(a):
    return jax.ShapeDtypeStruct(a.shape, a.dtype)
