"""What to say, and what can be done, when the loss explodes."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from evergrad._core import driver
from evergrad._core.checks import DivergedError
from evergrad._core.driver import State
from evergrad._core.learner import Learner
from evergrad._core.placing import mesh_of, place
from evergrad._core.sources import Source


class Diverged(Exception):
    """A run had to stop; the message says where, with which norms, and what to try."""


def influence_norm(state: State) -> float:
    """Of the estimator's approximation of the influence as it is stored; 0 for TBPTT, which has none."""
    carried = eqx.filter(state.track.carried, eqx.is_inexact_array)
    return float(_norm(carried)) if jax.tree.leaves(carried) else 0.0


@jax.jit
def _norm(tree):
    """With all digits, also of what is kept with fewer."""
    return optax.tree.norm(jax.tree.map(lambda a: a.astype(jnp.promote_types(a.dtype, jnp.float32)), tree))


def without_influence(learner: Learner, state: State) -> State:
    """The same state with no past: zero influence, an empty window, a stride that begins."""
    track = driver.begun(learner.estimator, state.model, len(state.hidden), mesh_of(state))
    return eqx.tree_at(lambda s: s.track, state, track, is_leaf=lambda leaf: leaf is None)


class _Norm(NamedTuple):
    norm: jax.Array


def gradient_norm(learner: Learner, state: State, source: Source, position: Any) -> float:
    """Of the next gradient before clipping; what is found in a state and position that are given away."""
    recorder = optax.GradientTransformation(
        lambda params: _Norm(jnp.full((), jnp.nan)),
        lambda updates, state, params=None: (jax.tree.map(jnp.zeros_like, updates), _Norm(optax.tree.norm(updates))),
    )
    probe = Learner(learner.model, learner.estimator, recorder)
    mesh = mesh_of(state)
    state = eqx.tree_at(lambda s: s.optimiser, state, _Norm(jnp.full((), jnp.nan)))
    if mesh is not None:
        state = place(state, driver.axes(state, learner.estimator, mesh), mesh)
    try:
        state, _, _ = probe.follow(state, source, position, learner.estimator.past.stride)
    except DivergedError as error:
        state = error.state
    return float(np.asarray(state.optimiser.norm))


def explanation(learner: Learner, step: int, what: str, norms: dict[str, float], settings: Any) -> str:
    """Step, estimator, norms, and what to try."""
    listed = ", ".join(f"{name} {value:.3g}" for name, value in norms.items())
    return (
        f"{what} at step {step:,} with {learner.estimator} (norms: {listed}). Try a lower --learning-rate (now "
        f"{settings.learning_rate:.3g}), a lower --clip (now {settings.clip:g}), an estimator with less noise (a "
        "larger --rank or --window), or --on-divergence reset-influence."
    )
