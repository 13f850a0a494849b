"""Products at shapes at which XLA's take long: few rows with many weights, and sums of many outer products."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import _native as native

FEW = 4  # rows below which a product is read at the speed of memory in any form


def product(x: Float[Array, "B p"], weight: Float[Array, "p q"]) -> Float[Array, "B q"]:
    """x W, for few rows."""
    if len(x) < FEW or not native.worth(weight):
        return x @ weight
    return by_kernel("product", jnp.matmul, jax.ShapeDtypeStruct((len(x), weight.shape[1]), x.dtype), x, weight)


def outer(x: Float[Array, "*lead p"], y: Float[Array, "*lead q"]) -> Float[Array, "p q"]:
    """Σ x ⊗ y over all leading axes.

    A kernel takes them as they are: of a reshape XLA would make a second array, and copy slots that are written in place.
    """
    p, q, lead = x.shape[-1], y.shape[-1], math.prod(x.shape[:-1])
    if lead < FEW or not native.worth(jax.ShapeDtypeStruct((lead, p, q), x.dtype)):
        return _outer(x, y)
    return by_kernel("outer", _outer, jax.ShapeDtypeStruct((p, q), x.dtype), x, y)


def _outer(x, y):
    return jnp.einsum("kp,kq->pq", *(a.reshape(-1, a.shape[-1]) for a in (x, y)))


def by_kernel(name: str, pure: Callable[..., Any], results: Any, *args: Array, **attributes: Any) -> Any:
    """A kernel on a CPU and pure(*args) elsewhere, of which it also has its derivatives."""

    def kernel(*args):
        return native.call(name, results, *args, **attributes)

    @jax.custom_jvp
    def chosen(*args):
        return native.either(kernel, pure, *args)

    @chosen.defjvp
    def _(primals, tangents):
        return jax.jvp(pure, primals, tangents)

    return chosen(*args)
