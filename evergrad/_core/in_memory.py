"""Arrays that XLA would compute again wherever they are used, computed once."""

import jax.numpy as jnp
from jaxtyping import Array


def in_memory(a: Array) -> Array:
    """a, by a product: what comes out of one is kept, where XLA would compute it anew for everything that is made of it."""
    rows = jnp.stack([a.reshape(-1), jnp.zeros(a.size, a.dtype)])
    return jnp.matmul(jnp.asarray([1, 0], a.dtype), rows, precision="highest").reshape(a.shape)
