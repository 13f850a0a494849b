from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from evergrad._cells.activations import ACTIVATIONS, check_activation
from evergrad._cells.initial import CANDIDATE, initial_keep
from evergrad._cells.unit import UnitCell, drawn_weight


class IndRNN(UnitCell):
    """h' = f(z + w·h), w one number a unit; f is `activation`, "relu" or "tanh".

    w starts uniformly between 0 and 1; "chrono:T" and "forget:B" say it instead. Reference: Li et al. 2018.

    Examples:
        >>> eg.IndRNN(inputs=3, units=8, activation="tanh", key=key).outputs
        8
    """

    roles: ClassVar[tuple[str, ...]] = (CANDIDATE,)
    own_names: ClassVar[tuple[str, ...]] = ("recurrent",)
    sees_itself: ClassVar[bool] = True

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    weight: Float[Array, "p n"]
    recurrent: Float[Array, " n"]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        activation: str = "relu",
    ):
        check_activation(activation, "IndRNN")
        self.weight, key = drawn_weight(IndRNN, inputs, units, initial, key)
        self.inputs, self.units, self.activation = inputs, units, activation
        keep = initial_keep(initial, units, key=key)
        self.recurrent = jax.random.uniform(key, (units,)) if keep is None else keep

    def advance_unit(self, own, z, state):
        return (ACTIVATIONS[self.activation](z[0] + own[0] * state[0]),)
