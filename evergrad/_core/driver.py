"""The loop over time: one step of all streams, and many of them compiled as one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad._cells.base import output_of, outputs_of
from evergrad._core import across
from evergrad._core.cut_influence import cut
from evergrad._core.in_memory import in_memory
from evergrad._core.linearize import initial_state, linearize_all, output_weights, through_layers, unflatten
from evergrad._core.model import Model, encode, stream_losses, weight_dtype
from evergrad._core.parameters import parameters, parted
from evergrad._core.placing import along, everywhere, place
from evergrad._core.readouts import Readout
from evergrad._core.sources import Data, Source
from evergrad._estimators.base import Estimator
from evergrad._native import random
from evergrad._pasts import base as pasts, slots
from evergrad._pasts.base import Seen, Track


class State(eqx.Module):
    """All that the next step depends on; a plain pytree.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> state = eg.Learner(model, eg.OK(rank=4), optax.sgd(0.1)).init(batch=2, key=key)
        >>> state.model.cell.units, state.hidden.shape, int(state.time)
        (8, (2, 8), 0)
    """

    model: Model
    optimiser: Any
    hidden: Float[Array, "B m"]
    track: Track
    keys: UInt32[Array, "B words"]  # one a stream, so that draws do not depend on how streams are spread over devices
    time: UInt32[Array, ""]  # steps taken
    generator: str = eqx.field(static=True)  # whose keys these are
    donate: bool = eqx.field(static=True, default=True)  # whether its memory is given away to the next state
    pending: Any = None  # x and reset of a step that was predicted and has not been learned from

    @property
    def cell_state(self) -> Any:
        """The hidden states in the cell's own structure, streams in front: what `Model.run` takes and gives."""
        return jax.vmap(lambda hidden: unflatten(self.model.cell, hidden))(self.hidden)


class Output(eqx.Module):
    """What a step gives: the loss of every stream, and its prediction from before it learned from y.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> learner = eg.Learner(model, eg.UORO(), optax.sgd(0.1))
        >>> xs = ys = jnp.zeros((10, 2), int)
        >>> _, out = learner.run(learner.init(batch=2, key=key), xs, ys)
        >>> out.losses.shape, out.predictions.shape
        ((10, 2), (10, 2, 4))
    """

    losses: Float[Array, "*T B"]
    predictions: Any  # [*T, B, outputs], or a pytree of such arrays


Consume = Callable[[State, Any, Array, Model, int, Array], tuple[State, Any]]


def start(
    model: Model,
    estimator: Estimator,
    batch: int,
    key: Array,
    optimiser: Any = None,
    mesh: jax.sharding.Mesh | None = None,
) -> State:
    cell, keys = model.cell, jax.random.split(key, batch)
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    state = State(
        model=model,
        optimiser=optimiser,
        hidden=jnp.tile(initial_state(cell)[None], (batch, 1)),
        track=begun(estimator, model, batch, mesh),
        keys=jax.random.key_data(keys) if typed else keys,
        time=jnp.zeros((), jnp.uint32),
        generator=str(jax.random.key_impl(keys)) if typed else str(jax.random.key_impl(jax.random.key(0))),
    )
    return state if mesh is None else place(state, axes(state, estimator, mesh), mesh)


def begun(estimator: Estimator, model: Model, batch: int, mesh: jax.sharding.Mesh | None = None) -> Track:
    """Nothing known yet of the past of so many streams."""
    waiting = parameters(model.readout), output_weights(model.cell)
    return pasts.began(estimator.past, estimator.influence, model.cell, waiting, batch, mesh)


