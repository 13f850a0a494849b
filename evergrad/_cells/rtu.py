from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.activations import ACTIVATIONS, check_activation
from evergrad._cells.decay import complement, ring, rotated, rotation
from evergrad._cells.initial import CANDIDATE
from evergrad._cells.unit import UnitCell, drawn_weight


class RTU(UnitCell):
    """Recurrent trace unit: an LRU whose input is scaled by √(1 − |λ|²) and that has a non-linearity f of its own.

    With R h = λ h, λ = exp(−e^ν + i e^θ), and γ = √(1 − |λ|²), a function of ν, on pairs of numbers:

        linear=True   h' = R h + γ (z¹, z²), the readout sees f(h)
        linear=False  h' = f(R h + γ (z¹, z²)), the readout sees h

    2n numbers in both; f is `activation`, "relu" or "tanh". Reference: Elelimy et al. 2024.

    Examples:
        >>> cell = eg.RTU(inputs=3, units=8, linear=False, activation="tanh", key=key)
        >>> cell.outputs
        16
    """

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE, CANDIDATE)
    own_names: ClassVar[tuple[str, ...]] = ("nu", "theta")
    states: ClassVar[int] = 2
    seen_of_unit: ClassVar[int] = 2

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    linear: bool = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    weight: Float[Array, "p 2n"]
    nu: Float[Array, " n"]
    theta: Float[Array, " n"]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        linear: bool = True,
        activation: str = "relu",
        r_min: float = 0.0,
        r_max: float = 1.0,
    ):
        check_activation(activation, "RTU")
        self.weight, key = drawn_weight(RTU, inputs, units, initial, key)
        self.inputs, self.units, self.linear, self.activation = inputs, units, bool(linear), activation
        self.nu, self.theta = ring(initial, units, (r_min, r_max), f"RTU(r_min={r_min}, r_max={r_max})", key=key)

    def settled(self, own):
        return *rotation(*own), complement(-jnp.exp(own[0]))

    def advance_unit(self, own, z, state):
        *by, scale = own
        new = tuple(a + scale * b for a, b in zip(rotated(tuple(by), state), z, strict=True))
        return new if self.linear else tuple(map(ACTIVATIONS[self.activation], new))

    def output(self, state):
        seen = state.reshape(-1)
        return ACTIVATIONS[self.activation](seen) if self.linear else seen
