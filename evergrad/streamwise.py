"""Work on the largest arrays, one stream after the other.

Under `vmap` a product of many streams becomes a batched one, which on a CPU is half as fast as the same products done
one stream at a time and in place: each is then a plain matrix product whose operands fit the cache, and no second array
of that size is ever touched. On other devices, and for small arrays, the batched form is the right one and is kept.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

SMALL = 1 << 16  # numbers a stream below which a loop costs more than it saves


def streamwise(function: Callable) -> Callable:
    """A function of arrays, with one array for result, that `vmap` maps as said above.

    Where the result has the shape of the first argument it is written over it.
    """
    mapped = jax.custom_batching.custom_vmap(function)

    @mapped.def_vmap
    def rule(axis_size, in_batched, *args):
        args = tuple(
            a if batched else jnp.broadcast_to(a[None], (axis_size, *a.shape))
            for a, batched in zip(args, in_batched, strict=True)
        )
        if args[0][0].size < SMALL:
            return jax.vmap(function)(*args), True
        one_by_one = lambda *args: _one_by_one(function, axis_size, *args)  # noqa: E731
        return jax.lax.platform_dependent(*args, cpu=one_by_one, default=jax.vmap(function)), True

    return mapped


def _one_by_one(function, streams, first, *rest):
    take = lambda b, arrays: [jax.lax.dynamic_index_in_dim(a, b, keepdims=False) for a in arrays]  # noqa: E731
    result = jax.eval_shape(function, *(a[0] for a in (first, *rest)))
    if (result.shape, result.dtype) == (first.shape[1:], first.dtype):
        step = lambda b, all_: all_.at[b].set(function(*take(b, [all_, *rest])))  # noqa: E731
        return jax.lax.fori_loop(0, streams, step, first)
    step = lambda b, all_: all_.at[b].set(function(*take(b, [first, *rest])))  # noqa: E731
    return jax.lax.fori_loop(0, streams, step, jnp.zeros((streams, *result.shape), result.dtype))
