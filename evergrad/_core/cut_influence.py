"""An influence of which every device has a part of every stream's: the one place that says where its arrays lie."""

from typing import Any

import jax

from evergrad._core.blocks import first_of
from evergrad._core.influence import Influence
from evergrad._core.placing import compiler_cuts, hold, hold_everywhere


def cut(influence: Influence) -> Influence:
    """The influence, cut where the compiler cuts."""
    return Cut(influence) if compiler_cuts() else influence


class Cut(Influence):
    """Another influence: what it carries is cut along the axes that its `split` names, and so is the work on it. All that it is
    given, and the gradient that it gives, every device has in full; so the compiler finds nothing else to cut.
    """

    whole: Influence

    def __init__(self, whole: Influence):
        self.whole = whole

    @property
    def unbiased(self) -> bool:
        return self.whole.unbiased

    def init(self, cell):
        return self.whole.init(cell)

    def absorb(self, carried, cells, memories, key):
        return self.whole.absorb(carried, cells, memories, key)

    def absorb_all(self, carried, cells, memories, keys):
        cell, given = first_of(cells), hold_everywhere((cells, memories, keys))
        return self._held(self.whole.absorb_all(self._held(carried, cell), *given), cell)

    def contract(self, carried, cell, delta):
        carried, (cell, delta) = self._held(carried, cell), hold_everywhere((cell, delta))
        return hold_everywhere(self.whole.contract(carried, cell, delta))

    def materialise(self, carried, cell):
        return self.whole.materialise(carried, cell)

    def _held(self, carried, cell):
        return hold(carried, lambda _, mesh: streams_first(self.whole.split(cell, mesh.size)))


def streams_first(axes: Any) -> Any:
    """The axes that are cut of arrays that have the streams in front, from those of one stream."""
    return jax.tree.map(lambda axis: axis if axis < 0 else axis + 1, axes)
