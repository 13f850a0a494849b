"""Gradients for losses of your own: an influence that is carried along, and asked as often as you like."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad._cells.base import Cell, output_of
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.linearize import initial_state, linearize_all, output_weights, unflatten
from evergrad._core.model import encode
from evergrad._estimators.base import Estimator
from evergrad._pasts.base import Seen, Track


class Followed(eqx.Module):
    """Where B streams are, and what is known of how they came there; a plain pytree.

    Examples:
        >>> cell = eg.GRU(inputs=3, units=4, key=key)
        >>> follower = eg.Follower(eg.RTRL())
        >>> state = follower.init(cell, batch=2, key=key)
        >>> state, seen = follower.step(cell, state, jnp.ones((2, 3)))
        >>> state.hidden.shape, int(state.time)
        ((2, 4), 1)
    """

    hidden: Float[Array, "B m"]
    x: Float[Array, "B inputs"]  # the newest
    track: Track
    keys: Array
    time: UInt32[Array, ""]


class Follower(eqx.Module):
    """Steps a cell along B streams, and at any step gives δ dh/dθ *of each stream*, for any δ and any number of them.

    For losses that `Learner` does not know: several heads with traces of their own, a reward that says only later what a step
    was worth. The influence is carried once, and a gradient is linear in δ, so that an actor and a critic take two contractions and
    no second network. Pure functions; the cell is given to each, since it may have learned in between.

    Examples:
        >>> cell = eg.GRU(inputs=3, units=4, key=key)
        >>> follower = eg.Follower(eg.RTRL())
        >>> state = follower.init(cell, batch=2, key=key)
        >>> state, seen = follower.step(cell, state, jnp.ones((2, 3)))
        >>> follower.gradient(cell, state, jnp.ones((2, 4))).weight.shape  # of each stream
        (2, 8, 16)
    """

    estimator: Estimator

    def __init__(self, estimator: Estimator):
        refuse_unless(
            estimator.past.stride == 1,
            f"`Follower({estimator!r})`: a gradient at every step is asked for: use TBPTT(..., stride=1), or another estimator.",
        )
        self.estimator = estimator

    def init(self, cell: Cell, *, batch: int, key: Array | None = None) -> Followed:
        """Before the first step of `batch` streams."""
        whole_number(batch, 1, f"Follower.init(batch={batch})", "batch", "the number of streams")
        key = require_key(key, f"Follower.init(cell, batch={batch}, key=...)")
        self.estimator.check(cell)
        refuse_unless(
            not cell.layerwise,
            'Follower: a stack needs depth="exact", since δ is that of its output.',
        )
        start = initial_state(cell)
        track = self.estimator.past.start(self.estimator.influence, cell, None, batch)
        x = jnp.zeros((batch, cell.inputs), start.dtype)
        return Followed(
            jnp.tile(start[None], (batch, 1)), x, track, jax.random.split(key, batch), jnp.zeros((), jnp.uint32)
        )

    def step(self, cell: Cell, state: Followed, x: Any, reset: Any = None) -> tuple[Followed, Float[Array, "B n"]]:
        """One step: x [B] ids or [B, inputs], reset [B] bool or None. The state after it, and what the cell puts out."""
        past, influence = self.estimator.past, self.estimator.influence
        keys, x = _keys(state), encode(cell, jnp.asarray(x))
        reset = jnp.zeros(len(x), bool) if reset is None else jnp.asarray(reset)
        track, full = state.track, past.is_full(state.track)
        if full is not False:
            track = _when(full, lambda track: past.make_room(influence, cell, track, keys), track)
        hidden, memory = linearize_all(cell, state.hidden, x, reset)
        track = past.remember(influence, cell, track, memory, keys)
        state = Followed(hidden, x, track, state.keys, state.time + jnp.uint32(1))
        return state, jax.vmap(lambda h, x: output_of(cell, unflatten(cell, h), x))(hidden, x)

    def gradient(self, cell: Cell, state: Followed, delta: Float[Array, "B n"]) -> Cell:
        """δ dh/dθ of every stream, for δ of what the newest step put out: a cell-shaped pytree with B in front."""

        def one(carried, memories, *rest):
            alone = eqx.tree_at(_of_streams, state.track, (carried, memories), is_leaf=lambda leaf: leaf is None)
            return self._gradient(cell, alone, *(a[None] for a in rest))

        single = jax.tree.map(lambda a: a[:, None], state.track.carried)
        memories = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0)[:, :, None], state.track.memories)
        return jax.vmap(one)(single, memories, state.hidden, state.x, delta, _keys(state))

    def summed(self, cell: Cell, state: Followed, delta: Float[Array, "B n"]) -> Cell:
        """The sum of `gradient` over the streams, at a fraction of its cost: for what needs no trace of each."""
        return self._gradient(cell, state.track, state.hidden, state.x, delta, _keys(state))

    def _gradient(self, cell, track, hidden, x, delta, keys):
        def put_out(hidden, weights):
            seen = eqx.combine(weights, cell)
            return jax.vmap(lambda h, x: output_of(seen, unflatten(cell, h), x))(hidden, x)

        _, back = jax.vjp(put_out, hidden, output_weights(cell))
        delta, beside = back(delta)
        seen = Seen(delta, None, None, jnp.ones((), bool))
        past, influence = self.estimator.past, self.estimator.influence
        found, _ = past.gradient(influence, cell, track, hidden, seen, keys)
        return found if beside is None else jax.tree.map(jnp.add, found, beside)


def _of_streams(track):
    return track.carried, track.memories


def _keys(state):
    return jax.vmap(jax.random.fold_in, (0, None))(state.keys, state.time)


def _when(condition, body, track):
    """lax.cond for a track that may hold leaves that are no arrays."""
    arrays, rest = eqx.partition(track, eqx.is_array)

    def true(arrays):
        return eqx.filter(body(eqx.combine(arrays, rest)), eqx.is_array)

    return eqx.combine(jax.lax.cond(condition, true, lambda arrays: arrays, arrays), rest)
