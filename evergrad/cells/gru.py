from typing import ClassVar

import jax
import jax.numpy as jnp

from evergrad.cells.base import KroneckerCell
from evergrad.cells.initial import CANDIDATE, KEEP, OTHER


class GRU(KroneckerCell):
    """h' = (1−z)·tanh(aₓ + r·aₕ) + z·h: the reset-*after* form of cuDNN, PyTorch and ONNX `linear_before_reset=1`.

    aₓ sees x only and aₕ sees h only, so that both are linear in the same ĥ. In the reset-*before* form the
    candidate is linear in (x, r·h), another vector for another gate: F is then no Kronecker product, and KF, OK and
    KTP do not apply. Reference: Cho et al. 2014.
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1", "xh1", "x1", "h1")  # r, z, candidate of x, candidate of h
    roles: ClassVar[tuple[str, ...]] = (OTHER, KEEP, CANDIDATE, CANDIDATE)

    def activate(self, z, state):
        (h,) = state
        reset, update = jax.nn.sigmoid(z[0]), jax.nn.sigmoid(z[1])
        return ((1 - update) * jnp.tanh(z[2] + reset * z[3]) + update * h,)
