"""Gated cells with diagonal recurrent weights: a gate sees its own unit's state and no other."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.initial import CANDIDATE, KEEP, OTHER, WRITE, initial_weight, read_initial
from evergrad._cells.unit import UnitCell, drawn_weight


class ELSTM(UnitCell):
    """Elementwise LSTM: f = σ(z¹ + w_f·c), u = tanh(z² + w_u·c), c' = f·c + (1−f)·u, output σ((x, c', 1) O)·c'.

    The output gate sees all units, but nothing comes back from it: its weights O (`gate`) are part of what the readout
    sees, and their gradient is that of the newest step, exactly. Reference: Irie et al. 2023.

    Examples:
        >>> cell = eg.ELSTM(inputs=3, units=8, key=key)
        >>> eg.RTRL().exact_for(cell)
        True
    """

    roles: ClassVar[tuple[str, ...]] = (KEEP, CANDIDATE)
    own_names: ClassVar[tuple[str, ...]] = ("w_f", "w_u")
    sees_itself: ClassVar[bool] = True

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 2n"]
    w_f: Float[Array, " n"]
    w_u: Float[Array, " n"]
    gate: Float[Array, "p n"]

    def __init__(self, inputs: int, units: int, *, key: jax.Array | None = None, initial: str = "fan_in"):
        self.weight, key = drawn_weight(ELSTM, inputs, units, initial, key)
        self.inputs, self.units = inputs, units
        key_own, key_gate = jax.random.split(key)
        self.w_f, self.w_u = _own_weights(initial, 2, units, key_own)
        spread = read_initial(initial).spread
        self.gate = initial_weight(spread, (inputs + units + 1, units), units, key=key_gate)

    def advance_unit(self, own, z, state):
        (c,) = state
        keep = jax.nn.sigmoid(z[0] + own[0] * c)
        return (keep * c + (1 - keep) * jnp.tanh(z[1] + own[1] * c),)

    def output(self, state: Float[Array, "s n"], x: Float[Array, " inputs"]) -> Float[Array, " n"]:
        (c,) = state
        return jax.nn.sigmoid(jnp.concatenate([x, c, jnp.ones(1, c.dtype)]) @ self.gate) * c


class ColumnarLSTM(UnitCell):
    """An LSTM whose gates see x and their own unit's h: gate = σ(z + w·h), c' = f·c + i·tanh(z³ + w·h), h' = o·tanh(c').

    Reference: Javed et al. 2023, without their online normalisation of the features and without stages that are added later.

    Examples:
        >>> cell = eg.ColumnarLSTM(inputs=3, units=8, key=key)
        >>> eg.RTRL().exact_for(cell)
        True
    """

    roles: ClassVar[tuple[str, ...]] = (WRITE, KEEP, CANDIDATE, OTHER)  # i, f, g, o, as in eg.LSTM
    own_names: ClassVar[tuple[str, ...]] = ("w_i", "w_f", "w_g", "w_o")
    sees_itself: ClassVar[bool] = True
    states: ClassVar[int] = 2

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 4n"]
    w_i: Float[Array, " n"]
    w_f: Float[Array, " n"]
    w_g: Float[Array, " n"]
    w_o: Float[Array, " n"]

    def __init__(self, inputs: int, units: int, *, key: jax.Array | None = None, initial: str = "fan_in"):
        self.weight, key = drawn_weight(ColumnarLSTM, inputs, units, initial, key)
        self.inputs, self.units = inputs, units
        self.w_i, self.w_f, self.w_g, self.w_o = _own_weights(initial, 4, units, key)

    def advance_unit(self, own, z, state):
        h, c = state
        i, f, g, o = (a + w * h for a, w in zip(z, own, strict=True))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _own_weights(initial: str, rows: int, units: int, key: jax.Array) -> Float[Array, "kappa n"]:
    """Of gates that see one number of the state: with "fan_in", uniform within ±1."""
    return initial_weight(read_initial(initial).spread, (rows, units), 1, key=key)
