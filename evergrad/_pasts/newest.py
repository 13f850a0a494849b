"""The newest steps and no others, in slots."""

import equinox as eqx

from evergrad._pasts import slots
from evergrad._pasts.base import Past


class Newest(Past):
    """The newest `horizon` steps; each takes the place of the one that is just older than that, so room is never made."""

    horizon: eqx.AbstractVar[int]

    @property
    def period(self) -> int:
        return max(self.horizon, self.stride)

    def unbiased(self, influence):
        return False

    def remember(self, influence, cell, track, memory, keys):
        return slots.put(cell, track, memory)

    def is_full(self, track):
        return False

    def full_after(self, steps):
        return False

    def make_room(self, influence, cell, track, keys):
        return track

    def oldest(self, track):
        return track.memories
