"""The names of `evergrad.extend`; importing this imports JAX."""

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core import across
from evergrad._core.blocks import (
    Block,
    Terms,
    absorbed,
    assembled,
    block,
    contracted,
    nothing_yet,
    whole_influence,
)
from evergrad._core.checks import DivergedError, InputError, refuse_unless, require_key, whole_number
from evergrad._core.costs import Cost, Sizes
from evergrad._core.influence import Influence, step_by_step, stream_by_stream
from evergrad._core.linearize import (
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
from evergrad._core.low_rank import compress
from evergrad._core.maps import Map, Maps, dense, maps_of
from evergrad._core.parameters import Frozen, parameters, repeated
from evergrad._core.readouts import Readout
from evergrad._core.sources import Data, Sequence, Source
from evergrad._estimators.base import Estimator
from evergrad._estimators.diagonal import unit_svd
from evergrad._estimators.nothing import Nothing
from evergrad._estimators.scaling import balance, mixed
from evergrad._pasts.base import Past, Seen, Track
from evergrad._pasts.chunks import Chunks
from evergrad._pasts.window import Window
from evergrad._tasks.generated import Generated

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
    "Generated",
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
    "across",
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