def axes(state: State, estimator: Estimator, mesh: jax.sharding.Mesh) -> State:
    """The axis of every array of a state that is cut when it is spread over a mesh, −1 where none is."""
    streams = 0 if across.LANES in mesh.axis_names else -1
    track = None if state.track is None else pasts.axes(state.track, estimator.influence, state.model.cell, mesh)
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
    consume: Consume,
    feedback: Float[Array, "n outputs"] | None = None,
) -> tuple[State, Any, Any, Any]:
    """Takes `steps` steps from a source: the state, the position, `keep(output)` of every step, and the results.

    With a `limit` it stops after so many of them, and the rest of what is kept stays zero.

    `consume(state, results, t, gradient, steps, target)` gets, at every step t at which a gradient is due, that of the mean
    loss over streams summed over the `steps` steps since the last one, and returns the new state and results. `target` says
    whether any of these steps had one: where none had, weights and optimiser must stay as they were.

    Room is made, and gradients that wait are taken, between inner loops rather than under a condition at every step, so
    that the influence, the largest array there is, is never copied past a condition. They are loops themselves, of one round
    at most, since past a condition the weights would be copied too.
    """
    past, waits = estimator.past, estimator.past.stride > 1
    fills = past.is_full(state.track) is not False

    def step(carry):
        t, state, position, kept, results = carry
        data, position = source.emit(position)
        state, out, seen = _observe(estimator, state, data, feedback)
        position = source.hear(position, out.losses, state.model)
        kept = jax.tree.map(lambda all_, one: slots.written(all_, one, t), kept, keep(out))
        if waits:
            state = _with_track(state, past.wait(state.track, _over_lanes(seen)))
        else:
            state, results = _learned(estimator, consume, state, results, t, seen)
        return t + 1, state, position, kept, results

    def make_room(carry):
        t, state, *rest = carry
        return t, _with_room(estimator, state), *rest

    def end_stride(carry):
        t, state, position, kept, results = carry
        seen, track = past.waited(state.track)
        state, results = _learned(estimator, consume, _with_track(state, track), results, t - 1, seen)
        return t, state, position, kept, results

    def unfinished(carry):
        return carry[0] < (steps if limit is None else limit)

    def uninterrupted(carry):
        track, goes_on = carry[1].track, unfinished(carry)
        goes_on = goes_on & ~past.is_full(track) if fills else goes_on
        return goes_on & ~past.due(track) if waits else goes_on

    def block(carry):
        carry = _while(lambda carry: past.is_full(carry[1].track), make_room, carry) if fills else carry
        carry = _while(uninterrupted, step, carry)
        return _while(lambda carry: past.due(carry[1].track), end_stride, carry) if waits else carry

    kept = jax.tree.map(lambda a: jnp.zeros((steps, *a.shape), a.dtype), keep(_no_output(state)))
    carry = (jnp.zeros((), jnp.int32), state, position, kept, results)
    _, state, position, kept, results = _while(unfinished, block if fills or waits else step, carry)
    return state, position, kept, results


def take_one(
    estimator: Estimator, state: State, data: Data, consume: Consume, *, full: bool, feedback: Array | None = None
) -> State:
    """One step without loop or condition, for a caller who knows whether room must be made, and of a past without stride."""
    state = _with_room(estimator, state) if full else state
    state, _, seen = _observe(estimator, state, data, feedback)
    return _learned(estimator, consume, state, None, jnp.zeros((), jnp.int32), seen)[0]


@eqx.filter_jit
def foretold(model: Model, hidden: Float[Array, "B m"], x: Array, reset: Array) -> Any:
    """The predictions of a step that is not taken."""
    cell, x, readout = model.cell, encode(model.cell, x), model.readout
    hidden, _ = linearize_all(cell, hidden, x, reset)
    outputs = jax.vmap(lambda h, x: output_of(cell, unflatten(cell, h), x))(hidden, x)
    return jax.vmap(lambda h: readout.predict(readout(h)))(outputs)


def _no_output(state):
    """Zeros in the place of what a step will give."""
    batch, dtype, readout = len(state.hidden), weight_dtype(state.model), state.model.readout
    seen = jax.ShapeDtypeStruct((outputs_of(state.model.cell),), dtype)
    form = jax.eval_shape(lambda h: readout.predict(readout(h)), seen)
    return Output(jnp.zeros(batch, dtype), jax.tree.map(lambda a: jnp.zeros((batch, *a.shape), a.dtype), form))


