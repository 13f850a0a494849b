"""The loop over time: one step of all streams, and many of them compiled as one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from evergrad import across, window
from evergrad.cells.base import output_of
from evergrad.estimators.base import Estimator
from evergrad.linearize import initial_state, linearize, output_weights, through_layers, unflatten
from evergrad.model import Model, encode, stream_losses, weight_dtype
from evergrad.parameters import parameters, parted
from evergrad.placing import along, everywhere, place
from evergrad.tasks.base import Data, Source


class State(eqx.Module):
    """All that the next step depends on; a plain pytree."""

    model: Model
    optimiser: Any
    hidden: Float[Array, "B m"]
    track: window.Track
    keys: Array  # one a stream, so that draws do not depend on how streams are spread over devices
    time: UInt32[Array, ""]  # steps taken
    phase: Int[Array, ""]  # steps taken since the last update; negative as long as none of them had a target
    waiting: Any  # the readout's gradient, summed over the phase, where a stride waits for its end
    waiting_output: Any  # likewise that of the cell's weights through its output, where it has some


class Output(eqx.Module):
    """What a step gives: the loss of every stream, and its prediction from before it learned from y."""

    losses: Float[Array, "*T B"]
    predictions: Float[Array, "*T B outputs"]


def start(
    model: Model,
    estimator: Estimator,
    batch: int,
    key: Array,
    optimiser: Any = None,
    mesh: jax.sharding.Mesh | None = None,
) -> State:
    cell = model.cell
    readout = parameters(model.readout)
    state = State(
        model=model,
        optimiser=optimiser,
        hidden=jnp.tile(initial_state(cell)[None], (batch, 1)),
        track=window.start(estimator, cell, batch, mesh),
        keys=jax.random.split(key, batch),
        time=jnp.zeros((), jnp.uint32),
        phase=jnp.zeros((), jnp.int32),
        waiting=jax.tree.map(jnp.zeros_like, readout) if estimator.stride > 1 else None,
        waiting_output=jax.tree.map(jnp.zeros_like, output_weights(cell)) if estimator.stride > 1 else None,
    )
    return state if mesh is None else place(state, axes(state, estimator, mesh), mesh)


def axes(state: State, estimator: Estimator, mesh: jax.sharding.Mesh) -> State:
    """The axis of every array of a state that is cut when it is spread over a mesh, −1 where none is."""
    streams = 0 if across.LANES in mesh.axis_names else -1
    track = None if state.track is None else window.axes(state.track, estimator, state.model.cell, mesh)
    cut = along(streams, state.hidden), along(streams, state.keys), track
    return eqx.tree_at(lambda s: (s.hidden, s.keys, s.track), everywhere(state), cut, is_leaf=lambda leaf: leaf is None)


def drive(
    estimator: Estimator,
    state: State,
    source: Source,
    position: Any,
    steps: int,
    *,
    limit: Array | int | None = None,
    keep: Callable[[Output], Any],
    results: Any = None,
    consume: Callable[[State, Any, Array, Model], Any],
) -> tuple[State, Any, Any, Any]:
    """Takes `steps` steps from a source: the state, the position, `keep(output)` of every step, and the results.

    With a `limit` it stops after so many of them, and the rest of what is kept stays zero.

    `consume(state, results, t, gradient)` gets, at the last step t of every stride, the gradient of the mean loss over
    streams summed over the stride's steps, and returns the new state and results. Where no step of a stride had any
    target, the weights and the optimiser stay as they were.

    A window is folded between inner loops rather than under a condition at every step, so that the influence, the
    largest array there is, is never copied past a condition.
    """

    def step(carry):
        t, state, position, kept, results = carry
        data, position = source.emit(position)
        state, out, seen = _observe(estimator, state, data)
        position = source.hear(position, out.losses, state.model)
        kept = jax.tree.map(lambda all_, one: all_.at[t].set(one), kept, keep(out))
        if estimator.stride == 1:
            state, results = _taught(consume, state, results, t, *_gradient(estimator, state, seen))
        else:
            state = _wait(state, seen)
        return t + 1, state, position, kept, results

    def make_room(carry):
        t, state, *rest = carry
        track = window.make_room(estimator, state.model.cell, state.track, _keys(state))
        return t, eqx.tree_at(lambda s: s.track, state, track), *rest

    def end_stride(carry):
        t, state, position, kept, results = carry
        waited = _Seen(state.track.deltas[state.track.count - 1], state.waiting_output, state.waiting, state.phase > 0)
        state, results = _taught(consume, state, results, t - 1, *_gradient(estimator, state, waited))
        return t, stride_anew(state), position, kept, results

    def unfinished(carry):
        return carry[0] < (steps if limit is None else limit)

    def uninterrupted(carry):
        return unfinished(carry) & ~window.is_full(carry[1].track) & ~_stride_ends(estimator, carry[1])

    def block(carry):
        carry = _when(window.is_full(carry[1].track), make_room, carry)
        carry = _while(uninterrupted, step, carry)
        return carry if estimator.stride == 1 else _when(_stride_ends(estimator, carry[1]), end_stride, carry)

    kept = jax.tree.map(lambda a: jnp.zeros((steps, *a.shape), a.dtype), keep(_no_output(state)))
    carry = (jnp.zeros((), jnp.int32), state, position, kept, results)
    _, state, position, kept, results = _while(unfinished, block if estimator.window else step, carry)
    return state, position, kept, results


def take_one(
    estimator: Estimator, state: State, data: Data, consume: Callable[[State, Any, Array, Model], Any], *, full: bool
) -> State:
    """One step without loop or condition, for a caller who knows whether the window is full (and stride = 1)."""
    if full:
        track = window.make_room(estimator, state.model.cell, state.track, _keys(state))
        state = eqx.tree_at(lambda s: s.track, state, track)
    state, _, seen = _observe(estimator, state, data)
    return _taught(consume, state, None, jnp.zeros((), jnp.int32), *_gradient(estimator, state, seen))[0]


def stride_anew(state: State) -> State:
    """The same with a stride that begins."""
    parts = lambda s: (s.phase, s.waiting, s.waiting_output)  # noqa: E731
    return eqx.tree_at(parts, state, jax.tree.map(jnp.zeros_like, parts(state)), is_leaf=lambda leaf: leaf is None)


def _no_output(state):
    batch, dtype = len(state.hidden), weight_dtype(state.model)
    return Output(jnp.zeros(batch, dtype), jnp.zeros((batch, len(state.model.readout.bias)), dtype))


class _Seen(NamedTuple):
    """Of the mean loss over streams: dL/dh, and the gradients that do not go through h."""

    delta: Float[Array, "B m"]
    in_output: Any  # of the weights in the cell's output
    readout: Any
    target: Bool[Array, ""]  # whether there was any


def _observe(estimator, state, data):
    """One step: the new state, what came out, and what was seen of the loss."""
    cell, batch = state.model.cell, across.all_streams(len(state.hidden))
    x = encode(cell, data.x)
    hidden, memory = jax.vmap(lambda *stream: linearize(cell, *stream))(state.hidden, x, data.reset)
    track = window.remember(estimator, cell, state.track, memory, _keys(state))

    readout, rest = parted(state.model.readout)

    def mean_loss(trained):
        hidden, in_output, readout = trained
        seen = eqx.combine(in_output, cell)
        outputs = jax.vmap(lambda h, x: output_of(seen, unflatten(cell, h), x))(hidden, x)
        losses, predictions = stream_losses(eqx.combine(readout, rest), outputs, data.y, data.weight)
        return losses.sum() / batch, Output(losses, predictions)

    trained = hidden, output_weights(cell), readout
    (delta, *beside), out = eqx.filter_grad(mean_loss, has_aux=True)(trained)
    gradients = through_layers(cell, memory, hidden, delta), *beside
    changed = hidden, track, state.time + jnp.uint32(1)
    seen = _Seen(*gradients, jnp.any(data.weight != 0))
    return eqx.tree_at(lambda s: (s.hidden, s.track, s.time), state, changed), out, seen


def _gradient(estimator, state, seen):
    """And whether there was a target for it."""
    gradient = parameters(state.model)
    cell = window.gradient(estimator, state.model.cell, state.track, seen.delta)
    if estimator.stride == 1:
        cell, seen = _over_lanes(cell, seen)
    else:  # what is beside was summed at every step, so that where a run is cut changes nothing
        cell = across.total(cell)
    cell = cell if seen.in_output is None else jax.tree.map(jnp.add, cell, seen.in_output)
    return eqx.tree_at(lambda m: (m.cell, m.readout), gradient, (cell, seen.readout)), seen.target


def _over_lanes(cell, seen):
    """Of all devices' lanes, by one all-reduce."""
    flag = jnp.asarray(seen.target, seen.delta.dtype)
    cell, in_output, readout, flags = across.total((cell, seen.in_output, seen.readout, flag))
    return cell, _Seen(seen.delta, in_output, readout, flags > 0)


