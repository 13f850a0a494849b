"""Chunks at whose end a critic foretells what the future would carry back: synthetic gradients."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad._core import across
from evergrad._core.linearize import initial_state
from evergrad._pasts.base import Track
from evergrad._pasts.chunks import Strided


class Critic(eqx.Module):
    """ĉ(h) = (h, 1) A, for the state of all streams alike."""

    weight: Float[Array, "m1 m"]  # A, as it is being fitted
    frozen: Float[Array, "m1 m"]  # A, as it is asked
    fits: Int[Array, ""]


class Foretold(Strided):
    """Every window is carried back with ĉ(h) added to δ at its end, and teaches ĉ what arrives at its beginning.

    The losses after the exit are the critic's, and the exit step's own loss is not: half-open, so that none is counted twice.
    """

    horizon: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    refresh: int = eqx.field(static=True)

    def __init__(self, horizon: int, stride: int, rate: float, refresh: int):
        self.horizon, self.stride, self.rate, self.refresh = horizon, stride, rate, refresh

    def start(self, influence, cell, waiting, batch):
        track, state = self.empty(cell, waiting, batch), initial_state(cell)
        critic = nothing_foretold(state)
        entered = jnp.tile(state[None], (batch, 1))
        return eqx.tree_at(_learned, track, (critic, entered), is_leaf=lambda leaf: leaf is None)

    def gradient(self, influence, cell, track, hidden, seen, keys):
        streams = across.all_streams(
            len(hidden)
        )  # δ is of the mean loss over these; the critic is of each one's own loss
        foretold = with_one(hidden) @ track.shared.frozen / streams
        left, gradient = self.back(cell, track, seen.delta + foretold)
        critic = self.fitted(track.shared, track.streams, streams * left)
        return gradient, eqx.tree_at(_learned, track, (critic, hidden))

    def fitted(self, critic: Critic, entered: Float[Array, "B m"], target: Float[Array, "B m"]) -> Critic:
        """One step of normalised least mean squares towards what arrived; the copy that is asked follows now and then."""
        seen = with_one(entered)
        error = seen @ critic.weight - target
        slope = across.total(seen.T @ error) / across.all_streams(len(seen))
        weight = critic.weight - self.rate * slope / across.mean(jnp.sum(seen * seen, axis=1))
        fits = critic.fits + 1
        return Critic(weight, jnp.where(fits % self.refresh == 0, weight, critic.frozen), fits)


def nothing_foretold(state: Float[Array, " m"]) -> Critic:
    weight, frozen = (jnp.zeros((state.size + 1, state.size), state.dtype) for _ in range(2))  # memory is given away
    return Critic(weight, frozen, jnp.zeros((), jnp.int32))


def with_one(hidden: Float[Array, "B m"]) -> Float[Array, "B m1"]:
    return jnp.concatenate([hidden, jnp.ones((len(hidden), 1), hidden.dtype)], axis=1)


def _learned(track: Track):
    return track.shared, track.streams
