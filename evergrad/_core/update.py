"""What a gradient does to a model."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from evergrad._core.model import Model
from evergrad._core.parameters import parameters
from evergrad._core.rated import Rated
from evergrad._native import adam
from evergrad._native.norms import norm


def clip_and_update(
    model: Model,
    optimiser: optax.GradientTransformation,
    state: Any,
    gradient: Model,
    *,
    clip: float | Array | None = None,
) -> tuple[Model, Any]:
    """The model and the optimiser's state after one update.

    `gradient` is Model-shaped, as `eg.gradients` gives it. The norm of its recurrent part, the cell's, is first brought
    down to `clip`; the readout's is left alone. `state` comes from `optimiser.init(eg.parameters(model))`.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> optimiser = optax.adam(1e-2)
        >>> state = optimiser.init(eg.parameters(model))
        >>> xs = ys = jnp.zeros((10, 2), int)
        >>> _, found = eg.gradients(model, eg.RTRL(), xs, ys, key=key)
        >>> mean = jax.tree.map(lambda a: a.mean(0), found)
        >>> model, state = eg.clip_and_update(model, optimiser, state, mean, clip=1.0)
    """
    gradient = gradient if clip is None else _clipped(gradient, clip)
    # optimisers are other people's code, and not all of it bears JAX's strict modes
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        updates, state = optimiser.update(cast(Any, gradient), state, parameters(model))
    return eqx.apply_updates(model, updates), state


def _clipped(gradient: Model, clip: float | Array) -> Model:
    size = norm(gradient.cell)
    clip = jnp.asarray(clip, size.dtype)
    scale = jnp.minimum(1, clip / jnp.maximum(size, clip))
    return eqx.tree_at(lambda m: m.cell, gradient, jax.tree.map(lambda a: a * scale, gradient.cell))


def updated(
    model: Model, rated: Rated, state: Any, gradient: Model, clip: Array | None, steps: int, target: Array
) -> tuple[Model, Any]:
    """The same by the mean of a gradient that is a sum over some steps. Without any `target` the weights and the optimiser stay
    as they are: a momentum would move them, and a rate that falls with the updates would fall.
    """

    def pure(model, state, gradient, clip, target, rated):
        mean = jax.tree.map(lambda a: a / steps, gradient)
        new = clip_and_update(model, rated.optimiser, state, mean, clip=clip)
        return jax.tree.map(lambda a, b: jnp.where(target, a, b) if eqx.is_array(a) else a, new, (model, state))

    return adam.updated_or(pure, model, state, gradient, clip, target, rated, steps=steps)
