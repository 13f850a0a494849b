from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad import _native as native
from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.blocks import first_of
from evergrad._core.checks import refuse_unless
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step, stream_by_stream
from evergrad._core.linearize import (
    KroneckerMemory,
    Memory,
    forward_all,
    immediate_norms,
    initial_state,
    pullback,
    pullback_norm,
    through_diagonals,
    transition,
)
from evergrad._core.parameters import parameters
from evergrad._estimators.scaling import balance
from evergrad._estimators.windowed import Windowed, check_window, windows_of
from evergrad._native import rank_one
from evergrad._native.norms import norm

ROWS, ONE = "rows", "one"


class UORO(Windowed):
    """Unbiased online recurrent optimisation: G ≈ u ⊗ v, u one number a state variable, v one a parameter.

        u' = ρ₀ H u + ρ₁ w∘ν,  v' = v/ρ₀ + (ν/w)F/ρ₁,  ν random signs;  ρ₀² = ‖v‖/‖Hu‖, ρ₁² = ‖(ν/w)F‖/‖w‖

    Right in the mean for every w > 0. scales="rows": on Kronecker cells wᵢ² = ‖Fᵢ‖, which makes the second moment of a step
    least, and a state variable with Fᵢ = 0 injects nothing; on others w = 1, since the norms of F's rows would cost as many
    backward passes as there are rows. scales="one": w = 1 on all cells, as in the paper, to compare with.

    One Jacobian-vector and one vector-Jacobian product, no dense Jacobian, on any differentiable cell. Memory and time
    n². The signs serve twice, to project F and to mix. Reference: Tallec & Ollivier 2017, and for w, which is ours,
    Cooijmans & Martens 2019.

    Examples:
        >>> eg.UORO(window=16).unbiased
        True
    """

    window: int = eqx.field(static=True)
    scales: str = eqx.field(static=True)

    recommended: ClassVar[str] = (
        "only the cheapest estimate without bias fits: it is noisy, so use a small learning rate."
    )

    @classmethod
    def choices(cls, cell):
        return windows_of(cls)

    def __init__(self, *, window: int = 0, scales: str = ROWS):
        call = f'UORO(window={window}, scales="{scales}")'
        check_window(window, call)
        refuse_unless(
            scales in (ROWS, ONE),
            f'`{call}`: scales is "rows" (one for every row of F) or "one" (the paper\'s, for all).',
        )
        self.window, self.scales = window, scales

    @property
    def influence(self):
        return RankOne(self.scales)


class RankOne(Influence):
    """u ⊗ v over all parameters, and ‖v‖², known since v was written: the next step would else have to look at all of v first."""

    scales: str = eqx.field(static=True, default=ROWS)
    unbiased: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    def init(self, cell):
        state = initial_state(cell)
        return jnp.zeros_like(state), jax.tree.map(jnp.zeros_like, parameters(cell)), jnp.zeros((), state.dtype)

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        return self.injected(carried, cell, memory, jax.random.rademacher(key, carried[0].shape, carried[0].dtype))

    def injected(
        self, carried: tuple[Array, Cell, Array], cell: Cell, memory: Memory, signs: Float[Array, " m"]
    ) -> tuple[Array, Cell, Array]:
        """One step with given signs."""
        u, v, squares = carried
        left, right = self._sides(cell, memory, signs)
        through, added = transition(cell, memory).matvec(u), pullback(cell, memory, right)
        x, y = _factors(through, squares, left, pullback_norm(cell, memory, right))
        new = jax.tree.map(lambda a, b: x[1] * a + y[1] * b, v, added)
        return x[0] * through + y[0] * left, new, jnp.square(norm(new))

    def _sides(self, cell, memory, signs):
        """w∘ν and ν/w. A sign for the whole would change nothing: those of ν have it in them."""
        scale = self.weights(cell, memory)
        return signs * scale, signs * jnp.where(scale == 0, 0, 1 / jnp.where(scale == 0, 1, scale))

    def weights(self, cell: Cell, memory: Memory) -> Float[Array, " m"]:
        """w: any positive numbers will do, and 0 where a row of F is."""
        if self.scales == ROWS and isinstance(memory, KroneckerMemory):
            return jnp.sqrt(immediate_norms(cast(KroneckerCell, cell), memory))
        return jnp.ones_like(initial_state(cell))

    def absorb_all(self, carried, cells, memories, keys):
        """One step of all streams at once: passes over the whole of v keep all cores busy."""
        if memories.alive.shape[1] > 1:
            return stream_by_stream(self, carried, cells, memories, keys)
        return jax.vmap(lambda *one: self.absorb(one[0], cells, *one[1:]))(carried, memories, keys)

    def advance(self, carried, cells, memories, keys, delta):
        """By a kernel that reads and writes v once, where a Kronecker cell has many weights."""
        u, v, squares = carried
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), v)
        if not isinstance(memories, KroneckerMemory) or not native.worth(jax.tree.leaves(one)[0]):
            new = self.absorb_all(carried, cells, memories, keys)
            return new, self.contract(new, first_of(cells), delta)
        cell, memory = cast(KroneckerCell, first_of(cells)), jax.tree.map(lambda a: a[:, 0], memories)
        signs = jax.vmap(lambda key: jax.random.rademacher(key, u.shape[1:], u.dtype))(keys)
        left, right = jax.vmap(lambda *one: self._sides(cell, *one))(memory, signs)
        through, sizes = forward_all(cell, memory, u), jax.vmap(lambda *one: pullback_norm(cell, *one))(memory, right)
        x, y = jax.vmap(_factors)(through, squares, left, sizes)
        u = x[0][:, None] * through + y[0][:, None] * left
        columns, mask = through_diagonals(memory, y[1][:, None] * right), np.asarray(cell.mask)
        factors = jnp.stack([x[1], jnp.sum(delta * u, axis=1)], axis=1)
        weight, gradient, squares = rank_one.mixed(
            cast(Any, v).weight, memory.regressor, columns, factors, mask if cell.is_masked else None
        )
        new = u, eqx.tree_at(lambda c: c.weight, v, weight), squares
        return new, eqx.tree_at(lambda c: c.weight, parameters(cell), gradient)

    def cost(self, sizes, block):
        return Cost(
            0, 2 * sizes.pull if sizes.dense else sizes.n * sizes.q, 8 * sizes.parameters, 1.2 * sizes.parameters
        )

    def contract(self, carried, cell, delta):
        u, v, _ = carried
        scale = jnp.sum(delta * u, axis=1)
        return jax.tree.map(lambda a: jnp.tensordot(scale, a, 1), v)

    def materialise(self, carried, cell):
        u, v, _ = carried
        return jax.tree.map(lambda a: jnp.tensordot(u, a, 0), v)


def _factors(through, squares, left, size):
    """Of the old product, H u ⊗ v, and of the new one, so that the two factors of each have the same norm."""
    sizes = jnp.sqrt(jnp.sum(through**2)), jnp.sqrt(jnp.sum(left**2))
    return balance(sizes[0], jnp.sqrt(squares)), balance(sizes[1], size)
