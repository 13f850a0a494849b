"""The newest steps and no others: truncated backpropagation through time."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core.costs import Cost
from evergrad._core.not_none import not_none
from evergrad._pasts import slots
from evergrad._pasts.base import Past, Seen


class Waiting(eqx.Module):
    """The gradients that do not go through h, summed since the last update."""

    phase: Int[Array, ""]  # steps taken since then; negative as long as none of them had a target
    readout: Any
    output: Any  # of the cell's weights through its output, where it has some


class Chunks(Past):
    """Every `stride` steps the losses of the last `stride` steps are carried back, none further than `horizon` steps before
    now, with the weights as they are now.
    """

    horizon: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    complete: ClassVar[bool] = False

    def __init__(self, horizon: int, stride: int):
        self.horizon, self.stride = horizon, stride

    @property
    def period(self) -> int:
        return max(self.horizon, self.stride)

    def unbiased(self, influence):
        return False

    def start(self, influence, cell, waiting, batch):
        track = slots.empty(cell, 2 * self.horizon - 1, batch, deltas=self.stride > 1)
        return track if self.stride == 1 else _with(track, nothing_waits(waiting))

    def remember(self, influence, cell, track, memory, keys):
        return slots.put(cell, track, memory)

    def is_full(self, track):
        return track.count == slots.count_of(track)

    def full_after(self, steps):
        return steps >= 2 * self.horizon - 1 and steps % self.horizon == self.horizon - 1

    def make_room(self, influence, cell, track, keys):
        return slots.forget(track, self.horizon)

    def wait(self, track, seen):
        noted = eqx.tree_at(lambda t: t.deltas, track, not_none(track.deltas).at[track.count - 1].set(seen.delta))
        return _with(noted, added(track.waiting, seen))

    def due(self, track):
        return False if self.stride == 1 else jnp.abs(track.waiting.phase) == self.stride

    def waited(self, track):
        seen = Seen(
            not_none(track.deltas)[track.count - 1],
            track.waiting.output,
            track.waiting.readout,
            track.waiting.phase > 0,
        )
        return seen, self.begun_anew(track)

    def begun_anew(self, track):
        return track if self.stride == 1 else _with(track, jax.tree.map(jnp.zeros_like, track.waiting))

    def gradient(self, influence, cell, track, hidden, seen, keys):
        reach = jnp.minimum(track.count, self.horizon)
        noted = None if track.deltas is None else self._noted(track)
        return slots.carried_back(cell, track, seen.delta, reach, arriving=noted)[1], track

    def _noted(self, track):
        """δ with dL/dh of a step that waited added where it arrives at it."""

        def arriving(i, delta):
            own = track.deltas[track.count - 1 - i]
            return delta + jnp.where((i > 0) & (i < self.stride), own, 0)

        return arriving

    def oldest(self, track):
        return jax.tree.map(lambda a: a[: self.horizon], track.memories)

    def cost(self, cell):
        back = self.horizon / self.stride
        return slots.cost(cell, 2 * self.horizon - 1, self.horizon, back, self.stride) + Cost(calls=18 * back)


def nothing_waits(form: Any) -> Waiting:
    readout, output = jax.tree.map(jnp.zeros_like, form)
    return Waiting(jnp.zeros((), jnp.int32), readout, output)


def added(waiting: Waiting, seen: Seen) -> Waiting:
    """One step more."""
    sums = jax.tree.map(jnp.add, (waiting.readout, waiting.output), (seen.readout, seen.in_output))
    steps = jnp.abs(waiting.phase) + 1
    return Waiting(jnp.where((waiting.phase > 0) | seen.target, steps, -steps), *sums)


def _with(track, waiting):
    return eqx.tree_at(lambda t: t.waiting, track, waiting, is_leaf=lambda leaf: leaf is None)
