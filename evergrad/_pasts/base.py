"""What a past is, and what is known of one."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from evergrad._cells.base import Cell
from evergrad._core import across
from evergrad._core.costs import Cost
from evergrad._core.cut_influence import streams_first
from evergrad._core.influence import Influence
from evergrad._core.linearize import Memory
from evergrad._core.placing import along, everywhere, shardings


class Track(eqx.Module):
    """What is known of the past of B streams."""

    carried: Any  # the influence's, streams first
    memories: Memory | None  # [slots, B, ...], the oldest first
    weights: Any  # [slots, ...], the cell's at the remembered steps, the same for all streams; None if they are not asked for
    deltas: Float[Array, "slots B m"] | None  # dL/dh of the remembered steps, where they wait
    count: Int[Array, ""]  # how many slots are in use
    waiting: Any = None  # what else waits for the next gradient
    shared: Any = None  # what all streams have in common: a critic, say
    streams: Any = None  # what else a past keeps of every stream, streams first


class Seen(eqx.Module):
    """Of the mean loss over streams: dL/dh, and the gradients that do not go through h."""

    delta: Float[Array, "B m"]
    in_output: Any  # of the weights in the cell's output
    readout: Any
    target: Bool[Array, ""]  # whether there was any
    newest: Any = None  # the memory of the step and its keys, where it is remembered together with its gradient


class Past(eqx.Module):
    """What is remembered exactly of the newest steps, and how δ = dL/dh is carried back through it."""

    stride: eqx.AbstractVar[int]  # steps from one gradient to the next
    period: eqx.AbstractVar[int]  # steps after which its work repeats
    complete: eqx.AbstractVar[bool]  # whether what it forgets goes to the influence, and δ with it

    @abc.abstractmethod
    def unbiased(self, influence: Influence) -> bool:
        """Whether gradients are right in the mean with this influence of what is older."""

    @abc.abstractmethod
    def start(self, influence: Influence, cell: Cell, waiting: Any, batch: int) -> Track:
        """Nothing known yet. `waiting` has the form of the gradients that may have to wait."""

    @abc.abstractmethod
    def remember(self, influence: Influence, cell: Cell, track: Track, memory: Memory, keys: Array) -> Track:
        """One step more. There must be room."""

    @abc.abstractmethod
    def is_full(self, track: Track) -> Array | bool:
        """Whether room must be made before the next step; False if that is never so."""

    @abc.abstractmethod
    def full_after(self, steps: int) -> bool:
        """The same, from the number of steps since the start."""

    @abc.abstractmethod
    def make_room(self, influence: Influence, cell: Cell, track: Track, keys: Array) -> Track:
        """Of a full past."""

    def wait(self, track: Track, seen: Seen) -> Track:
        """What was seen of a step kept until its gradient is due. Only where there is a stride."""
        raise NotImplementedError(f"{type(self).__name__} has a stride, and must say what waits.")

    def due(self, track: Track) -> Array | bool:
        """Whether a gradient is due of what waits; False where each step has its own."""
        return False

    def waited(self, track: Track) -> tuple[Seen, Track]:
        """All that was seen since the last gradient, and the track with nothing waiting."""
        raise NotImplementedError(f"{type(self).__name__} has a stride, and must say what waited.")

    def has_target(self, track: Track, seen: Seen) -> Bool[Array, ""]:
        """Whether the gradient that is due now is of any target."""
        return seen.target

    @property
    def delay(self) -> int:
        """The most steps that a loss waits for its gradient."""
        return self.stride - 1

    def begun_anew(self, track: Track) -> Track:
        """The same with nothing waiting."""
        return track

    @abc.abstractmethod
    def gradient(
        self, influence: Influence, cell: Cell, track: Track, hidden: Float[Array, "B m"], seen: Seen, keys: Array
    ) -> tuple[Cell, Track]:
        """Σ over the streams of δ G, of the newest step or of all that waited; `hidden` is the newest state."""

    def joint(self, influence: Influence) -> bool:
        """Whether a step is remembered together with its gradient, by `advanced`, rather than before it by `remember`."""
        return False

    def advanced(self, influence: Influence, cell: Cell, track: Track, seen: Seen) -> tuple[Cell, Track]:
        """`remember` and `gradient` in one."""
        raise NotImplementedError(
            f"{type(self).__name__} is joint, and must say how a step and its gradient are taken at once."
        )

    @abc.abstractmethod
    def oldest(self, track: Track) -> Memory | None:
        """What of a full past goes to the influence next; None if every step does as it comes."""

    @abc.abstractmethod
    def cost(self, cell: Cell) -> Cost:
        """Of remembering and of carrying back, a stream and step."""


def began(
    past: Past, influence: Influence, cell: Cell, waiting: Any, batch: int, mesh: jax.sharding.Mesh | None
) -> Track:
    """`past.start`; on a mesh, made in parts where they belong, since the whole may be too large for a device."""

    def make():
        return past.start(influence, cell, waiting, batch)

    if mesh is None:
        return make()
    return jax.jit(make, out_shardings=shardings(axes(jax.eval_shape(make), influence, cell, mesh), mesh))()


def axes(track: Track, influence: Influence, cell: Cell, mesh: jax.sharding.Mesh) -> Track:
    """The axis of every array that is cut when a track is spread over a mesh, −1 where none is."""
    if across.LANES not in mesh.axis_names:
        carried = streams_first(influence.split(cell, mesh.size))
        return eqx.tree_at(lambda t: t.carried, everywhere(track), carried)
    cut = along(0, track.carried), along(1, track.memories), along(1, track.deltas), along(0, track.streams)
    return eqx.tree_at(_of_streams, everywhere(track), cut, is_leaf=lambda leaf: leaf is None)


def _of_streams(track):
    return track.carried, track.memories, track.deltas, track.streams


def nothing_carried(influence: Influence, cell: Cell, batch: int) -> Any:
    """The influence of so many streams at their start."""
    return jax.tree.map(lambda a: jnp.broadcast_to(a[None], (batch, *a.shape)), influence.init(cell))
