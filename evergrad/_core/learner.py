"""Online training."""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from evergrad._cells.initial import initial_weight
from evergrad._core import placing, room
from evergrad._core.beginning import begin, begin_at_once
from evergrad._core.checks import (
    DivergedError,
    InputError,
    is_traced,
    refuse_given_away,
    refuse_unless,
    require_key,
    whole_number,
)
from evergrad._core.driver import Output, State, foretold
from evergrad._core.fitting import Progress, fit
from evergrad._core.model import Model, check_data, joined, weight_dtype
from evergrad._core.optimisers import in_words, usable
from evergrad._core.parameters import parameters
from evergrad._core.rated import rated
from evergrad._core.recipe import Recipe, placed, program
from evergrad._core.sources import Data, Sequence, Source, place_source
from evergrad._estimators.base import Estimator


class Learner:
    """Trains a model on B streams, step by step, with the gradients of an estimator and any Optax optimiser.

    `clip` bounds the norm of the recurrent gradient, the one of the cell; the readout's is left alone. With TBPTT
    there is one update a stride, with the mean over its steps; with all others one a step. A step (a stride) in which no
    stream has a target, all weights being 0, updates nothing: weights and optimiser stay as they are, and only the
    hidden state and the influence go on.

    Learners that are equal in all but their weights and their `clip` share what was compiled for one of them. A rate that
    is to change without compiling again is part of the state with `optax.inject_hyperparams(optax.adam)(learning_rate=…)`.

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
            clip is None or (clip > 0 and math.isfinite(clip)),
            f"Learner(clip={clip}): a norm to clip to is above 0 and finite; None does not clip.",
        )
        estimator.check(model.cell)
        refuse_given_away(model, "Learner(model): this model")
        self.model, self.estimator, self.optimiser, self.clip = model, estimator, usable(optimiser, model), clip
        self.feedback = _feedback(feedback, model, key)
        self._recipe = Recipe(estimator, rated(self.optimiser), _as_norm(clip, model), self.feedback)

    def __repr__(self) -> str:
        """What it trains, and how."""
        model, count = self.model, sum(a.size for a in jax.tree.leaves(parameters(self.model)))
        cell = f"{type(model.cell).__name__}(inputs={model.cell.inputs}, units={model.cell.units})"
        optimiser = in_words(self.optimiser, model)
        more = "" if self.feedback is None else ", feedback through a fixed matrix"
        return (
            f"Learner of {cell} and {type(model.readout).__name__}, {count:,} weights: {self.estimator!r}, optimiser "
            f"{optimiser}, clip={self.clip}{more}"
        )

    def init(
        self,
        *,
        batch: int,
        key: jax.Array | None = None,
        mesh: jax.sharding.Mesh | None = None,
        shard: str = "lanes",
        donate: bool = True,
    ) -> State:
        """The state before the first step of `batch` streams.

        Every state gives its memory to the one that follows it, and cannot be used again; with donate=False it keeps it, so
        that old states can be gone back to, at the price of the memory of two.

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
        return dataclasses.replace(self._start(batch, key, mesh), donate=donate)

    def _start(self, batch, key, mesh=None):
        given = self.model, self.estimator, self.optimiser, batch, key
        return begin_at_once(*given) if mesh is None else begin(*given, mesh)

    def step(self, state: State, x: Any, y: Any, reset: Any = None, *, weights: Any = None) -> tuple[State, Output]:
        """One time step: x [B] ids or [B, inputs], y targets, reset [B] bool or None, weights [B] (0: y is missing).

        y is None where no stream has a target at this step. The memory of `state` is given away: go on with the one returned.
        """
        self._check_state(state, "step")
        data = self._data(x, y, reset, weights, lead=(len(state.hidden),))
        return self._stepped(state, data)

    def predict(self, state: State, x: Any, reset: Any = None) -> tuple[State, Any]:
        """The predictions for x [B] before their targets are known; `learn` goes on from the state that this returns."""
        self._check_state(state, "predict")
        data = self._data(x, None, reset, None, lead=(len(state.hidden),))
        predictions = foretold(state.model, state.hidden, data.x, data.reset)
        return dataclasses.replace(state, pending=(data.x, data.reset)), predictions

    def learn(self, state: State, y: Any, *, weights: Any = None) -> tuple[State, Output]:
        """Learns from the targets of the step that `predict` took, as `step` would have; y is None if none will come.

        The memory of `state` is given away.
        """
        refuse_unless(
            state.pending is not None,
            "Learner.learn(state, y) needs the state that `predict` returned, and this one has no prediction that waits for a "
            "target: call `state, predictions = learner.predict(state, x)` first, or `learner.step(state, x, y)` for both.",
        )
        x, reset = state.pending
        state = dataclasses.replace(state, pending=None)
        self._check_state(state, "learn")
        return self._stepped(state, self._data(x, y, reset, weights, lead=(len(state.hidden),)))

    def _stepped(self, state, data):
        state, out, finite = self._driven(jax.tree.map(lambda a: a[None], data), state)
        return self._checked(state, jax.tree.map(lambda a: a[0], out), finite)

    def run(self, state: State, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> tuple[State, Output]:
        """The same over [T, B, ...], as one compiled loop."""
        self._check_state(state, "run")
        xs = joined(self.model, xs)
        data = self._data(xs, ys, resets, weights, lead=(len(xs), len(state.hidden)))
        return self._checked(*self._driven(data, state))

    def compile(self, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> jax.stages.Compiled:
        """The program that `run` would be on data of these shapes, not run: for its memory and cost analysis."""
        xs = joined(self.model, xs)
        steps, batch = np.shape(xs)[:2]
        state = eqx.filter_eval_shape(lambda: self.init(batch=batch, key=jax.random.key(0)))
        data = self._data(xs, ys, resets, weights, lead=(steps, batch))
        shapes, rest = eqx.partition(state, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

        def run(data, shapes):
            return eqx.filter(self._recipe.drive(data, eqx.combine(shapes, rest)), eqx.is_array)

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
        self._check_state(state, "follow")
        refuse_given_away(position, "Learner.follow(position=...): this position")
        limit, mesh = jnp.asarray(steps, jnp.int32), placing.mesh_of(state)
        if mesh is None:
            followed = program("follow", state.donate)
            state, position, losses, finite = followed((self._recipe, source, room, limit), state, position)
        else:
            source, position = place_source(source, position, mesh)
            limit, followed = placing.place(limit, -1, mesh), program("follow_spread", state.donate)
            state, position, losses, finite = followed(
                (placed(self._recipe, mesh), source, room, limit, mesh), state, position
            )
        losses = np.asarray(losses)[:steps]
        self._check_finite(state, losses, finite)
        return state, position, losses

    def fit(
        self,
        state: State,
        source: Any,
        steps: int,
        *,
        position: Any = None,
        key: jax.Array | None = None,
        callbacks: Collection[Callable[[Progress], Any]] = (),
        every: int = 1000,
    ) -> tuple[State, Any]:
        """Takes `steps` steps of a source, and calls the callbacks as it goes: the state and the position after them.

        `source` is (xs, ys), (xs, ys, resets) or (xs, ys, resets, weights) of [T, B, ...], or a `Source`, which begins at
        `position`, or where its `start` says with this `key`. A callback is any function of one `eg.Progress`; it is called
        at every multiple of `every` steps, or of its own `every`, and at the end: `eg.Log()`, `eg.Checkpoint(path)`,
        `eg.EarlyStop()`, `eg.TensorBoard(folder)`, or yours. `progress.stop()` ends it early. The command line's runs are this
        loop with callbacks of theirs. The memory of `state` is given away.
        """
        return fit(self, state, source, steps, position=position, key=key, callbacks=tuple(callbacks), every=every)

    def sequence(self, xs: Any, ys: Any, resets: Any = None, weights: Any = None, *, batch: int) -> Sequence:
        """Arrays [T, B, ...], checked, as a source whose position is the number of the next step."""
        xs = joined(self.model, xs)
        return Sequence(self._data(xs, ys, resets, weights, lead=(len(xs), batch)))

    def _check_state(self, state, call):
        refuse_given_away((state.hidden, state.time), f"Learner.{call}(state, ...): this state")
        refuse_unless(
            state.pending is None,
            f"Learner.{call}(state, ...): this state has a prediction whose target has not come: call learner.learn(state, y) "
            "first, or learner.learn(state, None) if none will.",
        )

    def _data(self, x, y, reset, weights, *, lead):
        axis, x = len(lead) - 1, joined(self.model, x)
        shape, batch = np.shape(x), lead[-1]
        if len(shape) > axis and shape[axis] != batch:
            swapped = axis == 1 and shape[0] == batch
            raise InputError(
                f"x has {shape[axis]} streams (shape {list(shape)}), but this state was made with batch={batch}: "
                + (
                    "time comes first here, [T, B, ...], and this looks like [B, T, ...]: use xs.swapaxes(0, 1), and the same "
                    "for ys, resets and weights."
                    if swapped
                    else "the number of streams cannot change under way; make a new state with Learner.init."
                )
            )
        return Data(*check_data(self.model, x, y, reset, weights, lead=lead))

    def _driven(self, data, state):
        mesh = placing.mesh_of(state)
        if mesh is None:
            return program("drive", state.donate)((self._recipe, data), state)
        source, _ = place_source(Sequence(data), jnp.zeros((), jnp.int32), mesh)
        driven = program("drive_spread", state.donate)
        state, losses, predictions, finite = driven((placed(self._recipe, mesh), source.data, mesh), state)
        return state, Output(losses, predictions), finite

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


def _as_norm(clip: float | None, model: Model) -> jax.Array | None:
    """An array, so that another norm needs no other program."""
    return None if clip is None else jnp.asarray(clip, weight_dtype(model.cell))


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