def _taught(consume, state, results, t, gradient, target):
    """What `consume` makes of a gradient. Without any target the weights and the optimiser stay as they are: a momentum
    would move them, and a rate that falls with the updates would fall.
    """
    new, results = consume(state, results, t, gradient)
    parts = lambda s: (s.model, s.optimiser)  # noqa: E731
    choose = lambda a, b: jnp.where(target, a, b) if eqx.is_array(a) else a  # noqa: E731
    chosen = jax.tree.map(choose, parts(new), parts(state))
    return eqx.tree_at(parts, new, chosen, is_leaf=lambda leaf: leaf is None), results


def _wait(state, seen):
    _, seen = _over_lanes(None, seen)
    waited = state.waiting_output, state.waiting
    sums = jax.tree.map(jnp.add, waited, (seen.in_output, seen.readout))
    steps = jnp.abs(state.phase) + 1
    phase = jnp.where((state.phase > 0) | seen.target, steps, -steps)
    changed = window.note(state.track, seen.delta), phase, *sums
    parts = lambda s: (s.track, s.phase, s.waiting_output, s.waiting)  # noqa: E731
    return eqx.tree_at(parts, state, changed, is_leaf=lambda leaf: leaf is None)


def _stride_ends(estimator, state):
    return jnp.abs(state.phase) == (estimator.stride if estimator.stride > 1 else -1)


def _keys(state):
    return jax.vmap(jax.random.fold_in, (0, None))(state.keys, state.time)


def _while(condition, body, carry):
    """lax.while_loop for a carry that may hold leaves that are no arrays (a cell's activation function, say)."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def step(arrays):
        return eqx.filter(body(eqx.combine(arrays, rest)), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(lambda arrays: condition(eqx.combine(arrays, rest)), step, arrays), rest)


def _when(condition, body, carry):
    arrays, rest = eqx.partition(carry, eqx.is_array)
    true = lambda arrays: eqx.filter(body(eqx.combine(arrays, rest)), eqx.is_array)  # noqa: E731
    return eqx.combine(jax.lax.cond(condition, true, lambda arrays: arrays, arrays), rest)
