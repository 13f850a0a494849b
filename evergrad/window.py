"""The newest steps kept as they are, in front of any estimator's influence.

With a window of k the last k steps, at least, are remembered, and the influence covers what came before. A gradient
is carried back through the remembered steps, exactly, and what is left of it is contracted with the influence. When
2k − 1 steps are remembered the oldest k are folded into the influence at once. So the newest k steps never carry noise
and an estimator sees its steps in blocks. A step is remembered with the weights that it was taken with, so that a window
changes what is approximated, and not what is computed: RTRL learns the same with any. TBPTT, which has no influence to
agree with, carries back with the weights as they are now.

window=0 remembers nothing: every step goes to the estimator at once, as in the papers.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad import across
from evergrad.cells.base import Cell, KroneckerCell
from evergrad.costs import Cost, sizes_of
from evergrad.estimators.base import Estimator
from evergrad.linearize import (
    KroneckerMemory,
    Memory,
    initial_state,
    linearize,
    pullback,
    through_step,
    transition,
)
from evergrad.parameters import parameters, repeated
from evergrad.placing import along, everywhere, shardings


class Track(eqx.Module):
    """What is known of the past of B streams."""

    carried: Any  # the estimator's, streams first
    memories: Memory | None  # [slots, B, ...], the oldest first
    weights: Any  # [slots, ...], the cell's at the remembered steps, the same for all streams; None if they are not asked for
    deltas: Float[Array, "slots B m"] | None  # dL/dh of the remembered steps, where a stride waits for its end
    count: Int[Array, ""]  # how many slots are in use


def start(estimator: Estimator, cell: Cell, batch: int, mesh: jax.sharding.Mesh | None = None) -> Track:
    """Nothing known yet; on a mesh, made in parts where they belong, since the whole may be too large for a device."""
    make = lambda: _start(estimator, cell, batch)  # noqa: E731
    if mesh is None:
        return make()
    places = shardings(axes(jax.eval_shape(make), estimator, cell, mesh), mesh)
    return jax.jit(make, out_shardings=places)()


def _start(estimator, cell, batch):
    carried = jax.tree.map(lambda a: jnp.broadcast_to(a[None], (batch, *a.shape)), estimator.init(cell))
    state, x = initial_state(cell), jnp.zeros(cell.inputs, initial_state(cell).dtype)
    _, memory = eqx.filter_eval_shape(linearize, cell, state, x, jnp.zeros((), bool))
    slots = max(2 * estimator.window - 1, 0)
    memories = jax.tree.map(lambda a: jnp.zeros((slots, batch, *a.shape), a.dtype), memory) if slots else None
    trained = parameters(cell) if slots and estimator.horizon is None else None
    weights = jax.tree.map(lambda a: jnp.zeros((slots, *a.shape), a.dtype), trained)
    deltas = jnp.zeros((slots, batch, state.size), state.dtype) if estimator.stride > 1 else None
    return Track(carried, memories, weights, deltas, jnp.zeros((), jnp.int32))


def cost(estimator: Estimator, cell: Cell) -> Cost:
    """Of remembering and of carrying back, a stream and step."""
    if not estimator.window:
        return Cost()
    k, slots = estimator.window, 2 * estimator.window - 1
    back = (k if estimator.horizon else 1.5 * k) / estimator.stride
    maps, rest = sizes_of(cell)
    parameters = sum(each.parameters for each in (*maps, *rest))
    if isinstance(cell, KroneckerCell):
        (one,) = maps
        remembered = slots * (one.p + one.q * one.m / one.n + one.m * one.m / one.n)
        through = one.n * one.q
    else:
        remembered, through = slots * (initial_state(cell).size + cell.inputs), 2 * parameters
    return Cost(slots * parameters / estimator.stride, back * through, 2 * remembered / k, 1.1 * remembered)


def axes(track: Track, estimator: Estimator, cell: Cell, mesh: jax.sharding.Mesh) -> Track:
    """The axis of every array that is cut when a track is spread over a mesh, −1 where none is."""
    if across.LANES not in mesh.axis_names:
        carried = jax.tree.map(lambda axis: axis if axis < 0 else axis + 1, estimator.split(cell, mesh.size))
        return eqx.tree_at(lambda t: t.carried, everywhere(track), carried)
    cut = along(0, track.carried), along(1, track.memories), along(1, track.deltas)
    parts = lambda t: (t.carried, t.memories, t.deltas)  # noqa: E731
    return eqx.tree_at(parts, everywhere(track), cut, is_leaf=lambda leaf: leaf is None)


def is_full(track: Track) -> Array:
    return track.count == len(track.memories.alive)


def full_after(estimator: Estimator, steps: int) -> bool:
    """The same, from the number of steps since the start."""
    k = estimator.window
    return k > 0 and steps >= 2 * k - 1 and steps % k == k - 1


def make_room(estimator: Estimator, cell: Cell, track: Track, keys: Array) -> Track:
    """Folds the oldest k steps of a full window into the influence."""
    k = estimator.window
    oldest = jax.tree.map(lambda a: a[:k], track.memories)
    oldest = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), oldest)
    weights = jax.tree.map(lambda a: a[:k], track.weights)
    cells = repeated(cell, k) if weights is None else eqx.combine(weights, cell)
    return Track(
        estimator.fold_all(track.carried, cells, oldest, keys),
        jax.tree.map(lambda a: jnp.roll(a, -k, axis=0), track.memories),
        jax.tree.map(lambda a: a.at[: len(a) - k].set(a[k:]), track.weights),
        None if track.deltas is None else jnp.roll(track.deltas, -k, axis=0),
        track.count - k,
    )


def remember(estimator: Estimator, cell: Cell, track: Track, memory: Memory, keys: Array) -> Track:
    """One step more. A window must have room."""
    if not estimator.window:
        return eqx.tree_at(lambda t: t.carried, track, estimator.step_all(track.carried, cell, memory, keys))
    put = lambda slots, new: slots.at[track.count].set(new)  # noqa: E731
    memories = jax.tree.map(put, track.memories, memory)
    weights = None if track.weights is None else jax.tree.map(put, track.weights, parameters(cell))
    return Track(track.carried, memories, weights, track.deltas, track.count + 1)


def note(track: Track, delta: Float[Array, "B m"]) -> Track:
    """Keeps dL/dh of the newest step until its stride ends."""
    return eqx.tree_at(lambda t: t.deltas, track, track.deltas.at[track.count - 1].set(delta))


def gradient(estimator: Estimator, cell: Cell, track: Track, delta: Float[Array, "B m"]) -> Cell:
    """Σ over the streams of δ G, with δ = dL/dh at the newest step, or at all steps of a stride if they were noted."""
    if not estimator.window:
        return estimator.gradient(track.carried, cell, delta)
    back = _back_and_pulled if isinstance(track.memories, KroneckerMemory) else _pulled_back
    left, inside = back(estimator, cell, track, delta)
    return jax.tree.map(jnp.add, inside, estimator.gradient(track.carried, cell, left))


def _back_and_pulled(estimator, cell, track, delta):
    """What is left of δ before the first remembered step, and Σ δ F over the steps that it reaches.

    F of a Kronecker cell has no weights in it, and is zero in an unused slot: the sum is one product.
    """
    slots = len(track.memories.alive)

    def back(i, carry):
        delta, deltas = carry
        slot, then, memory = _remembered(cell, track, i)
        delta = _with_noted(estimator, track, i, slot, delta)
        vecmat = jax.vmap(lambda memory, v: transition(then, memory).vecmat(v))
        return vecmat(memory, delta), deltas.at[slot].set(delta)

    deltas = jnp.zeros((slots, *delta.shape), delta.dtype)
    left, deltas = jax.lax.fori_loop(0, _reach(estimator, track), back, (delta, deltas))
    return left, pullback(cell, track.memories, deltas)


def _pulled_back(estimator, cell, track, delta):
    """The same for any cell, by an ordinary backward pass."""

    def back(i, carry):
        delta, total = carry
        slot, then, memory = _remembered(cell, track, i)
        left, found = through_step(then, memory, _with_noted(estimator, track, i, slot, delta))
        return left, jax.tree.map(jnp.add, total, found)

    nothing = jax.tree.map(jnp.zeros_like, parameters(cell))
    return jax.lax.fori_loop(0, _reach(estimator, track), back, (delta, nothing))


def _reach(estimator, track):
    return track.count if estimator.horizon is None else jnp.minimum(track.count, estimator.horizon)


def _remembered(cell, track, i):
    """The slot of the step that lies i steps back, the cell that it is carried back with, and its memory."""
    slot = track.count - 1 - i
    then = cell if track.weights is None else eqx.combine(jax.tree.map(lambda a: a[slot], track.weights), cell)
    return slot, then, jax.tree.map(lambda a: a[slot], track.memories)


def _with_noted(estimator, track, i, slot, delta):
    if track.deltas is None:
        return delta
    return delta + jnp.where((i > 0) & (i < estimator.stride), track.deltas[slot], 0)
