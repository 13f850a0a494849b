"""What an estimator is."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from evergrad.cells.base import Cell
from evergrad.checks import InputError, refuse_unless, whole_number
from evergrad.costs import Cost, Sizes
from evergrad.linearize import Memory, check_parameters
from evergrad.maps import check_maps
from evergrad.parameters import parted
from evergrad.streamwise import over_streams


class Estimator(eqx.Module):
    """An approximation of the influence G = dh/dθ of one stream, kept by `G_t = H_t G_{t−1} + F_t`.

    `init`, `step`, `fold` and `influence` are written for one stream; `gradient` takes all streams at once, since the
    sum over them is where time can be saved. `step_all` and `fold_all` map the former over streams; an estimator that
    knows a faster way to do that has its own. Every random choice comes from `key`.
    """

    window: eqx.AbstractVar[int]
    needs_kronecker: ClassVar[bool] = False
    stride: ClassVar[int] = 1  # steps from one gradient to the next
    horizon: ClassVar[int | None] = None  # steps that a gradient reaches back at most

    @property
    @abc.abstractmethod
    def unbiased(self) -> bool:
        """Whether E[G'] = G, whatever the cell; the tests hold it to this."""

    @abc.abstractmethod
    def init(self, cell: Cell) -> Any:
        """G = 0."""

    @abc.abstractmethod
    def step(self, carried: Any, cell: Cell, memory: Memory, key: jax.Array) -> Any:
        """One recursion."""

    def fold(self, carried: Any, cells: Cell, memories: Memory, key: jax.Array) -> Any:
        """k recursions, the oldest first. An estimator with a faster or quieter block form has its own.

        `cells` is the cell as it was at each of the steps: its weights have an axis of k in front.
        """
        weights, rest = parted(cells)
        keys = jax.random.split(key, len(memories.alive))

        def step(carried, inputs):
            weights, memory, key = inputs
            return self.step(carried, eqx.combine(weights, rest), memory, key), None

        return jax.lax.scan(step, carried, (weights, memories, keys))[0]

    def step_all(self, carried: Any, cell: Cell, memory: Memory, keys: jax.Array) -> Any:
        """`step` of all streams."""
        return over_streams(lambda *one: self.step(one[0], cell, *one[1:]), carried, memory, keys)

    def fold_all(self, carried: Any, cells: Cell, memories: Memory, keys: jax.Array) -> Any:
        """`fold` of all streams; `memories` has the streams first."""
        return over_streams(lambda *one: self.fold(one[0], cells, *one[1:]), carried, memories, keys)

    @abc.abstractmethod
    def gradient(self, carried: Any, cell: Cell, delta: Float[Array, "B m"]) -> Cell:
        """Σ over the streams of δ G, without building G. `carried` has the streams first."""

    @abc.abstractmethod
    def influence(self, carried: Any, cell: Cell) -> Cell:
        """G itself, a gradient with m rows in front, at the full cost in memory: for tests and pictures."""

    def cost(self, sizes: Sizes) -> Cost:
        """Of keeping the influence and contracting it, a stream and step; the window's own part is not in it.

        Only the planner asks.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it costs: give it a method `cost(sizes)`.")

    def split(self, cell: Cell, parts: int) -> Any:
        """For `shard="influence"`: the axis of every array of `init` that is cut in so many parts, −1 where none is.

        `step`, `fold` and `gradient` then see one part, and get the rest from `evergrad.across`.
        """
        raise InputError(
            f'`Learner.init(shard="influence")`: {self!r} has no influence large enough to be worth splitting: use '
            'shard="lanes". OK and RTRL have.'
        )

    def check(self, cell: Cell) -> None:
        """Refuses a cell that this estimator cannot be used with, or a setting that is no use with that cell."""
        check_parameters(cell)
        if self.needs_kronecker:
            check_maps(cell, repr(self))
            self.check_kronecker(cell)

    def check_kronecker(self, cell: Cell) -> None:
        """What else an estimator of the Kronecker family has to say about a cell."""


def check_split(axis: int, parts: int, what: str) -> None:
    refuse_unless(
        axis % parts == 0,
        f'`Learner.init(shard="influence")`: {what} cannot be cut into {parts} equal parts: use a number of devices that '
        f"divides {axis}.",
    )


def check_window(window: Any, call: str) -> None:
    whole_number(window, 0, call, "window", "the number of newest steps that are kept as they are (0: none)")
