"""Backpropagation cut at random places, with what is left made up for by weights: no bias at the price of truncation.

After the τ-th step of a segment it is cut with chance c(τ), and what crosses a place where it might have been cut, and
was not, is multiplied by 1/(1 − c(τ)), inside the recursion. Two forms:

    Segments:  λ_t = δ_t + [not cut after t]/(1 − c_t) λ_{t+1} H_{t+1},  ĝ = Σ λ_t F_t, booked where a segment ends
    Rolling:   ĝ_t = Σ_{j ≤ K_t} δ_t H_t⋯H_{t−j+1} F_{t−j} / Q(j),  Q(j) = P(K ≥ j) = Π_{τ ≤ j} (1 − c(τ)), at every step

Every stream has its own cuts. No more than `cap` steps are remembered: the terms further back are lost, which is all the
bias there is.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evergrad._core.costs import Cost
from evergrad._core.not_none import not_none
from evergrad._pasts import slots
from evergrad._pasts.newest import Newest


class Chances(eqx.Module):
    """c(τ), τ = 1, 2, …: the chance that a segment is cut after its τ-th step. Segments have the mean length `mean`.

    "paper" is c(τ) = (α−1)/((α−2)·mean + τ), under which long segments are rare but not so rare that their weights have
    no variance (α > 3); "constant" is c = 1/mean, under which the weights grow exponentially: for comparison only.
    """

    mean: int = eqx.field(static=True)
    cap: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    schedule: str = eqx.field(static=True)

    def cuts(self) -> np.ndarray:
        """c(1), …, c(cap)."""
        steps = np.arange(1, self.cap + 1)
        falling = (self.alpha - 1) / ((self.alpha - 2) * self.mean + steps)
        return falling if self.schedule == "paper" else np.full(self.cap, 1 / self.mean)

    def survival(self) -> np.ndarray:
        """Q(0) = 1, …, Q(cap)."""
        return np.concatenate([[1.0], np.cumprod(1 - self.cuts())])

    def lost(self) -> float:
        """Q(cap), the chance that a segment would have been longer than the cap."""
        return float(self.survival()[-1])


class RandomHorizon(Newest):
    """What both forms have in common."""

    chances: eqx.AbstractVar[Chances]
    stride: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    @property
    def horizon(self) -> int:
        return self.chances.cap

    def unbiased(self, influence):
        """Up to the cap: what lies further back than that is lost."""
        return True

    def cost(self, cell):
        count, mean = self.horizon, self.chances.mean
        return slots.cost(cell, count, count, mean, count / mean) + Cost(calls=18 * mean)

    def _factors(self, like: Array) -> Float[Array, " cap"]:
        """1/(1 − c(τ)), τ = 1, …"""
        return jnp.asarray(1 / (1 - self.chances.cuts()), like.dtype)


class Segment(eqx.Module):
    """Where each stream is in its segment."""

    step: Int[Array, " B"]  # τ of the newest step
    ends: Bool[Array, " B"]  # whether it is cut after that


class Segments(RandomHorizon):
    """The paper's form: the gradient of all losses of a segment, where it ends."""

    chances: Chances

    @property
    def delay(self) -> int:
        return self.horizon - 1

    def start(self, influence, cell, waiting, batch):
        track = slots.empty(cell, self.horizon, batch, deltas=True, weights=True)
        nowhere = Segment(jnp.zeros(batch, jnp.int32), jnp.ones(batch, bool))
        return eqx.tree_at(lambda t: t.streams, track, nowhere, is_leaf=lambda leaf: leaf is None)

    def remember(self, influence, cell, track, memory, keys):
        step = jnp.where(track.streams.ends, 1, track.streams.step + 1)
        here = Segment(step, self.drawn(keys, step) | (step == self.horizon))
        return eqx.tree_at(lambda t: t.streams, slots.put(cell, track, memory), here)

    def drawn(self, keys: Array, step: Int[Array, " B"]) -> Bool[Array, " B"]:
        """Whether each stream is cut after this step of its segment."""
        chance = jnp.asarray(self.chances.cuts(), jnp.float32)[step - 1]
        return jax.vmap(lambda key: jax.random.uniform(key, dtype=jnp.float32))(keys) < chance

    def has_target(self, track, seen):
        """Or any target of a segment that ends here."""
        ages = slots.slot_of(
            track, jnp.arange(slots.count_of(track), dtype=jnp.int32)
        )  # and slots: each is the other's
        ending = ages[:, None] < self._lengths(track)[None]
        return seen.target | jnp.any(ending & jnp.any(track.deltas != 0, axis=2))

    def gradient(self, influence, cell, track, hidden, seen, keys):
        track = slots.noted(track, seen.delta)
        lengths, factors = self._lengths(track), self._factors(seen.delta)

        def arriving(i, delta):
            crossed = factors[jnp.maximum(lengths - i - 1, 0)][:, None] * delta
            return jnp.where((i < lengths)[:, None], not_none(track.deltas)[slots.slot_of(track, i)] + crossed, 0)

        nothing = jnp.zeros_like(seen.delta)
        return slots.carried_back(cell, track, nothing, lengths.max(), arriving=arriving)[1], track

    def _lengths(self, track):
        """Of the segments that end here, 0 for the others."""
        return jnp.where(track.streams.ends, track.streams.step, 0)


class Rolling(RandomHorizon):
    """A horizon drawn anew at every step, and a gradient at every step."""

    chances: Chances

    def start(self, influence, cell, waiting, batch):
        return slots.empty(cell, self.horizon, batch, weights=True)

    def drawn(self, keys: Array) -> Int[Array, " B"]:
        """K: how many steps each stream's gradient goes back beyond the newest one."""
        reached = jnp.asarray(self.chances.survival()[1:-1], jnp.float32)
        uniform = jax.vmap(lambda key: jax.random.uniform(key, dtype=jnp.float32))(keys)
        return jnp.sum(uniform[:, None] < reached[None], axis=1, dtype=jnp.int32)

    def gradient(self, influence, cell, track, hidden, seen, keys):
        further, factors = self.drawn(keys), self._factors(seen.delta)

        def arriving(i, delta):
            crossed = jnp.where(i == 0, 1, factors[jnp.maximum(i - 1, 0)]) * delta
            return jnp.where((i <= further)[:, None], crossed, 0)

        reach = jnp.minimum(slots.in_use(track), further.max() + 1)
        return slots.carried_back(cell, track, seen.delta, reach, arriving=arriving)[1], track
