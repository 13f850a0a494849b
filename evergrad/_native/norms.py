"""Norms of large arrays."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import _native as native
from evergrad._native.products import by_kernel


def norm(tree: Any) -> Float[Array, ""]:
    """Of all arrays of one stream together."""
    return jnp.sqrt(sum(_squares(a) for a in jax.tree.leaves(tree)))


def _squares(a):
    if not native.worth(a):
        return _sum_of_squares(a)
    return by_kernel("squares", _sum_of_squares, jax.ShapeDtypeStruct((), a.dtype), a, mapped=True)


def _sum_of_squares(a):
    return jnp.sum((a * a.conj()).real)
