from typing import ClassVar

import jax.numpy as jnp

from evergrad._cells.base import KroneckerCell
from evergrad._cells.initial import CANDIDATE


class RNN(KroneckerCell):
    """h' = tanh(z).

    Examples:
        >>> cell = eg.RNN(inputs=3, units=8, key=key)
        >>> cell.weight.shape  # 3 inputs, 8 units and a bias
        (12, 8)
        >>> cell.step(cell.initial(), jnp.ones(3))[0].shape
        (8,)
    """

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE,)

    def activate(self, z, state):
        return (jnp.tanh(z[0]),)
