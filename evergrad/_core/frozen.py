"""The gradients of a sequence with the weights frozen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core import driver
from evergrad._core.checks import require_key
from evergrad._core.model import Model, check_sequence
from evergrad._core.parameters import parameters
from evergrad._core.sources import Data, Sequence
from evergrad._estimators.base import Estimator


def gradients(
    model: Model,
    estimator: Estimator,
    xs: Any,
    ys: Any,
    resets: Any = None,
    *,
    key: jax.Array | None = None,
    weights: Any = None,
) -> tuple[Float[Array, "T B"], Model]:
    """Losses [T, B], and at each step t the estimate of d mean_b(L_t)/dθ: a Model-shaped pytree, T in front.

    With TBPTT: zeros within a stride, and at its last step the gradient of the sum over its steps. Works inside jit and
    under vmap over `key`.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> xs = ys = jnp.zeros((10, 2), int)
        >>> losses, found = eg.gradients(model, eg.RTRL(), xs, ys, key=key)
        >>> losses.shape, found.cell.weight.shape  # a gradient at every step
        ((10, 2), (10, 13, 32))
    """
    estimator.check(model.cell)
    key = require_key(key, "eg.gradients(model, estimator, xs, ys, key=...)")
    source = Sequence(Data(*check_sequence(model, xs, ys, resets, weights)))
    return _gradients(model, estimator, source, key)


@eqx.filter_jit
def _gradients(model, estimator, source, key):
    steps, batch = source.data.reset.shape
    frozen = parameters(model)
    results = jax.tree.map(lambda a: jnp.zeros((steps, *a.shape), a.dtype), frozen)

    def write(state, results, t, gradient, steps, target):
        return state, jax.tree.map(lambda all_, one: all_.at[t].set(one), results, gradient)

    state = driver.start(model, estimator, batch, key)
    first = jnp.zeros((), jnp.int32)
    _, _, losses, results = driver.drive(
        estimator, state, source, first, steps, keep=lambda out: out.losses, results=results, consume=write
    )
    return losses, results
