"""Decays between 0 and 1 as parameters that may be any number."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.initial import initial_keep
from evergrad._core.checks import refuse_unless

_TURN = 2 * math.pi


def complement(log_decay: Array) -> Array:
    """√(1 − a²) of a = exp(log_decay) ≤ 1: the size of the input that leaves the size of the state as it is.

    By expm1, since 1 − a² would lose all digits where a is nearly 1; held at 1e-6, where the root has no derivative.
    """
    return jnp.sqrt(jnp.maximum(-jnp.expm1(2 * log_decay), 1e-12))


def ring(
    initial: str, units: int, radii: tuple[float, float], call: str, *, key: jax.Array
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """ν and θ of λ = exp(−e^ν + i e^θ), uniformly distributed over the ring between two radii (Orvieto et al. 2023).

    "chrono:T" and "forget:B" say the radii instead.
    """
    low, high = radii
    refuse_unless(
        0 <= low < high <= 1,
        f"`{call}`: the radii must be 0 <= r_min < r_max <= 1, the share of its state that a unit keeps.",
    )
    key_radius, key_angle, key_span = jax.random.split(key, 3)
    keep = initial_keep(initial, units, key=key_span)
    if keep is None:
        area = jax.random.uniform(key_radius, (units,), minval=low**2, maxval=high**2)
        keep = jnp.sqrt(jnp.clip(area, 1e-6, 1 - 1e-6))
    angle = jax.random.uniform(key_angle, (units,), minval=1e-6, maxval=_TURN)
    return jnp.log(-jnp.log(keep)), jnp.log(angle)


def rotation(nu: Array, theta: Array) -> tuple[Array, Array]:
    """λ = exp(−e^ν + i e^θ), as a pair."""
    radius, angle = jnp.exp(-jnp.exp(nu)), jnp.exp(theta)
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


def rotated(by: tuple[Array, ...], state: tuple[Array, ...]) -> tuple[Array, Array]:
    """λ h of a complex h, as a pair."""
    real, imaginary = by
    return real * state[0] - imaginary * state[1], real * state[1] + imaginary * state[0]
