from typing import ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.checks import refuse_unless
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step, stream_by_stream
from evergrad._core.linearize import (
    KroneckerMemory,
    Memory,
    immediate_norms,
    initial_state,
    pullback,
    pullback_norm,
    transition,
)
from evergrad._core.parameters import parameters
from evergrad._estimators.scaling import mixed
from evergrad._estimators.windowed import Windowed, check_window, windows_of

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
    """u ⊗ v over all parameters."""

    scales: str = eqx.field(static=True, default=ROWS)
    unbiased: ClassVar[bool] = True

    def init(self, cell):
        return jnp.zeros_like(initial_state(cell)), jax.tree.map(jnp.zeros_like, parameters(cell))

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        return self.injected(carried, cell, memory, jax.random.rademacher(key, carried[0].shape, carried[0].dtype))

    def injected(
        self, carried: tuple[Array, Cell], cell: Cell, memory: Memory, signs: Float[Array, " m"]
    ) -> tuple[Array, Cell]:
        """One step with given signs."""
        u, v = carried
        one = jnp.ones((), u.dtype)  # a sign for the whole would change nothing: the signs of ν have it in them
        scale = self.weights(cell, memory)
        left, right = signs * scale, signs * jnp.where(scale == 0, 0, 1 / jnp.where(scale == 0, 1, scale))
        norms = jnp.linalg.norm(left), pullback_norm(cell, memory, right)
        new = left, pullback(cell, memory, right)
        return mixed((transition(cell, memory).matvec(u), v), new, (one, one), norms)

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

    def cost(self, sizes, block):
        return Cost(
            0, 2 * sizes.pull if sizes.dense else sizes.n * sizes.q, 8 * sizes.parameters, 1.2 * sizes.parameters
        )

    def contract(self, carried, cell, delta):
        u, v = carried
        scale = jnp.sum(delta * u, axis=1)
        return jax.tree.map(lambda a: jnp.tensordot(scale, a, 1), v)

    def materialise(self, carried, cell):
        u, v = carried
        return jax.tree.map(lambda a: jnp.tensordot(u, a, 0), v)
