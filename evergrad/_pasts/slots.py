"""Remembered steps in slots, and δ carried back through them: what all pasts that remember have in common.

Slots are filled in order, and when all are in use from the first one on again, unless the oldest are taken away before. So
`count` tells both how many are in use and which is next: from the second round on it lies between one and two rounds.
"""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.costs import Cost, sizes_of
from evergrad._core.linearize import (
    KroneckerMemory,
    Memory,
    initial_state,
    linearize,
    of_columns,
    recurrent_weight,
    through_columns,
    through_step,
)
from evergrad._core.not_none import not_none
from evergrad._core.parameters import parameters
from evergrad._native import backward
from evergrad._pasts.base import Track

Changed = Callable[[Array, Float[Array, "B m"]], Float[Array, "B m"]]


def empty(cell: Cell, slots: int, batch: int, *, deltas: bool = False, weights: bool = False) -> Track:
    """Room for so many steps; for their dL/dh, and for the cell's weights at each of them, if these are asked for."""
    state, x = initial_state(cell), jnp.zeros(cell.inputs, initial_state(cell).dtype)
    _, memory = eqx.filter_eval_shape(linearize, cell, state, x, jnp.zeros((), bool))

    def in_slots(a, *lead):
        return jnp.zeros((slots, *lead, *a.shape), a.dtype)

    return Track(
        carried=None,
        memories=jax.tree.map(lambda a: in_slots(a, batch), memory),
        weights=jax.tree.map(in_slots, parameters(cell)) if weights else None,
        deltas=in_slots(state, batch) if deltas else None,
        count=jnp.zeros((), jnp.int32),
    )


def count_of(track: Track) -> int:
    return len(not_none(track.memories).alive)


def in_use(track: Track) -> Array:
    """How many steps are remembered."""
    return jnp.minimum(track.count, count_of(track))


def slot_of(track: Track, i: Array | int) -> Array:
    """Where the step is that lies i steps back."""
    return (track.count - 1 - i) % count_of(track)


def written(all_: Array, one: Array, at: Array) -> Array:
    """One entry of the first axis written over, at a place that is there: XLA need not look whether it is."""
    return jax.lax.dynamic_update_index_in_dim(all_, one, at, 0, allow_negative_indices=False)


def put(cell: Cell, track: Track, memory: Memory, *, round_: bool = True) -> Track:
    """One step more in the next slot; after the last comes the first again, unless room is made before (`round_` is False)."""
    slots = count_of(track)
    at = jax.lax.rem(track.count, jnp.int32(slots)) if round_ else track.count
    count = jnp.where(track.count == 2 * slots - 1, slots, track.count + 1) if round_ else track.count + 1

    def write(slot, new):
        return written(slot, new, at)

    memories = jax.tree.map(write, track.memories, memory)
    weights = None if track.weights is None else jax.tree.map(write, track.weights, parameters(_effective(cell)))
    changed = memories, weights, count
    return eqx.tree_at(lambda t: (t.memories, t.weights, t.count), track, changed, is_leaf=_is_none)


def noted(track: Track, delta: Float[Array, "B m"]) -> Track:
    """dL/dh of the newest step kept beside it."""
    deltas = written(not_none(track.deltas), delta, jax.lax.rem(track.count - 1, jnp.int32(count_of(track))))
    return eqx.tree_at(lambda t: t.deltas, track, deltas)


def forget(track: Track, k: int) -> Track:
    """The same without the oldest k steps, of which none has been written over."""

    def rolled(a):
        return jnp.roll(a, -k, axis=0)

    changed = (
        jax.tree.map(rolled, track.memories),
        jax.tree.map(lambda a: a.at[: len(a) - k].set(a[k:]), track.weights),
        None if track.deltas is None else rolled(track.deltas),
        track.count - k,
    )
    return eqx.tree_at(lambda t: (t.memories, t.weights, t.deltas, t.count), track, changed, is_leaf=_is_none)


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _effective(cell: Cell) -> Cell:
    """With the weights that do not exist at zero, as the cell uses them."""
    if not isinstance(cell, KroneckerCell) or not cell.is_masked:
        return cell
    return eqx.tree_at(lambda c: c.weight, cell, cell.effective_weight)


