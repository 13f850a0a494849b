"""What an estimator of the Kronecker family carries: so many arrays for every linear map, and the exact influence of the rest."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def apart(carried: tuple[Array, ...], maps: tuple[Any, ...], each: int) -> tuple[list[tuple[Array, ...]], tuple]:
    """The arrays of every map, `each` of them, and those of the other parameters."""
    count = len(maps)
    return [tuple(carried[i * each : (i + 1) * each]) for i in range(count)], tuple(carried[count * each :])


def together(of_maps: list[tuple[Any, ...]], rest: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*(array for arrays in of_maps for array in arrays), *rest)


def keys_for(key: jax.Array, maps: tuple[Any, ...]) -> list[jax.Array]:
    """One a map; a cell with one map has the estimator's own."""
    return [key] if len(maps) == 1 else list(jax.random.split(key, len(maps)))


def after(array: Array, earlier: Array | None) -> Array:
    """The array, once another has been computed: XLA's CPU runtime can hang when several batched factorisations run beside
    each other, so that those of one map must wait for those of the map before.
    """
    if earlier is None:
        return array
    never = jnp.isnan(earlier.reshape(-1)[0])  # not to be known before it is there
    return jnp.where(never, jnp.nan, array)
