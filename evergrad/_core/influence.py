"""What an influence is: the approximation of everything that is older than the remembered steps."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from evergrad._cells.base import Cell
from evergrad._core.blocks import first_of
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.costs import Cost, Sizes
from evergrad._core.linearize import Memory, check_parameters
from evergrad._core.maps import check_maps
from evergrad._core.parameters import parted
from evergrad._core.streamwise import over_streams


class Influence(eqx.Module):
    """An approximation of G = dh/dθ, kept by `G_t = H_t G_{t−1} + F_t`. It knows no cell, only derivatives.

    `init`, `absorb` and `materialise` are written for one stream; `contract` takes all streams at once, since the sum
    over them is where time can be saved. `absorb_all` maps `absorb` over streams; an influence that knows a faster way
    to do that has its own. Every random choice comes from `key`.
    """

    unbiased: eqx.AbstractVar[bool]  # whether E[G'] = G, whatever the cell; the tests hold it to this
    needs_kronecker: ClassVar[bool] = False  # whether it stores what linear maps do as Kronecker products
    joint: ClassVar[bool] = False  # whether it is faster to absorb a step and to contract at once, by `advance`

    @abc.abstractmethod
    def init(self, cell: Cell) -> Any:
        """G = 0."""

    @abc.abstractmethod
    def absorb(self, carried: Any, cells: Cell, memories: Memory, key: jax.Array) -> Any:
        """k ≥ 1 recursions, the oldest first; `step_by_step` makes one of a single recursion.

        `cells` is the cell as it was at each of the steps: its weights have an axis of k in front.
        """

    def absorb_all(self, carried: Any, cells: Cell, memories: Memory, keys: jax.Array) -> Any:
        """`absorb` of all streams; `memories` has the streams first."""
        return stream_by_stream(self, carried, cells, memories, keys)

    def absorb_rounded(
        self, pure: Callable[..., Any], carried: Any, cells: Cell, memories: Memory, keys: jax.Array
    ) -> Any:
        """pure(carried, memories, keys), which folds what is kept with fewer digits, or a faster way to the same mean."""
        return pure(carried, memories, keys)

    @abc.abstractmethod
    def contract(self, carried: Any, cell: Cell, delta: Float[Array, "B m"]) -> Cell:
        """Σ over the streams of δ G, without building G. `carried` has the streams first."""

    def advance(self, carried: Any, cells: Cell, memories: Memory, keys: jax.Array, delta: Array) -> tuple[Any, Cell]:
        """`absorb_all`, and what `contract` makes of the result."""
        new = self.absorb_all(carried, cells, memories, keys)
        return new, self.contract(new, first_of(cells), delta)

    @abc.abstractmethod
    def materialise(self, carried: Any, cell: Cell) -> Cell:
        """G itself, a gradient with m rows in front, at the full cost in memory: for tests and pictures."""

    def exact_for(self, cell: Cell) -> bool:
        """Whether G' = G on this cell, whatever its weights are."""
        return False

    def cost(self, sizes: Sizes, block: int) -> Cost:
        """Of keeping the influence and contracting it, a stream and step, if `block` steps are absorbed at a time (0: each
        as it comes); the past's own part is not in it. Only the planner asks.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it costs: give it `cost(sizes, block)`.")

    def split(self, cell: Cell, parts: int) -> Any:
        """For `shard="influence"`: the axis of every array of `init` that is cut in so many parts, −1 where none is.

        `absorb` and `contract` are written for whole arrays as ever: the compiler cuts what they do along these axes.
        Products and sums keep to them; a reshape that joins a cut axis to another one does not, and moves it all.
        """
        raise InputError(
            f'`Learner.init(shard="influence")`: {type(self).__name__} has no influence large enough to be worth splitting: '
            'use shard="lanes". OK and RTRL have.'
        )

    def check(self, cell: Cell, call: str) -> None:
        """Refuses a cell that this cannot be used with, or a setting that is no use with that cell. `call` is what the user
        wrote."""
        check_parameters(cell)
        if self.needs_kronecker:
            check_maps(cell, call)
        self.check_fit(cell)

    def check_fit(self, cell: Cell) -> None:
        """What else this influence has to say about a cell."""


def stream_by_stream(influence: Influence, carried: Any, cells: Cell, memories: Memory, keys: jax.Array) -> Any:
    """`absorb` of every stream."""
    return over_streams(lambda *one: influence.absorb(one[0], cells, *one[1:]), carried, memories, keys)


def step_by_step(
    step: Callable[[Any, Cell, Memory, jax.Array], Any], carried: Any, cells: Cell, memories: Memory, key: jax.Array
) -> Any:
    """k steps of one stream, one after the other: `step(carried, cell, memory, key)`."""
    weights, rest = parted(cells)

    def first(tree):
        return jax.tree.map(lambda a: a[0], tree)

    if len(memories.alive) == 1:
        return step(carried, eqx.combine(first(weights), rest), first(memories), key)
    keys = jax.random.split(key, len(memories.alive))

    def one(carried, inputs):
        weights, memory, key = inputs
        return step(carried, eqx.combine(weights, rest), memory, key), None

    return jax.lax.scan(one, carried, (weights, memories, keys))[0]


def check_split(axis: int, parts: int, what: str) -> None:
    refuse_unless(
        axis % parts == 0,
        f'`Learner.init(shard="influence")`: {what} cannot be cut into {parts} equal parts: use a number of devices that '
        f"divides {axis}.",
    )