def carried_back(
    cell: Cell,
    track: Track,
    delta: Float[Array, "B m"],
    reach: Array | int,
    *,
    waited: int = 1,
    arriving: Changed | None = None,
) -> tuple[Float[Array, "B m"], Cell]:
    """What is left of δ before the `reach`-th newest step, and Σ δ F over the steps that it passes.

    Of the newest `waited` steps dL/dh is noted, and added to δ where it arrives at them; it is the newest one's already.
    `arriving(i, δ)` says otherwise what becomes of δ where it arrives at the step that lies i steps back; it is for pasts that
    reach far fewer steps than they have slots.
    """
    if arriving is not None:
        return _pulled_back(cell, track, delta, reach, arriving)
    if not isinstance(track.memories, KroneckerMemory):
        return _pulled_back(cell, track, delta, reach, _noted_added(track, waited))
    known = cast(KroneckerCell, cell)
    left, columns = backward.back_or(_back, known, track, delta, jnp.asarray(reach, jnp.int32), waited)
    return left, of_columns(known, track.memories.regressor, columns)


def _noted_added(track: Track, waited: int) -> Changed:
    def arriving(i, delta):
        if waited == 1:
            return delta
        own = not_none(track.deltas)[slot_of(track, i)]
        return delta + jnp.where((i > 0) & (i < waited), own, 0)

    return arriving


def _back(cell, track, delta, reach, waited):
    """δ D of every slot besides, zero in an unused one. F of a Kronecker cell has no weights in it: its sum is one product."""
    now, arriving = recurrent_weight(cell), _noted_added(track, waited)

    def back(i, carry):
        delta, all_columns = carry
        slot, then, memory = _remembered(cell, track, i)
        left, columns = through_columns(now if then is cell else recurrent_weight(then), memory, arriving(i, delta))
        return left, written(all_columns, columns, slot)

    nothing = jnp.zeros((*track.memories.regressor.shape[:2], cell.weight.shape[1]), delta.dtype)
    return jax.lax.fori_loop(0, reach, back, (delta, nothing))


def _pulled_back(cell, track, delta, reach, arriving):
    """Of any cell, step by step."""

    def back(i, carry):
        delta, total = carry
        _, then, memory = _remembered(cell, track, i)
        left, found = through_step(then, memory, arriving(i, delta))
        return left, jax.tree.map(jnp.add, total, found)

    nothing = jax.tree.map(jnp.zeros_like, parameters(cell))
    return jax.lax.fori_loop(0, reach, back, (delta, nothing))


def _remembered(cell, track, i):
    """The slot of the step that lies i steps back, the cell that it is carried back with, and its memory."""
    slot = slot_of(track, i)
    then = cell if track.weights is None else eqx.combine(jax.tree.map(lambda a: a[slot], track.weights), cell)
    return slot, then, jax.tree.map(lambda a: a[slot], track.memories)


def cost(cell: Cell, slots: int, period: int, back: int | float, stride: int | float = 1) -> Cost:
    """Of remembering so many steps, moved once a period, and of carrying δ back through `back` of them a step."""
    maps, rest = sizes_of(cell)
    parameters = sum(each.parameters for each in (*maps, *rest))
    if isinstance(cell, KroneckerCell):
        (one,) = maps
        remembered = slots * (one.p + one.q * one.m / one.n + one.m * one.m / one.n)
        through = one.n * one.q
    else:
        remembered, through = slots * (initial_state(cell).size + cell.inputs), 2 * parameters
    return Cost(slots * parameters / stride, back * through, 2 * remembered / period, 1.1 * remembered)
