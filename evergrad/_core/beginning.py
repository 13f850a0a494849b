"""The state before the first step, as one program: made operation by operation, every size of array would be compiled by itself."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._core import driver
from evergrad._core.driver import State
from evergrad._core.model import Model
from evergrad._core.parameters import parameters
from evergrad._core.sameness import Same
from evergrad._estimators.base import Estimator


def begin(
    model: Model,
    estimator: Estimator,
    optimiser: Any,
    batch: int,
    key: jax.Array,
    mesh: jax.sharding.Mesh | None = None,
) -> State:
    """With a copy of the model, since steps give the state's memory away and the model must survive that."""
    model = jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, model)
    return driver.start(model, estimator, batch, key, optimiser.init(parameters(model)), mesh)


@eqx.filter_jit
def _compiled(model: Model, estimator: Estimator, optimiser: Same, batch: int, key: jax.Array) -> State:
    return begin(model, estimator, optimiser.value, batch, key)


def begin_at_once(model: Model, estimator: Estimator, optimiser: Any, batch: int, key: jax.Array) -> State:
    """The same, to the bit; learners that are equal but for their weights share the program."""
    return _compiled(model, estimator, Same(optimiser), batch, key)
