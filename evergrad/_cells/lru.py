from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.decay import complement, ring, rotated, rotation
from evergrad._cells.initial import CANDIDATE
from evergrad._cells.unit import UnitCell, drawn_weight


class LRU(UnitCell):
    """Linear recurrent unit: h' = λ h + e^γ (z¹ + i z²), λ = exp(−e^ν + i e^θ); the readout sees (Re h, Im h), 2n numbers.

    `r_min` and `r_max` bound |λ| at the start, uniformly over the ring; e^γ starts at √(1 − |λ|²) and is then trained on
    its own. Linear in time: what is not linear in the inputs is for the readout, or for a layer in between, to add.
    Reference: Orvieto et al. 2023; online: Zucchet et al. 2023.

    Examples:
        >>> cell = eg.LRU(inputs=3, units=8, r_min=0.9, r_max=0.99, key=key)
        >>> cell.outputs  # the readout sees two numbers a unit
        16
        >>> model = eg.Model(cell, eg.Linear(units=cell.outputs, outputs=1, key=key))
    """

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE, CANDIDATE)  # real and imaginary part
    own_names: ClassVar[tuple[str, ...]] = ("nu", "theta", "gamma")
    states: ClassVar[int] = 2
    seen_of_unit: ClassVar[int] = 2

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 2n"]
    nu: Float[Array, " n"]
    theta: Float[Array, " n"]
    gamma: Float[Array, " n"]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        r_min: float = 0.0,
        r_max: float = 1.0,
    ):
        self.weight, key = drawn_weight(LRU, inputs, units, initial, key)
        self.inputs, self.units = inputs, units
        call = f"LRU(r_min={r_min}, r_max={r_max})"
        self.nu, self.theta = ring(initial, units, (r_min, r_max), call, key=key)
        self.gamma = jnp.log(complement(-jnp.exp(self.nu)))

    def settled(self, own):
        nu, theta, gamma = own
        return *rotation(nu, theta), jnp.exp(gamma)

    def advance_unit(self, own, z, state):
        *by, scale = own
        real, imaginary = rotated(tuple(by), state)
        return real + scale * z[0], imaginary + scale * z[1]
