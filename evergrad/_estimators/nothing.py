from typing import ClassVar

import jax
import jax.numpy as jnp

from evergrad._core.costs import Cost
from evergrad._core.influence import Influence
from evergrad._core.linearize import initial_state
from evergrad._core.parameters import parameters


class Nothing(Influence):
    """What is older than the remembered steps has no influence: G' = 0."""

    unbiased: ClassVar[bool] = False

    def init(self, cell):
        return None

    def absorb(self, carried, cells, memories, key):
        return None

    def absorb_all(self, carried, cells, memories, keys):
        return None

    def contract(self, carried, cell, delta):
        return jax.tree.map(jnp.zeros_like, parameters(cell))

    def materialise(self, carried, cell):
        rows = initial_state(cell).size
        return jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), parameters(cell))

    def cost(self, sizes, block):
        return Cost()
