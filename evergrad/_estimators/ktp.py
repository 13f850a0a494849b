from typing import ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._cells.base import KroneckerCell
from evergrad._core.blocks import (
    absorbed_one,
    assembled,
    contracted,
    first_of,
    nothing_yet,
    size_of,
    weight_dtype,
    whole_influence,
)
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step, stream_by_stream
from evergrad._core.linearize import KroneckerMemory, transition
from evergrad._core.low_rank import uniform
from evergrad._core.maps import maps_of, rows_of
from evergrad._core.streamwise import over_streams
from evergrad._estimators.diagonal import directions, largest_rank, sampled_diagonals
from evergrad._estimators.parts import apart, keys_for, together
from evergrad._estimators.scaling import mixed
from evergrad._estimators.windowed import Windowed, check_window, ranks_up_to_default, sizes_of
from evergrad._native import triples
from evergrad._native.products import outer


class KTP(Windowed):
    """Kronecker triple product: G ≈ Σ_{i≤r} aᵢ ⊗ bᵢ ⊗ cᵢ over ĥ, the state and the gates.

        D ≈ Σ dᵢ ⊗ d̃ᵢ (optimal, unbiased);  aᵢ' = aᵢ + s₁ĥ,  bᵢ' = H bᵢ + s₂dᵢ,  cᵢ' = cᵢ + s₁s₂d̃ᵢ

    with random signs s₁, s₂ of each i, and every product's norm first shared out evenly among its three factors.
    Memory r·n, time r·n², as TBPTT. Reference: Benzing et al. 2019.

    Examples:
        >>> eg.KTP(rank=16, window=16).unbiased
        True
    """

    rank: int = eqx.field(static=True)
    window: int = eqx.field(static=True)

    recommended: ClassVar[str] = "neither RTRL nor OK fits; it is unbiased at the cost of TBPTT."

    @classmethod
    def choices(cls, cell):
        return sizes_of(cls, "rank")

    @classmethod
    def usual(cls, cell):
        return ranks_up_to_default(cls)

    def __init__(self, *, rank: int = 16, window: int = 0):
        call = f"KTP(rank={rank}, window={window})"
        whole_number(rank, 1, call, "rank", "the number of triple products that are kept")
        check_window(window, call)
        self.rank, self.window = rank, window

    @property
    def influence(self):
        return Triples(self.rank)


class Triples(Influence):
    """Σ aᵢ ⊗ bᵢ ⊗ cᵢ of every linear map."""

    rank: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def check_fit(self, cell):
        available = largest_rank(cell)
        refuse_unless(
            self.rank <= available,
            f"`KTP(rank={self.rank})`: D of {type(cell).__name__}(units={cell.units}) has rank {available} at most, so "
            f"further terms would stay zero: use a rank up to {available}.",
        )

    def init(self, cell):
        dtype = weight_dtype(cell)
        sizes = [(each.p, len(each.rows), each.q) for each in maps_of(cell).maps]
        of_maps = [tuple(jnp.zeros((self.rank, size), dtype) for size in three) for three in sizes]
        return together(of_maps, nothing_yet(cell))

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def absorb_all(self, carried, cells, memories, keys):
        """One step of all streams of a Kronecker cell at once."""
        if not isinstance(memories, KroneckerMemory) or memories.alive.shape[1] > 1:
            return stream_by_stream(self, carried, cells, memories, keys)
        cell, memory = cast(KroneckerCell, first_of(cells)), jax.tree.map(lambda a: a[:, 0], memories)
        drawn = jax.vmap(lambda key: self._drawn(key, memory.regressor.dtype))(keys)
        return triples.taken_or(self._taken, carried, cell, memory, *drawn)

    def _drawn(self, key, dtype):
        """The signs of the triples, and the number that decides which directions of D are kept."""
        rank_key, sign_key = jax.random.split(key)
        return jax.random.rademacher(sign_key, (self.rank, 2), dtype), uniform(rank_key, dtype)

    def _taken(self, carried, cell, memory, signs, uniform):
        def one(triple, memory, signs, uniform):
            a, b, c = triple
            d, d_gates = sampled_diagonals(memory.diagonals, self.rank, uniform)
            carried = a, jax.vmap(transition(cell, memory).matvec)(b), c
            return self._mixed(carried, (memory.regressor, d, d_gates), signs)

        return over_streams(one, carried, memory, signs, uniform)

    def _step(self, carried, cell, memory, key):
        maps = maps_of(cell).maps
        of_maps, rest = apart(carried, maps, 3)
        keys = [jax.random.split(key) for key in keys_for(key, maps)]
        drawn = directions(cell, memory, self.rank, [rank_key for rank_key, _ in keys])
        each = zip(maps, of_maps, drawn, keys, strict=True)
        new = [
            self._absorbed((a, self._carried(cell, memory, b, which.rows), c), uses, sign_key)
            for which, (a, b, c), uses, (_, sign_key) in each
        ]
        return together(new, absorbed_one(rest, cell, memory))

    def _carried(self, cell, memory, b, rows):
        """H b, for vectors on the rows that a map can reach."""
        matvec = jax.vmap(transition(cell, memory).matvec)
        m = size_of(cell)
        if len(rows) == m:
            return matvec(b)
        return rows_of(matvec(jnp.zeros((len(b), m), b.dtype).at[:, rows].set(b)), rows, axis=1)

    def _absorbed(self, triple, uses, key):
        """The uses of a map are mixed in one after the other."""
        for use, new in enumerate(uses):
            use_key = jax.random.fold_in(key, use) if use else key
            triple = self._mixed(triple, new, jax.random.rademacher(use_key, (self.rank, 2), new[1].dtype))
        return triple

    def _mixed(self, triple, new, signs):
        vector, d, d_gates = new
        vectors = jnp.broadcast_to(vector[None], triple[0].shape)
        signs = signs[:, 0], signs[:, 1], signs[:, 0] * signs[:, 1]
        return jax.vmap(mixed)(triple, (vectors, d, d_gates), signs)

    def cost(self, sizes, block):
        p, q, numbers = sizes.p, sizes.q, self.rank * (sizes.p + sizes.m + sizes.q)
        moved = 2 * sizes.pull if sizes.dense else sizes.n * q
        return Cost(0, self.rank * (moved + p * q), 8 * numbers, numbers, 20)

    def contract(self, carried, cell, delta):
        maps = maps_of(cell).maps
        of_maps, rest = apart(carried, maps, 3)
        found = [_contracted(rows_of(delta, e.rows, axis=1), *three) for e, three in zip(maps, of_maps, strict=True)]
        return assembled(cell, found, contracted(rest, cell, delta))

    def materialise(self, carried, cell):
        of_maps, rest = apart(carried, maps_of(cell).maps, 3)
        return whole_influence(cell, [jnp.einsum("rp,rm,rq->mpq", *three) for three in of_maps], rest)


def _contracted(delta, a, b, c):
    return outer(a, jnp.einsum("bm,brm->br", delta, b)[..., None] * c)
