"""The newest steps and no others, in slots."""

import equinox as eqx
import jax

from evergrad._pasts import slots
from evergrad._pasts.base import Past


class Newest(Past):
    """At least the newest `horizon` steps; what is older is forgotten, `horizon` steps at a time."""

    horizon: eqx.AbstractVar[int]

    @property
    def period(self) -> int:
        return max(self.horizon, self.stride)

    def unbiased(self, influence):
        return False

    def remember(self, influence, cell, track, memory, keys):
        return slots.put(cell, track, memory)

    def is_full(self, track):
        return track.count == slots.count_of(track)

    def full_after(self, steps):
        return steps >= 2 * self.horizon - 1 and steps % self.horizon == self.horizon - 1

    def make_room(self, influence, cell, track, keys):
        return slots.forget(track, self.horizon)

    def oldest(self, track):
        return jax.tree.map(lambda a: a[: self.horizon], track.memories)
