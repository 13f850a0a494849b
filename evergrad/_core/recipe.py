"""What decides the compiled loop of a learner, and the loop: equal recipes share one.

The model is in the state, so learners that differ in their weights alone are equal too. Learning rates, the norm to clip to,
and a feedback matrix are arguments of the loop and not part of it.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core import across, driver, placing
from evergrad._core.driver import Output, State
from evergrad._core.forward_only import forward_only
from evergrad._core.model import all_finite
from evergrad._core.rated import Rated
from evergrad._core.sources import Data, Sequence, Source, spread_axes
from evergrad._core.update import updated
from evergrad._estimators.base import Estimator


class Recipe(eqx.Module):
    estimator: Estimator
    optimiser: Rated
    clip: Array | None
    feedback: Float[Array, "n outputs"] | None

    def drive(self, data: Data, state: State) -> tuple[State, Output, Array]:
        """The steps of a sequence: the state, what came out, and whether all weights are finite."""
        first, steps = jnp.zeros((), jnp.int32), len(data.reset)
        state, _, out, _ = driver.drive(
            self.estimator,
            state,
            Sequence(data),
            first,
            steps,
            keep=lambda out: out,
            consume=self.update,
            feedback=self.feedback,
        )
        return *forward_only((state, out)), all_finite(state.model)

    def follow(self, source: Source, room: int, steps: Any, state: State, position: Any) -> tuple:
        """Up to `steps` of a room of steps that a source makes: state, position, losses, and whether weights are finite."""

        def keep(out):
            return out.losses

        state, position, losses, _ = driver.drive(
            self.estimator,
            state,
            source,
            position,
            room,
            limit=steps,
            keep=keep,
            consume=self.update,
            feedback=self.feedback,
        )
        return state, position, losses, all_finite(state.model)

    def drive_spread(self, data: Data, mesh: jax.sharding.Mesh, state: State) -> tuple:
        def part(recipe, data, state):
            state, out, finite = recipe.drive(data, state)
            return state, across.all_lanes(out.losses, axis=1), out.predictions, finite

        streams = 1 if across.LANES in mesh.axis_names else -1
        axes = driver.axes(state, self.estimator, mesh)
        given, cut = (self, data, state), (placing.everywhere(self), placing.along(streams, data), axes)
        return placing.spread(part, mesh, given, cut, (axes, -1, streams, -1))

    def follow_spread(
        self, source: Source, room: int, limit: Any, mesh: jax.sharding.Mesh, state: State, position: Any
    ) -> tuple:
        def part(recipe, source, limit, state, position):
            state, position, losses, finite = recipe.follow(source, room, limit, state, position)
            return state, position, across.all_lanes(losses, axis=1), finite

        state_axes = driver.axes(state, self.estimator, mesh)
        source_axes, position_axes = spread_axes(source, position, mesh)
        given = self, source, limit, state, position
        axes = placing.everywhere(self), source_axes, -1, state_axes, position_axes
        return placing.spread(part, mesh, given, axes, (state_axes, position_axes, -1, -1))

    def update(self, state: State, results: Any, t: Any, gradient: Any, steps: int, target: Array) -> tuple[State, Any]:
        """What the driver's `consume` does: the mean gradient of so many steps, clipped, to the optimiser."""
        cell = state.model.cell
        new = updated(state.model, self.optimiser, state.optimiser, gradient, self.clip, steps, target)
        state = eqx.tree_at(lambda s: (s.model, s.optimiser), state, new)
        if not self.estimator.trains_cell:  # weight decay would move it without any gradient
            state = eqx.tree_at(lambda s: s.model.cell, state, cell)
        return state, results


def placed(recipe: Recipe, mesh: jax.sharding.Mesh) -> Recipe:
    """With its arrays on all devices of a mesh."""
    return placing.place(recipe, placing.everywhere(recipe), mesh)


def _drive(fixed, state):
    recipe, *rest = fixed
    return recipe.drive(*rest, state)


def _follow(fixed, state, position):
    recipe, *rest = fixed
    return recipe.follow(*rest, state, position)


def _drive_spread(fixed, state):
    recipe, *rest = fixed
    return recipe.drive_spread(*rest, state)


def _follow_spread(fixed, state, position):
    recipe, *rest = fixed
    return recipe.follow_spread(*rest, state, position)


@functools.cache
def program(name: str, donate: bool) -> Any:
    """`drive`, `follow`, or one of these on a mesh, compiled; all but the first argument, (recipe, …), may be given away."""
    functions = {"drive": _drive, "follow": _follow, "drive_spread": _drive_spread, "follow_spread": _follow_spread}
    return eqx.filter_jit(functions[name], donate="all-except-first" if donate else "none")
