"""Double precision for a few small matrices, whatever precision JAX is set to.

The largest arrays stay in the precision of the weights. What decides how they are mixed is small, and is wrong for good
once it is rounded to single precision: see `evergrad._estimators.ok.mixing`.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad._core.forward_only import refuse_derivative


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays, each an argument, with float64 at work inside it. What goes in and comes out has no float64, but `packed`.

    JAX's rules for `vmap` and for derivatives round float64 away where it is not enabled, so that a function with it inside
    has its own: it is mapped in double precision too, and is not differentiated.
    """

    @jax.custom_batching.custom_vmap
    @functools.wraps(function)
    def inside(*given):
        with _precision():
            return function(*given)

    @inside.def_vmap
    def mapped(size, has_axis, *given):
        axes = [0 if has else None for has in has_axis]
        out = in_double(jax.vmap(function, in_axes=axes))(*given)
        return out, jax.tree.map(lambda _: True, out)

    undifferentiated = jax.custom_jvp(inside)

    @undifferentiated.defjvp
    def refused(primals, tangents):
        refuse_derivative()

    return undifferentiated


def doubled(a: Float[Array, "*shape"] | UInt32[Array, "*shape 2"]) -> Array:
    """In float64, inside a function that is `in_double`."""
    return (
        jax.lax.bitcast_convert_type(a, jnp.float64)
        if a.dtype == jnp.uint32
        else jax.lax.convert_element_type(a, jnp.float64)
    )


def packed(a: Array) -> UInt32[Array, "*shape 2"]:
    """The bits of float64, for the way from one function that is `in_double` to another."""
    return jax.lax.bitcast_convert_type(a, jnp.uint32)


def _precision() -> AbstractContextManager[Any]:
    """Also while a program is traced."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before jax 0.8  # pyright: ignore[reportAttributeAccessIssue]

    return enable_x64()
