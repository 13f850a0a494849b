"""How weights start."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad import room
from evergrad.checks import is_traced, refuse_unless

INITIAL = ("normal", "fan_in")


def initial_weight(
    initial: str, shape: tuple[int, int], fan_in: int, *, key: jax.Array
) -> Float[Array, "rows columns"]:
    """ "normal": N(0, 0.01²), biases included, as the paper's runs start. "fan_in": uniform within ±1/√fan_in."""
    refuse_unless(
        initial in INITIAL, f'initial="{initial}" is unknown: choose "normal" (N(0, 0.01²)) or "fan_in" (±1/√fan-in).'
    )
    if not is_traced(key):
        needed = math.prod(shape) * jnp.result_type(float).itemsize
        room.require(needed, f"an array of {shape[0]:,} x {shape[1]:,} weights", "use fewer units, inputs or outputs")
    if initial == "normal":
        return 0.01 * jax.random.normal(key, shape)
    bound = jnp.asarray(fan_in, jnp.result_type(float)) ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
