from typing import ClassVar

import jax.numpy as jnp

from evergrad._cells.base import KroneckerCell
from evergrad._cells.initial import CANDIDATE


class RNN(KroneckerCell):
    """h' = tanh(z)."""

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE,)

    def activate(self, z, state):
        return (jnp.tanh(z[0]),)
