"""All that crosses devices inside the compiled loop; on one device every function here does nothing.

Two things can be spread over a mesh, each along an axis of its own name: the lanes (streams, and with them hidden
states, influence and window), or the influence of every lane. The loop is then the body of a `jax.shard_map`, sees
its own part of either, and asks these functions for the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

LANES, INFLUENCE = "lanes", "influence"


def parts(axis: str) -> int:
    """Over how many devices this is spread."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[axis] if axis in mesh.manual_axes else 1


def all_streams(here: int) -> int:
    """How many streams there are on all devices, when there are so many here."""
    return here * parts(LANES)


def total(tree: Any) -> Any:
    """The sum over the devices' lanes, all arrays as one all-reduce."""
    if parts(LANES) == 1:
        return tree
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, LANES))


def mean(a: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean over all streams."""
    return total(a.mean()) / parts(LANES) if parts(LANES) > 1 else a.mean()


def anywhere(a: Bool[Array, " B"]) -> Bool[Array, ""]:
    """Whether it is so for any stream."""
    return total(jnp.asarray(jnp.any(a), jnp.int32)) > 0 if parts(LANES) > 1 else jnp.any(a)


def all_lanes(a: Array, axis: int) -> Array:
    """The streams of all devices, along an axis."""
    return jax.lax.all_gather(a, LANES, axis=axis, tiled=True) if parts(LANES) > 1 else a


def own(a: Array | np.ndarray, axis: int) -> Any:
    """This device's share of an axis along which the influence is split."""
    if parts(INFLUENCE) == 1:
        return a
    share = a.shape[axis] // parts(INFLUENCE)
    return jax.lax.dynamic_slice_in_dim(a, jax.lax.axis_index(INFLUENCE) * share, share, axis)


def whole(a: Array, axis: int) -> Array:
    """The shares of all devices, put together again."""
    return jax.lax.all_gather(a, INFLUENCE, axis=axis, tiled=True) if parts(INFLUENCE) > 1 else a


def summed(a: Array) -> Array:
    """The sum over the devices' shares of the influence."""
    return jax.lax.psum(a, INFLUENCE) if parts(INFLUENCE) > 1 else a
