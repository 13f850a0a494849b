from typing import ClassVar

import jax
import jax.numpy as jnp

from evergrad.cells.base import KroneckerCell
from evergrad.cells.initial import CANDIDATE, KEEP, OTHER, WRITE


class LSTM(KroneckerCell):
    """c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c'); a unit's state is the pair (h, c).

    The influence therefore has 2n rows, and D is 2 x 4 diagonal blocks. Reference: Hochreiter & Schmidhuber 1997,
    with forget gates.
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1",) * 4  # i, f, g, o
    roles: ClassVar[tuple[str, ...]] = (WRITE, KEEP, CANDIDATE, OTHER)
    states: ClassVar[int] = 2

    def activate(self, z, state):
        i, f, g, o = z
        _, c = state
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c
