"""The face for authors of cells, estimators, readouts and tasks: what `import evergrad` does not need to show to users.

`docs/extending-an-estimator.md` and `docs/extending-a-cell.md` say how these are used.
"""

from evergrad.blocks import (
    Block,
    Terms,
    absorbed,
    assembled,
    block,
    contracted,
    nothing_yet,
    whole_influence,
)
from evergrad.cells.base import Cell, KroneckerCell
from evergrad.checks import DivergedError, InputError, refuse_unless, require_key, whole_number
from evergrad.costs import Cost, Sizes
from evergrad.estimators.base import Estimator
from evergrad.estimators.diagonal import unit_svd
from evergrad.estimators.nothing import Nothing
from evergrad.estimators.scaling import balance, mixed
from evergrad.influence import Influence, step_by_step, stream_by_stream
from evergrad.linearize import (
    GeneralMemory,
    KroneckerMemory,
    Memory,
    Transition,
    immediate,
    initial_state,
    linearize,
    pullback,
    transition,
    weight_gradient,
)
from evergrad.low_rank import compress
from evergrad.maps import Map, Maps, dense, maps_of
from evergrad.parameters import Frozen, parameters, repeated
from evergrad.pasts.base import Past, Seen, Track
from evergrad.pasts.chunks import Chunks
from evergrad.pasts.window import Window
from evergrad.readouts import Readout
from evergrad.tasks.base import Data, Sequence, Source

__all__ = [
    "Block",
    "Cell",
    "Chunks",
    "Cost",
    "Data",
    "DivergedError",
    "Estimator",
    "Frozen",
    "GeneralMemory",
    "Influence",
    "InputError",
    "KroneckerCell",
    "KroneckerMemory",
    "Map",
    "Maps",
    "Memory",
    "Nothing",
    "Past",
    "Readout",
    "Seen",
    "Sequence",
    "Sizes",
    "Source",
    "Terms",
    "Track",
    "Transition",
    "Window",
    "absorbed",
    "assembled",
    "balance",
    "block",
    "compress",
    "contracted",
    "dense",
    "immediate",
    "initial_state",
    "linearize",
    "maps_of",
    "mixed",
    "nothing_yet",
    "parameters",
    "pullback",
    "refuse_unless",
    "repeated",
    "require_key",
    "step_by_step",
    "stream_by_stream",
    "transition",
    "unit_svd",
    "weight_gradient",
    "whole_influence",
    "whole_number",
]
