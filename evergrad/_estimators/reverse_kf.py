from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core.blocks import (
    Terms,
    absorbed,
    assembled,
    block,
    contracted,
    nothing_yet,
    weight_dtype,
    whole_influence,
)
from evergrad._core.checks import whole_number
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step
from evergrad._core.maps import maps_of, rows_of
from evergrad._core.parameters import repeated
from evergrad._estimators.parts import apart, keys_for, together
from evergrad._estimators.scaling import mixed
from evergrad._estimators.windowed import Windowed, check_window, sizes_of


class ReverseKF(Windowed):
    """KF-RTRL the other way round: G[m, p, q] ≈ mean over `copies` of B[m, p] a[q]. Unbiased.

        a' = ρ₀a + ρ₁ν,  B' = HB/ρ₀ + (Dν)ĥᵀ/ρ₁,  ν ∈ {±1}^q;  ρ₀² = ‖HB‖/‖a‖, ρ₁² = ‖Dν‖‖ĥ‖/‖ν‖

    Memory m·p where KF has m·q, so with g gates about g times less; but q signs a step instead of one, and so more noise.
    Time m²p. Reference: Marschall, Cho & Savin 2020, R-KF-RTRL; theirs starts from normal factors, ours from zero.

    Examples:
        >>> eg.ReverseKF(copies=8).unbiased
        True
    """

    copies: int = eqx.field(static=True)
    window: int = eqx.field(static=True)

    recommended: ClassVar[str] = "only an average of noisy estimates without bias fits, and of those the smaller kind."

    @classmethod
    def choices(cls, cell):
        return sizes_of(cls, "copies")

    def __init__(self, *, copies: int = 1, window: int = 0):
        call = f"ReverseKF(copies={copies}, window={window})"
        whole_number(copies, 1, call, "copies", "the number of independent estimates that are averaged")
        check_window(window, call)
        self.copies, self.window = copies, window

    @property
    def influence(self):
        return ReversedFactors(self.copies)


class ReversedFactors(Influence):
    """B ⊗ a of every linear map, so many times over."""

    copies: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def init(self, cell):
        def zeros(*shape):
            return jnp.zeros(shape, weight_dtype(cell))

        of_maps = [(zeros(len(e.rows), self.copies, e.p), zeros(self.copies, e.q)) for e in maps_of(cell).maps]
        return together(of_maps, nothing_yet(cell))

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        found = block(repeated(cell, 1), jax.tree.map(lambda a: a[None], memory))
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)
        each = zip(maps, pairs, found.terms, keys_for(key, maps), strict=True)
        new = [self._absorbed(found.carry(b, e.rows), a, terms, key) for e, (b, a), terms, key in each]
        return together(new, absorbed(rest, cell, found))

    def _absorbed(self, product, a, terms, key):
        """All copies; the uses of a map are mixed in one after the other."""
        signs = jax.random.rademacher(key, (len(terms.vectors), *a.shape), a.dtype)
        for use in range(len(terms.vectors)):

            def mix(b, a, signs, use=use):
                return injected(b, a, terms, use, signs)

            product, a = jax.vmap(mix, in_axes=(1, 0, 0), out_axes=(1, 0))(product, a, signs[use])
        return product, a

    def cost(self, sizes, block):
        numbers = self.copies * sizes.m * sizes.p
        pulled = sizes.m * sizes.pull if sizes.dense else 0
        return Cost(sizes.m * numbers + pulled, 0, 10 * numbers, 2.3 * numbers + sizes.m * sizes.q, 20)

    def contract(self, carried, cell, delta):
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)

        def through(each, b, a):
            return jnp.einsum("xm,xmcp,xcq->pq", rows_of(delta, each.rows, axis=1), b, a)

        found = [through(each, *pair) / self.copies for each, pair in zip(maps, pairs, strict=True)]
        return assembled(cell, found, contracted(rest, cell, delta))

    def materialise(self, carried, cell):
        pairs, rest = apart(carried, maps_of(cell).maps, 2)
        return whole_influence(cell, [jnp.einsum("mcp,cq->mpq", b, a) / self.copies for b, a in pairs], rest)


def injected(
    product: Float[Array, "m p"], a: Float[Array, " q"], terms: Terms, use: int, signs: Float[Array, " q"]
) -> tuple[Float[Array, "m p"], Float[Array, " q"]]:
    """B' and a' from HB and a, with given signs."""
    one, column, vector = jnp.ones((), a.dtype), terms.columns[:, use] @ signs, terms.vectors[use]
    norms = jnp.linalg.norm(column) * jnp.linalg.norm(vector), jnp.linalg.norm(signs)
    return mixed((product, a), (jnp.outer(column, vector), signs), (one, one), norms)
