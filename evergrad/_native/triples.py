"""A step of KTP, of all streams, in one call."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from evergrad import _native as native
from evergrad._cells.base import KroneckerCell
from evergrad._core.linearize import KroneckerMemory
from evergrad._native.products import by_kernel

MOST_STATES, MOST_GATES = 2, 16  # of a unit, that the kernel knows

Triples = tuple[Float[Array, "B r p"], Float[Array, "B r m"], Float[Array, "B r q"]]


def taken_or(
    pure: Callable[..., Triples],
    triples: Triples,
    cell: KroneckerCell,
    memory: KroneckerMemory,
    signs: Float[Array, "B r 2"],
    uniform: Float[Array, " B"],
) -> Triples:
    """The triples after a step: by a kernel where that is faster, else pure(triples, cell, memory, signs, uniform), which must
    do the same.
    """
    (rank, m), (states, gates) = triples[1].shape[1:], memory.diagonals.shape[1:3]
    one = jax.ShapeDtypeStruct((rank, m, gates * m // states), triples[0].dtype)
    if states > MOST_STATES or gates > MOST_GATES or not native.worth(one):
        return pure(triples, cell, memory, signs, uniform)

    def of_arrays(a, b, c, vectors, diagonals, direct, alive, weight, signs, uniform):
        known: Any = eqx.tree_at(lambda c: c.weight, cell, weight)
        return pure((a, b, c), known, KroneckerMemory(vectors, diagonals, direct, alive), signs, uniform)

    like = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in triples)
    steps = memory.regressor, memory.diagonals, memory.direct, memory.alive
    given = *triples, *steps, cell.effective_weight, signs, uniform
    in_place = {i: i for i in range(3)}
    return by_kernel("triples", of_arrays, like, *given, in_place=in_place, first=np.int64(cell.inputs))
