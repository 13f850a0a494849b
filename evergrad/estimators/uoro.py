from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad.costs import Cost
from evergrad.estimators.base import Estimator, check_window
from evergrad.estimators.scaling import mixed
from evergrad.linearize import initial_state, pullback, pullback_norm, transition
from evergrad.parameters import parameters


class UORO(Estimator):
    """Unbiased online recurrent optimisation: G ≈ u ⊗ v, u one number a state variable, v one a parameter.

        u' = ρ₀ H u + ρ₁ ν,  v' = v/ρ₀ + νF/ρ₁,  ν random signs;  ρ₀² = ‖v‖/‖Hu‖, ρ₁² = ‖νF‖/‖ν‖

    One Jacobian-vector and one vector-Jacobian product, no dense Jacobian, on any differentiable cell. Memory and time
    n². The signs serve twice, to project F and to mix. Reference: Tallec & Ollivier 2017.
    """

    window: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True

    def __init__(self, *, window: int = 0):
        check_window(window, f"UORO(window={window})")
        self.window = window

    def init(self, cell):
        return jnp.zeros_like(initial_state(cell)), jax.tree.map(jnp.zeros_like, parameters(cell))

    def step(self, carried, cell, memory, key):
        u, v = carried
        signs = jax.random.rademacher(key, u.shape, u.dtype)
        one = jnp.ones((), u.dtype)  # a sign for the whole would change nothing: the signs of ν have it in them
        new, norms = (
            (signs, pullback(cell, memory, signs)),
            (jnp.linalg.norm(signs), pullback_norm(cell, memory, signs)),
        )
        return mixed((transition(cell, memory).matvec(u), v), new, (one, one), norms)

    def step_all(self, carried, cell, memory, keys):
        """All streams at once: passes over the whole of v keep all cores busy."""
        return jax.vmap(lambda *one: self.step(one[0], cell, *one[1:]))(carried, memory, keys)

    def cost(self, sizes):
        return Cost(
            0, 2 * sizes.pull if sizes.dense else sizes.n * sizes.q, 8 * sizes.parameters, 1.2 * sizes.parameters
        )

    def gradient(self, carried, cell, delta):
        u, v = carried
        scale = jnp.sum(delta * u, axis=1)
        return jax.tree.map(lambda a: jnp.tensordot(scale, a, 1), v)

    def influence(self, carried, cell):
        u, v = carried
        return jax.tree.map(lambda a: jnp.tensordot(u, a, 0), v)
