"""The newest steps kept as they are, in front of any influence.

With a window of k the last k steps, at least, are remembered, and the influence covers what came before. A gradient
is carried back through the remembered steps, exactly, and what is left of it is contracted with the influence. When
2k − 1 steps are remembered the oldest k are folded into the influence at once. So the newest k steps never carry noise
and an influence sees its steps in blocks. A step is remembered with the weights that it was taken with, so that a window
changes what is approximated, and not what is computed: RTRL learns the same with any.

Window(0) remembers nothing: every step goes to the influence at once, as in the papers.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._core.costs import Cost
from evergrad._core.parameters import repeated
from evergrad._pasts import slots
from evergrad._pasts.base import Past, Track, nothing_carried


class Window(Past):
    """The newest `size` steps at least; what falls out is folded into the influence."""

    size: int = eqx.field(static=True)
    stride: ClassVar[int] = 1
    complete: ClassVar[bool] = True

    def __init__(self, size: int):
        self.size = size

    @property
    def period(self) -> int:
        return max(1, self.size)

    def unbiased(self, influence):
        return influence.unbiased

    def start(self, influence, cell, waiting, batch):
        carried = nothing_carried(influence, cell, batch)
        if not self.size:
            return Track(carried, None, None, None, jnp.zeros((), jnp.int32))
        track = slots.empty(cell, 2 * self.size - 1, batch, weights=True)
        return eqx.tree_at(lambda t: t.carried, track, carried, is_leaf=lambda leaf: leaf is None)

    def remember(self, influence, cell, track, memory, keys):
        if self.size:
            return slots.put(cell, track, memory, round_=False)
        newest = jax.tree.map(lambda a: a[:, None], memory)
        return _absorbed(influence, track, repeated(cell, 1), newest, keys)

    def is_full(self, track):
        return track.count == slots.count_of(track) if self.size else False

    def full_after(self, steps):
        return self.size > 0 and steps >= 2 * self.size - 1 and steps % self.size == self.size - 1

    def make_room(self, influence, cell, track, keys):
        streams_first = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), self.oldest(track))
        cells = eqx.combine(jax.tree.map(lambda a: a[: self.size], track.weights), cell)
        return slots.forget(_absorbed(influence, track, cells, streams_first, keys), self.size)

    def gradient(self, influence, cell, track, hidden, seen, keys):
        if not self.size:
            return influence.contract(track.carried, cell, seen.delta), track
        left, inside = slots.carried_back(cell, track, seen.delta, track.count)
        return jax.tree.map(jnp.add, inside, influence.contract(track.carried, cell, left)), track

    def joint(self, influence):
        return not self.size and influence.joint

    def advanced(self, influence, cell, track, seen):
        memory, keys = seen.newest
        newest = jax.tree.map(lambda a: a[:, None], memory)
        carried, found = influence.advance(track.carried, repeated(cell, 1), newest, keys, seen.delta)
        return found, eqx.tree_at(lambda t: t.carried, track, carried)

    def oldest(self, track):
        return jax.tree.map(lambda a: a[: self.size], track.memories) if self.size else None

    def cost(self, cell):
        if not self.size:
            return Cost()
        return slots.cost(cell, 2 * self.size - 1, self.size, 1.5 * self.size) + Cost(calls=18 * self.size)


def _absorbed(influence, track, cells, memories, keys):
    carried = influence.absorb_all(track.carried, cells, memories, keys)
    return eqx.tree_at(lambda t: t.carried, track, carried, is_leaf=lambda leaf: leaf is None)
