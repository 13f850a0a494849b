"""UORO's v, one number a weight and stream: rewritten, contracted and measured in one read and one write."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._native.products import by_kernel


def mixed(
    v: Float[Array, "B p q"],
    rows: Float[Array, "B p"],
    columns: Float[Array, "B q"],
    factors: Float[Array, "B 2"],
    mask: np.ndarray | None,
) -> tuple[Float[Array, "B p q"], Float[Array, "p q"], Float[Array, " B"]]:
    """v' = x v + rows ⊗ columns of every stream, zero where the mask is; Σ w v' over streams; and ‖v'‖² of each. The factors are
    x and w.
    """
    streams, *shape = v.shape
    like = tuple(jax.ShapeDtypeStruct(s, v.dtype) for s in (v.shape, tuple(shape), (streams,)))
    there = jnp.zeros((0, 0), v.dtype) if mask is None else jnp.asarray(mask, v.dtype)
    return by_kernel("mix", _mixed, like, v, rows, columns, factors, there, in_place=True)


def _mixed(v, rows, columns, factors, mask):
    outer = rows[:, :, None] * columns[:, None]
    outer = outer * mask[None] if mask.size else outer
    new = factors[:, 0][:, None, None] * v + outer
    return new, jnp.tensordot(factors[:, 1], new, 1), jnp.sum(new**2, (1, 2))
