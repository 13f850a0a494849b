from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad.cells.base import KroneckerCell
from evergrad.cells.initial import CANDIDATE, KEEP
from evergrad.checks import refuse_unless

_SQUASH = {"sigmoid": lambda z: 2 * jax.nn.sigmoid(z) - 1, "tanh": jnp.tanh}


class RHN(KroneckerCell):
    """Recurrent highway network of depth one: h' = f·h + (1−f)·c, f = σ(z²), c = squash(z¹).

    `squash` is "sigmoid" for the 2σ−1 of the paper's runs, or "tanh". Starts at N(0, 0.01²), as those runs do.
    Reference: Zilly et al. 2017.
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1", "xh1")  # candidate, carry gate
    roles: ClassVar[tuple[str, ...]] = (CANDIDATE, KEEP)
    squash: str = eqx.field(static=True)

    def __init__(self, inputs, units, *, key=None, initial="normal", squash="sigmoid"):
        refuse_unless(squash in _SQUASH, f'RHN(squash="{squash}"): choose "sigmoid" (2σ−1, the paper\'s) or "tanh".')
        KroneckerCell.__init__(self, inputs, units, key=key, initial=initial)
        self.squash = squash

    def activate(self, z, state):
        (h,) = state
        candidate, carry = _SQUASH[self.squash](z[0]), jax.nn.sigmoid(z[1])
        return (carry * h + (1 - carry) * candidate,)
