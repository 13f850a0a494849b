from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.decay import complement
from evergrad._cells.initial import CANDIDATE, OTHER, initial_keep
from evergrad._cells.unit import UnitCell, drawn_weight

_SHARP = 8.0  # the c of the paper


class RGLRU(UnitCell):
    """Real-gated linear recurrent unit (Hawk): h' = a·h + √(1−a²)·i·z³, a = exp(−8·softplus(Λ)·ρ), ρ = σ(z¹), i = σ(z²).

    The decay at ρ = 1 starts uniformly between 0.9 and 0.999; "chrono:T" and "forget:B" say the one at ρ = ½ instead.
    Reference: De et al. 2024. Deviation: the root is held at 1e-6 where a is 1.

    Examples:
        >>> eg.RGLRU(inputs=3, units=8, key=key).outputs
        8
    """

    roles: ClassVar[tuple[str, ...]] = (OTHER, OTHER, CANDIDATE)
    own_names: ClassVar[tuple[str, ...]] = ("decay",)

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p 3n"]
    decay: Float[Array, " n"]

    def __init__(self, inputs: int, units: int, *, key: jax.Array | None = None, initial: str = "fan_in"):
        self.weight, key = drawn_weight(RGLRU, inputs, units, initial, key)
        self.inputs, self.units = inputs, units
        keep = initial_keep(initial, units, key=key)
        fastest = jax.random.uniform(key, (units,), minval=0.9, maxval=0.999) if keep is None else keep**2
        self.decay = jnp.log(jnp.expm1(-jnp.log(fastest) / _SHARP))  # softplus, backwards

    def settled(self, own):
        return (-_SHARP * jax.nn.softplus(own[0]),)

    def advance_unit(self, own, z, state):
        log_decay = own[0] * jax.nn.sigmoid(z[0])
        return (jnp.exp(log_decay) * state[0] + complement(log_decay) * jax.nn.sigmoid(z[1]) * z[2],)
