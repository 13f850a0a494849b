"""What crosses devices inside the compiled loop where streams are spread over them; on one device nothing here does anything.

The loop is then the body of a `jax.shard_map`, sees its own lanes (streams, and with them hidden states, influence and
window), and asks these functions for the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

LANES = "lanes"


def parts() -> int:
    """Over how many devices the streams are spread."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[LANES] if LANES in mesh.manual_axes else 1


def all_streams(here: int) -> int:
    """How many streams there are on all devices, when there are so many here."""
    return here * parts()


def total(tree: Any) -> Any:
    """The sum over the devices' lanes, all arrays as one all-reduce."""
    if parts() == 1:
        return tree
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, LANES))


def mean(a: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean over all streams."""
    return total(a.mean()) / parts() if parts() > 1 else a.mean()


def anywhere(a: Bool[Array, " B"]) -> Bool[Array, ""]:
    """Whether it is so for any stream."""
    return total(jnp.asarray(jnp.any(a), jnp.int32)) > 0 if parts() > 1 else jnp.any(a)


def all_lanes(a: Array, axis: int) -> Array:
    """The streams of all devices, along an axis."""
    return jax.lax.all_gather(a, LANES, axis=axis, tiled=True) if parts() > 1 else a
