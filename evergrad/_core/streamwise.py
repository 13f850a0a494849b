"""Functions of one stream, mapped over all of them.

`vmap` makes one batched product of the products of many streams, which on a CPU is half as fast as the same products
one stream at a time and in place: each is then a plain matrix product whose operands fit the cache, and no second array
of that size is ever touched. On other devices, and for small arrays, the batched form is the right one and is kept.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from evergrad._core.machine import cores

SMALL = 1 << 16  # numbers a stream below which a loop costs more than it saves


def over_streams(function: Callable[..., Any], carried: Any, *others: Any) -> Any:
    """function(carried, *others) of every stream, in the shape of `carried`; all leaves have the streams first."""
    if is_small(carried):
        return jax.vmap(function)(carried, *others)

    def one_by_one(carried, *others):
        def pick(tree, b):
            return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, b, keepdims=False), tree)

        def one(b, carried):
            result = function(pick(carried, b), *pick(others, b))
            return jax.tree.map(lambda all_, new: all_.at[b].set(new), carried, result)

        return jax.lax.fori_loop(0, len(jax.tree.leaves(carried)[0]), one, carried)

    return jax.lax.platform_dependent(carried, *others, cpu=one_by_one, default=jax.vmap(function))


def group(streams: int) -> int:
    """How many streams to take at a time: as many as XLA has threads, one a core, or what divides all streams and comes near."""
    return max(size for size in range(1, cores() + 1) if streams % size == 0)


def is_small(carried: Any) -> bool:
    """Whether what streams carry is so little that all of them are best taken at once."""
    return sum(math.prod(a.shape[1:]) for a in jax.tree.leaves(carried)) < SMALL


def in_groups(function: Callable[..., Any], carried: Any, *others: Any) -> Any:
    """function(carried, *others), a function of any number of streams, of a few streams at a time, in place of `carried`."""
    if is_small(carried):
        return function(carried, *others)

    def by_groups(carried, *others):
        streams = len(jax.tree.leaves(carried)[0])
        size = group(streams)

        def some(i, carried):
            def pick(a):
                return jax.lax.dynamic_slice_in_dim(a, i * size, size)

            new = function(*jax.tree.map(pick, (carried, *others)))
            return jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, i * size, 0), carried, new)

        return jax.lax.fori_loop(jnp.int32(0), jnp.int32(streams // size), some, carried)

    return jax.lax.platform_dependent(carried, *others, cpu=by_groups, default=function)
