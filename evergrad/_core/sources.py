"""Where steps come from: a source makes one step of all streams at a time, inside the compiled loop."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from evergrad._core.across import LANES
from evergrad._core.placing import along, everywhere, place, refuse_unspread


class Data(eqx.Module):
    """x, y, reset and the weight of the target (0: missing) of B streams; a sequence has T steps in front.

    y may be a pytree, as the readout has it, or None where no stream has a target.
    """

    x: Array
    y: Any
    reset: Array
    weight: Array


class Source(eqx.Module):
    """Makes streams. All that changes is in `position`, a pytree, so that a run can be resumed anywhere."""

    @abc.abstractmethod
    def emit(self, position: Any) -> tuple[Data, Any]:
        """The next step of all streams."""

    def hear(self, position: Any, losses: Float[Array, " B"], model: Any) -> Any:
        """Told how the step went, for sources that make things harder as learning goes on or keep a score.

        `model` has not learned from this step yet.
        """
        return position

    def stream_axes(self, position: Any) -> tuple[Any, Any]:
        """The axis of the streams in every array of the source and of a position, −1 where all streams share it.

        Where streams are spread over devices, `emit` and `hear` see those of one device; what concerns all streams they
        get from `evergrad.extend.across`.
        """
        refuse_unspread(self)


def spread_axes(source: Source, position: Any, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
    """The axis of every array of a source and a position that is cut when the streams are spread over a mesh."""
    if LANES not in mesh.axis_names:
        return everywhere(source), everywhere(position)
    return source.stream_axes(position)


def place_source(source: Source, position: Any, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
    """Both with their arrays where they belong."""
    return place((source, position), spread_axes(source, position, mesh), mesh)


class Sequence(Source):
    """Steps that are all there already: the position is the index of the next one."""

    data: Data

    def emit(self, position):
        def now(a):
            return jax.lax.dynamic_index_in_dim(a, position, keepdims=False, allow_negative_indices=False)

        return jax.tree.map(now, self.data), position + 1

    def stream_axes(self, position):
        return along(1, self), everywhere(position)
