from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._cells.base import KroneckerCell
from evergrad._cells.initial import CANDIDATE
from evergrad._core.checks import refuse_unless


class Leaky(KroneckerCell):
    """h' = (1−a)·h + a·tanh(z): leaky tanh units, or an Euler step of size a = Δt/τ of a continuous-time RNN.

    `leak` is a, the same number for all units, and not trained. The recurrent weights are dense.

    Examples:
        >>> cell = eg.Leaky(inputs=3, units=8, leak=0.1, key=key)
        >>> cell.leak
        0.1
    """

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE,)
    leak: float = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]  # __init__ is our own

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        mask: Any = None,
        leak: float | int = 0.5,
    ):
        refuse_unless(
            isinstance(leak, float | int) and bool(0 < leak <= 1),
            f"Leaky(leak={leak}): the leak is the share of the state that is new, above 0 and at most 1 (then it is eg.RNN).",
        )
        KroneckerCell.__init__(self, inputs, units, key=key, initial=initial, mask=mask)
        self.leak = float(leak)

    def activate(self, z, state):
        return ((1 - self.leak) * state[0] + self.leak * jnp.tanh(z[0]),)
