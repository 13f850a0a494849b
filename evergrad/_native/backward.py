"""dL/dh carried back through all remembered steps in one call."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evergrad import _native as native
from evergrad._cells.base import KroneckerCell
from evergrad._core.linearize import KroneckerMemory
from evergrad._native.products import by_kernel

MOST_STATES = 16  # of a unit, that the kernel has room for


def back_or(
    pure: Callable[..., tuple[Array, Array]],
    cell: KroneckerCell,
    track: Any,
    delta: Float[Array, "B m"],
    reach: Int[Array, ""],
    waited: int,
) -> tuple[Float[Array, "B m"], Float[Array, "slots B gn"]]:
    """What is left of δ behind the `reach` newest steps of a track, and δ D of every slot: by a kernel where that is faster,
    else pure(cell, track, delta, reach, waited), which must do the same.
    """
    steps, q = track.memories, cell.weight.shape[1]
    slots, streams, states, _, n = steps.diagonals.shape
    if states > MOST_STATES or not native.worth(jax.ShapeDtypeStruct((slots, n, q), delta.dtype)):
        return pure(cell, track, delta, reach, waited)
    weights = cell.effective_weight[None] if track.weights is None else track.weights.weight
    noted = jnp.zeros((0, *delta.shape), delta.dtype) if track.deltas is None else track.deltas

    def of_arrays(delta, diagonals, direct, alive, noted, weights, newest, reach):
        memories = KroneckerMemory(steps.regressor, diagonals, direct, alive)
        known, here = cell, eqx.tree_at(lambda t: (t.memories, t.count), track, (memories, newest + 1))
        if track.deltas is not None:
            here = eqx.tree_at(lambda t: t.deltas, here, noted)
        if track.weights is None:
            known = eqx.tree_at(lambda c: c.weight, cell, weights[0])
        else:
            here = eqx.tree_at(lambda t: t.weights.weight, here, weights)
        return pure(known, here, delta, reach, waited)

    results = jax.ShapeDtypeStruct(delta.shape, delta.dtype), jax.ShapeDtypeStruct((slots, streams, q), delta.dtype)
    given = delta, steps.diagonals, steps.direct, steps.alive, noted, weights, track.count - 1, reach
    return by_kernel("back", of_arrays, results, *given, first=np.int64(cell.inputs), waited=np.int64(waited))