def _observe(estimator, state, data, feedback):
    """One step: the new state, what came out, and what was seen of the loss."""
    cell, batch = state.model.cell, across.all_streams(len(state.hidden))
    x, reset = encode(cell, data.x), _looked_up(data.reset, state.hidden.dtype)
    hidden, memory = linearize_all(cell, state.hidden, x, reset)
    past, influence, joint = estimator.past, cut(estimator.influence), estimator.past.joint(estimator.influence)
    track = state.track if joint else past.remember(influence, cell, state.track, memory, _keys(state))

    readout, rest = parted(state.model.readout)

    def mean_loss(trained):
        hidden, in_output, readout = trained
        seen = eqx.combine(in_output, cell)
        outputs = jax.vmap(lambda h, x: output_of(seen, unflatten(cell, h), x))(hidden, x)
        losses, predictions = stream_losses(eqx.combine(readout, rest), outputs, data.y, data.weight, feedback)
        return losses.sum() / batch, (Output(losses, predictions), outputs)

    trained = hidden, output_weights(cell), readout
    (delta, in_output, in_readout), (out, outputs) = eqx.filter_grad(mean_loss, has_aux=True)(trained)
    delta = through_layers(cell, memory, hidden, delta)
    taught = _taught(state.model.readout, outputs, data)
    changed = hidden, track, state.time + jnp.uint32(1), taught
    newest = (memory, _keys(state)) if joint else None
    seen = Seen(delta, in_output, in_readout, jnp.any(data.weight != 0), newest)
    return eqx.tree_at(lambda s: (s.hidden, s.track, s.time, s.model.readout), state, changed), out, seen


def _looked_up(reset, dtype):
    """The same, no longer a place in a sequence: XLA would look there again for every number that depends on it."""
    return in_memory(reset.astype(dtype)) > 0


def _taught(readout, outputs, data):
    """A readout that learns by itself sees the streams of all devices."""
    if type(readout).taught is Readout.taught or data.y is None:
        return readout
    seen = jax.lax.stop_gradient((outputs, data.y, data.weight))
    h, y, weight = jax.tree.map(lambda a: across.all_lanes(a, axis=0), seen)
    return readout.taught(h, y, jnp.asarray(weight, h.dtype))


def _learned(estimator, consume, state, results, t, seen):
    """What `consume` makes of the gradient of what was seen."""
    state, gradient, target = _gradient(estimator, state, seen)
    return consume(state, results, t, gradient, estimator.past.stride, target)


def _gradient(estimator, state, seen):
    """The state after it, the gradient of the model, and whether there was a target for it."""
    past, model = estimator.past, state.model
    seen = eqx.tree_at(lambda s: s.target, seen, past.has_target(state.track, seen))
    influence = cut(estimator.influence)
    if past.joint(estimator.influence):
        cell, track = past.advanced(influence, model.cell, state.track, seen)
    else:
        cell, track = past.gradient(influence, model.cell, state.track, state.hidden, seen, _keys(state))
    if past.stride == 1:
        cell, seen = _total(cell, seen)
    else:  # what is beside was summed at every step, so that where a run is cut changes nothing
        cell = across.total(cell)
    cell = cell if seen.in_output is None else jax.tree.map(jnp.add, cell, seen.in_output)
    gradient = eqx.tree_at(lambda m: (m.cell, m.readout), parameters(model), (cell, seen.readout))
    return _with_track(state, track), gradient, seen.target


def _total(cell, seen):
    """Of all devices' lanes, by one all-reduce."""
    flag = jnp.asarray(seen.target, seen.delta.dtype)
    cell, in_output, readout, flags = across.total((cell, seen.in_output, seen.readout, flag))
    return cell, Seen(seen.delta, in_output, readout, flags > 0)


def _over_lanes(seen):
    return _total(None, seen)[1]


def _with_room(estimator, state):
    track = estimator.past.make_room(cut(estimator.influence), state.model.cell, state.track, _keys(state))
    return _with_track(state, track)


def _with_track(state, track):
    return eqx.tree_at(lambda s: s.track, state, track)


def _keys(state):
    keys = jax.random.wrap_key_data(state.keys, impl=random.generator(state.generator, parameters(state.model)))
    return jax.vmap(jax.random.fold_in, (0, None))(keys, state.time)


def _while(condition, body, carry):
    """lax.while_loop for a carry that may hold leaves that are no arrays (a cell's activation function, say)."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def step(arrays):
        return eqx.filter(body(eqx.combine(arrays, rest)), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(lambda arrays: condition(eqx.combine(arrays, rest)), step, arrays), rest)
