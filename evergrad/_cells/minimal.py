"""The minimal gated cells: gates and candidate see x only, so that nothing but the unit's own state goes round."""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from evergrad._cells.initial import CANDIDATE, KEEP, UPDATE, WRITE
from evergrad._cells.unit import UnitCell, drawn_weight


class MinGRU(UnitCell):
    """h' = (1−ζ)·h + ζ·z², ζ = σ(z¹). Reference: Feng et al. 2024, without their logarithms.

    Examples:
        >>> cell = eg.MinGRU(inputs=3, units=8, key=key, initial="chrono:50")
        >>> cell.units, cell.outputs
        (8, 8)
    """

    roles: ClassVar[tuple[str, ...]] = (UPDATE, CANDIDATE)

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 2n"]

    def __init__(self, inputs: int, units: int, *, key: jax.Array | None = None, initial: str = "fan_in"):
        self.weight, _ = drawn_weight(MinGRU, inputs, units, initial, key)
        self.inputs, self.units = inputs, units

    def advance_unit(self, own, z, state):
        update = jax.nn.sigmoid(z[0])
        return ((1 - update) * state[0] + update * z[1],)


class MinLSTM(UnitCell):
    """h' = (f·h + i·z³) / (f + i), f = σ(z¹), i = σ(z²). Reference: Feng et al. 2024, without their logarithms.

    Examples:
        >>> eg.MinLSTM(inputs=3, units=8, key=key).outputs
        8
    """

    roles: ClassVar[tuple[str, ...]] = (KEEP, WRITE, CANDIDATE)

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 3n"]

    def __init__(self, inputs: int, units: int, *, key: jax.Array | None = None, initial: str = "fan_in"):
        self.weight, _ = drawn_weight(MinLSTM, inputs, units, initial, key)
        self.inputs, self.units = inputs, units

    def advance_unit(self, own, z, state):
        # f/(f + i) as a sigmoid, so that two closed gates are no 0/0
        keep = jax.nn.sigmoid(jax.nn.log_sigmoid(z[0]) - jax.nn.log_sigmoid(z[1]))
        return (keep * state[0] + (1 - keep) * z[2],)
