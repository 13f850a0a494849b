"""The newest steps and no others: truncated backpropagation through time."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad._cells.base import Cell
from evergrad._core.costs import Cost
from evergrad._core.not_none import not_none
from evergrad._pasts import slots
from evergrad._pasts.base import Seen, Track
from evergrad._pasts.newest import Newest


class Waiting(eqx.Module):
    """The gradients that do not go through h, summed since the last update."""

    phase: Int[Array, ""]  # steps taken since then; negative as long as none of them had a target
    readout: Any
    output: Any  # of the cell's weights through its output, where it has some


class Strided(Newest):
    """Abstract: every `stride` steps the losses of the last `stride` steps are carried back, none further than `horizon` steps
    before now, through each with the weights that it was taken with.

    Between two updates weights stay, so those of a horizon no longer than the stride are the present ones. Others are
    remembered: carried back with the present weights through activations of former ones, δ belongs to no network that ever was,
    and rolling TBPTT with a long horizon, many units and a high rate does not learn what it learns so.
    """

    stride: eqx.AbstractVar[int]
    complete: ClassVar[bool] = False

    def empty(self, cell: Cell, waiting: Any, batch: int) -> Track:
        """Nothing remembered, and nothing that waits."""
        track = slots.empty(cell, self.horizon, batch, deltas=self.stride > 1, weights=self.stride < self.horizon)
        return track if self.stride == 1 else with_waiting(track, nothing_waits(waiting))

    def wait(self, track, seen):
        return with_waiting(slots.noted(track, seen.delta), added(track.waiting, seen))

    def due(self, track):
        return False if self.stride == 1 else jnp.abs(track.waiting.phase) == self.stride

    def waited(self, track):
        seen = Seen(
            not_none(track.deltas)[slots.slot_of(track, 0)],
            track.waiting.output,
            track.waiting.readout,
            track.waiting.phase > 0,
        )
        return seen, self.begun_anew(track)

    def begun_anew(self, track):
        return track if self.stride == 1 else with_waiting(track, jax.tree.map(jnp.zeros_like, track.waiting))

    def back(self, cell: Cell, track: Track, delta: Float[Array, "B m"]) -> tuple[Float[Array, "B m"], Cell]:
        """What is left of δ, and of all that waited, before the horizon, and its gradient."""
        return slots.carried_back(cell, track, delta, slots.in_use(track), waited=self.stride)

    def cost(self, cell):
        back = self.horizon / self.stride
        return slots.cost(cell, self.horizon, self.horizon, back, self.stride) + Cost(calls=18 * back)


class Chunks(Strided):
    """What is older than the horizon does not count: truncated backpropagation through time."""

    horizon: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, horizon: int, stride: int):
        self.horizon, self.stride = horizon, stride

    def start(self, influence, cell, waiting, batch):
        return self.empty(cell, waiting, batch)

    def gradient(self, influence, cell, track, hidden, seen, keys):
        return self.back(cell, track, seen.delta)[1], track


def nothing_waits(form: Any) -> Waiting:
    readout, output = jax.tree.map(jnp.zeros_like, form)
    return Waiting(jnp.zeros((), jnp.int32), readout, output)


def added(waiting: Waiting, seen: Seen) -> Waiting:
    """One step more."""
    sums = jax.tree.map(jnp.add, (waiting.readout, waiting.output), (seen.readout, seen.in_output))
    steps = jnp.abs(waiting.phase) + 1
    return Waiting(jnp.where((waiting.phase > 0) | seen.target, steps, -steps), *sums)


def with_waiting(track: Track, waiting: Any) -> Track:
    return eqx.tree_at(lambda t: t.waiting, track, waiting, is_leaf=lambda leaf: leaf is None)
