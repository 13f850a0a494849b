"""The largest array of a step, read once: δ A of every stream, whatever A is kept in."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import _native as native
from evergrad._core.streamwise import is_small


def through(delta: Float[Array, "B m"], a: Float[Array, "B m *rest"]) -> Float[Array, "B *rest"]:
    """δ A of every stream, with δ's digits. An A with fewer is widened one stream at a time, never as a whole."""
    if a.dtype == delta.dtype:
        return _product(delta, a)

    def widened(delta, a):
        return _product(delta, a.astype(delta.dtype))

    if is_small(a):
        return widened(delta, a)

    def one_by_one(delta, a):
        def of_stream(one):
            return one[0] @ one[1].astype(delta.dtype).reshape(len(one[0]), -1)

        return jax.lax.map(of_stream, (delta, a)).reshape(len(a), *a.shape[2:])

    def kernel(delta, a):
        return native.call("read", jax.ShapeDtypeStruct((len(a), *a.shape[2:]), delta.dtype), a, delta)

    has_kernel = delta.dtype == jnp.float32 and native.worth(jax.ShapeDtypeStruct(a.shape[1:], delta.dtype))
    return jax.lax.platform_dependent(delta, a, cpu=kernel if has_kernel else one_by_one, default=widened)


def _product(delta, a):
    return jax.lax.dot_general(delta, a, (((1,), (1,)), ((0,), (0,))))
