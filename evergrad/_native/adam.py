"""Clipping and Adam in one call for all weights."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from evergrad import _native as native
from evergrad._core.parameters import parameters
from evergrad._core.rated import Rated, functions_in, rated as without_rates
from evergrad._core.sameness import Same
from evergrad._native.products import by_kernel

_ADAM = cast(types.FunctionType, optax.scale_by_adam().update).__code__


class Numbers(NamedTuple):
    """Of an Adam, but for its rate."""

    b1: float
    b2: float
    eps: float
    eps_root: float


def updated_or(
    pure: Callable[..., tuple[Any, Any]],
    model: Any,
    state: Any,
    gradient: Any,
    clip: Array | None,
    target: Array,
    rated: Rated,
    *,
    steps: int,
) -> tuple[Any, Any]:
    """The model and the optimiser's state after an update: by a kernel where the optimiser is Adam and that is faster, else
    pure(model, state, gradient, clip, target, rated), which must do the same.
    """
    numbers, weights = adam_of(rated.form), parameters(model)
    if numbers is None or not native.worth_a_call((weights, gradient, state[0].mu, state[0].nu)):
        return pure(model, state, gradient, clip, target, rated)
    leaves, tree = jax.tree.flatten(weights)
    inside, count, dtype = len(jax.tree.leaves(weights.cell)), len(leaves), leaves[0].dtype
    (rate,), (moments, *rest) = rated.rates, state

    def of_arrays(rate, clip, counted, target, *arrays):
        new, mean, square, found = (jax.tree.unflatten(tree, arrays[i * count : (i + 1) * count]) for i in range(4))
        before = optax.ScaleByAdamState(counted, mean, square), *rest
        given = eqx.combine(new, model), before, found, clip, target, Rated(rated.form, (rate,))
        after, (moved, *_) = pure(*given)
        return moved.count, *jax.tree.leaves((parameters(after), moved.mu, moved.nu))

    given = [jax.tree.leaves(each) for each in (weights, moments.mu, moments.nu, gradient)]
    arrays = [a for each in given for a in each]
    results = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (moments.count, *arrays[: 3 * count]))
    most = jnp.asarray(np.inf if clip is None else clip, dtype)
    found = by_kernel(
        "adam",
        of_arrays,
        results,
        *(jnp.asarray(rate, dtype), most, moments.count, jnp.asarray(target), *arrays),
        in_place={2: 0} | {4 + i: 1 + i for i in range(3 * count)},
        inside=np.int64(inside),
        steps=np.int64(steps),
        keep_mean=np.float64(numbers.b1),
        keep_square=np.float64(numbers.b2),
        epsilon=np.float64(numbers.eps),
        root_epsilon=np.float64(numbers.eps_root),
    )
    new, mean, square = (jax.tree.unflatten(tree, found[1 + i * count : 1 + (i + 1) * count]) for i in range(3))
    return eqx.combine(new, model), (optax.ScaleByAdamState(found[0], mean, square), *rest)


@functools.cache
def adam_of(form: Same) -> Numbers | None:
    """The numbers of an optimiser that is nothing but `optax.adam`, whatever its rate; None for any other.

    They are looked for, and then an Adam is made of them: only if that is the same optimiser, function by function, are they used.
    """
    found = {id(each): each for each in functions_in(form.value) if each.__code__ is _ADAM}
    try:
        (around,) = (inspect.getclosurevars(each).nonlocals for each in found.values())
        numbers = Numbers(*(float(around[name]) for name in Numbers._fields))
    except (ValueError, KeyError, TypeError):
        return None
    return numbers if without_rates(optax.adam(1.0, **numbers._asdict())).form == form else None
