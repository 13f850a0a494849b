"""Online training."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from evergrad._cells.initial import initial_weight
from evergrad._core import across, driver, placing, room
from evergrad._core.checks import DivergedError, InputError, is_traced, refuse_unless, require_key, whole_number
from evergrad._core.driver import Output, State
from evergrad._core.model import Model, all_finite, check_data
from evergrad._core.parameters import parameters
from evergrad._core.sources import Data, Sequence, Source, place_source, spread_axes
from evergrad._core.update import clip_and_update
from evergrad._estimators.base import Estimator


class Learner:
    """Trains a model on B streams, step by step, with the gradients of an estimator and any Optax optimiser.

    `clip` bounds the norm of the recurrent gradient, the one of the cell; the readout's is left alone. With TBPTT
    there is one update a stride, with the mean over its steps; with all others one a step. A step (a stride) in which no
    stream has a target, all weights being 0, updates nothing: weights and optimiser stay as they are, and only the
    hidden state and the influence go on.

    `feedback="random"` (with a `key`) sends the error back to the cell through a fixed random matrix of the readout's shape
    instead of the readout's own weights (feedback alignment, as RFLO and e-prop are often used); an array [n, outputs] is
    that matrix.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> learner = eg.Learner(model, eg.OK(rank=4, window=8), optax.adam(1e-2), clip=1.0)
        >>> state = learner.init(batch=2, key=key)
        >>> state, out = learner.step(state, jnp.array([0, 1]), jnp.array([1, 2]))
        >>> out.losses.shape
        (2,)
        >>> xs = jnp.tile(jnp.arange(100)[:, None] % 4, (1, 2))
        >>> state, out = learner.run(state, xs[:-1], xs[1:])  # the next symbol
        >>> bool(out.losses[-1].mean() < out.losses[0].mean())
        True
    """

    def __init__(
        self,
        model: Model,
        estimator: Estimator,
        optimiser: optax.GradientTransformation,
        *,
        clip: float | None = None,
        feedback: Any = None,
        key: jax.Array | None = None,
    ):
        refuse_unless(isinstance(model, Model), f"Learner needs an eg.Model, not {type(model).__name__}.")
        refuse_unless(
            isinstance(estimator, Estimator),
            f"Learner needs an estimator such as eg.OK(rank=8), not {estimator!r}.",
        )
        refuse_unless(
            hasattr(optimiser, "init") and hasattr(optimiser, "update"),
            f"Learner needs an Optax optimiser such as optax.adam(3e-4), not {optimiser!r}.",
        )
        refuse_unless(
            clip is None or (clip > 0 and math.isfinite(clip)),
            f"Learner(clip={clip}): a norm to clip to is above 0 and finite; None does not clip.",
        )
        estimator.check(model.cell)
        self.model, self.estimator, self.optimiser, self.clip = model, estimator, optimiser, clip
        self.feedback = _feedback(feedback, model, key)
        self._compiled = eqx.filter_jit(self._drive, donate="all-except-first")
        self._followed = eqx.filter_jit(self._follow, donate="all-except-first")
        self._compiled_spread = eqx.filter_jit(self._drive_spread, donate="all-except-first")
        self._followed_spread = eqx.filter_jit(self._follow_spread, donate="all-except-first")

    def init(
        self, *, batch: int, key: jax.Array | None = None, mesh: jax.sharding.Mesh | None = None, shard: str = "lanes"
    ) -> State:
        """The state before the first step of `batch` streams.

        With a mesh it is spread over all its devices, and so is all work on it: shard="lanes" gives each device some of
        the streams, shard="influence" a part of every stream's influence (OK, RTRL), for one too large for a device.
        """
        call = f"Learner.init(batch={batch})"
        whole_number(batch, 1, call, "batch", "the number of streams")
        key = require_key(key, f"Learner.init(batch={batch}, key=...)")
        if mesh is not None:
            mesh = placing.mesh_for(mesh, shard, f"Learner.init(batch={batch}, mesh=..., shard={shard!r})")
            placing.check_divides(batch, mesh, call)
        if not is_traced(key):
            needed = room.bytes_of(lambda: self._start(batch, key))
            room.require(
                placing.share(needed, mesh), f"`{call}`", "use fewer streams, or a smaller network or estimator"
            )
        return self._start(batch, key, mesh)

    def _start(self, batch, key, mesh=None):
        # copied, since `step` and `run` give the state's memory away and the model here must survive that
        model = jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, self.model)
        optimiser = self.optimiser.init(parameters(model))
        return driver.start(model, self.estimator, batch, key, optimiser, mesh)

    def step(self, state: State, x: Any, y: Any, reset: Any = None, *, weights: Any = None) -> tuple[State, Output]:
        """One time step: x [B] ids or [B, inputs], y targets, reset [B] bool or None, weights [B] (0: y is missing).

        The memory of `state` is given away: go on with the one returned.
        """
        data = self._data(state, x, y, reset, weights, lead=(len(state.hidden),))
        state, out, finite = self._driven(jax.tree.map(lambda a: a[None], data), state)
        return self._checked(state, jax.tree.map(lambda a: a[0], out), finite)

    def run(self, state: State, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> tuple[State, Output]:
        """The same over [T, B, ...], as one compiled loop."""
        steps = len(xs)
        data = self._data(state, xs, ys, resets, weights, lead=(steps, len(state.hidden)))
        return self._checked(*self._driven(data, state))

    def compile(self, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> jax.stages.Compiled:
        """The program that `run` would be on data of these shapes, not run: for its memory and cost analysis."""
        steps, batch = np.shape(xs)[:2]
        state = eqx.filter_eval_shape(lambda: self.init(batch=batch, key=jax.random.key(0)))
        data = self._data(state, xs, ys, resets, weights, lead=(steps, batch))
        shapes, rest = eqx.partition(state, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

        def run(data, shapes):
            return eqx.filter(self._drive(data, eqx.combine(shapes, rest)), eqx.is_array)

        return jax.jit(run, donate_argnums=1).lower(data, shapes).compile()

    def follow(
        self, state: State, source: Source, position: Any, steps: int, *, room: int | None = None
    ) -> tuple[State, Any, Float[np.ndarray, "steps B"]]:
        """`steps` steps of a task that makes its streams inside the compiled loop: state, position and losses.

        The memory of `state` and of `position` is given away. With `room`, all calls of up to so many steps share one
        compiled loop, so that how a run is cut into calls cannot change a single bit of it.
        """
        whole_number(steps, 1, f"Learner.follow(steps={steps})", "steps", "the number of steps to take")
        room = steps if room is None else room
        whole_number(room, steps, f"Learner.follow(steps={steps}, room={room})", "room", "the most steps of a call")
        limit, mesh = jnp.asarray(steps, jnp.int32), placing.mesh_of(state)
        if mesh is None:
            state, position, losses, finite = self._followed((source, room, limit), state, position)
        else:
            source, position = place_source(source, position, mesh)
            limit = placing.place(limit, -1, mesh)
            state, position, losses, finite = self._followed_spread((source, room, limit, mesh), state, position)
        losses = np.asarray(losses)[:steps]
        self._check_finite(state, losses, finite)
        return state, position, losses

    def _data(self, state, x, y, reset, weights, *, lead):
        axis = len(lead) - 1
        shape = np.shape(x)
        if len(shape) > axis and shape[axis] != lead[axis]:
            raise InputError(
                f"x has {shape[axis]} streams (shape {list(shape)}), but this state was made with batch={lead[axis]}: "
                "the number of streams cannot change under way; make a new state with Learner.init."
            )
        return Data(*check_data(self.model, x, y, reset, weights, lead=lead))

    def _driven(self, data, state):
        mesh = placing.mesh_of(state)
        if mesh is None:
            return self._compiled(data, state)
        source, _ = place_source(Sequence(data), jnp.zeros((), jnp.int32), mesh)
        state, losses, predictions, finite = self._compiled_spread((source.data, mesh), state)
        return state, Output(losses, predictions), finite

    def _drive(self, data, state):
        first, steps = jnp.zeros((), jnp.int32), len(data.reset)
        state, _, out, _ = driver.drive(
            self.estimator,
            state,
            Sequence(data),
            first,
            steps,
            keep=lambda out: out,
            consume=self._update,
            feedback=self.feedback,
        )
        return state, out, all_finite(state.model)

    def _follow(self, fixed, state, position):
        source, room, steps = fixed

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
            consume=self._update,
            feedback=self.feedback,
        )
        return state, position, losses, all_finite(state.model)

    def _drive_spread(self, fixed, state):
        data, mesh = fixed

        def part(data, state):
            state, out, finite = self._drive(data, state)
            return state, across.all_lanes(out.losses, axis=1), out.predictions, finite

        streams = 1 if across.LANES in mesh.axis_names else -1
        axes = driver.axes(state, self.estimator, mesh)
        return placing.spread(part, mesh, (data, state), (placing.along(streams, data), axes), (axes, -1, streams, -1))

    def _follow_spread(self, fixed, state, position):
        source, room, limit, mesh = fixed

        def part(source, limit, state, position):
            state, position, losses, finite = self._follow((source, room, limit), state, position)
            return state, position, across.all_lanes(losses, axis=1), finite

        state_axes = driver.axes(state, self.estimator, mesh)
        source_axes, position_axes = spread_axes(source, position, mesh)
        given, axes = (source, limit, state, position), (source_axes, -1, state_axes, position_axes)
        return placing.spread(part, mesh, given, axes, (state_axes, position_axes, -1, -1))

    def _update(self, state, results, t, gradient, steps):
        mean = jax.tree.map(lambda a: a / steps, gradient)
        model, optimiser = clip_and_update(state.model, self.optimiser, state.optimiser, mean, clip=self.clip)
        if not self.estimator.trains_cell:  # weight decay would move it without any gradient
            model = eqx.tree_at(lambda m: m.cell, model, state.model.cell)
        return eqx.tree_at(lambda s: (s.model, s.optimiser), state, (model, optimiser)), results

    def _checked(self, state, out, finite):
        self._check_finite(state, out.losses, finite)
        return state, out

    def _check_finite(self, state, losses, finite):
        """Of the losses, and of the weights that the last update made, which no loss has shown yet."""
        if is_traced(losses) or (np.isfinite(losses).all() and np.asarray(finite)):
            return
        losses = np.atleast_2d(losses)
        bad = ~np.isfinite(losses).all(axis=1)
        what, first = ("loss", int(bad.argmax())) if bad.any() else ("weights", len(losses) - 1)
        raise DivergedError(
            f"the {what} became non-finite at step {int(state.time) - len(losses) + first} with {self.estimator!r}. Try a "
            f"lower learning rate, clip=1.0 (now {self.clip}), or an estimator with less noise (a larger rank or window).",
            state,
            losses,
        )


def _feedback(feedback: Any, model: Model, key: jax.Array | None) -> jax.Array | None:
    """The matrix that errors go back through; None for the readout's own weights."""
    if feedback is None:
        return None
    (n, outputs), dtype = model.readout.weight.shape, model.readout.weight.dtype
    shape = n, outputs
    if isinstance(feedback, str):
        refuse_unless(
            feedback == "random", f'Learner(feedback="{feedback}"): use "random", an array {list(shape)}, or None.'
        )
        key = require_key(key, 'Learner(feedback="random", key=...)')
        return initial_weight("fan_in", shape, shape[0], key=key).astype(dtype)
    matrix = jnp.asarray(feedback, dtype)
    refuse_unless(
        matrix.shape == shape,
        f"Learner(feedback=...) has shape {list(matrix.shape)}, but takes the place of the readout's weights, {list(shape)}.",
    )
    return matrix
