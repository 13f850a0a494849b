import jax.numpy as jnp

from evergrad.cells.base import KroneckerCell


class RNN(KroneckerCell):
    """h' = tanh(z)."""

    def activate(self, z, state):
        return (jnp.tanh(z[0]),)
