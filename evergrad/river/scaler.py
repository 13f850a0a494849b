"""Online standardisation of features, without look-ahead."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

SLOWEST = 1e-3  # running means forget, so that they follow a drift: no sample weighs less than this when it comes
LARGEST = 4e18  # feature or target: float32 holds the square of four times it, as a change of a change may be
FARTHEST = 4.0  # standard deviations; beyond that a value says "far out" and no more


class Scaler(eqx.Module):
    """Running mean and variance of every slot of one stream. NaN is a missing value and changes nothing."""

    count: Float[Array, " d"]
    mean: Float[Array, " d"]
    variance: Float[Array, " d"]


def start(slots: int) -> Scaler:
    return Scaler(jnp.zeros(slots), jnp.zeros(slots), jnp.zeros(slots))


def update(scaler: Scaler, raw: Float[Array, " d"]) -> Scaler:
    present = ~jnp.isnan(raw)
    count = scaler.count + jnp.asarray(present, raw.dtype)
    rate = jnp.where(present, running_rate(count), 0)
    off = jnp.where(present, raw, 0) - scaler.mean
    mean = scaler.mean + rate * off
    return Scaler(count, mean, scaler.variance + rate * ((1 - rate) * off**2 - scaler.variance))


def standardise(scaler: Scaler, raw: Float[Array, " d"]) -> Float[Array, " d"]:
    """The values in standard deviations from the mean, 0 where missing. The sample itself counts: it is known."""
    scaler = update(scaler, raw)
    spread = jnp.sqrt(scaler.variance)
    known = ~jnp.isnan(raw) & (spread > 0)
    z = (jnp.where(known, raw, 0) - scaler.mean) / jnp.where(known, spread, 1)
    return jnp.where(known, jnp.clip(z, -FARTHEST, FARTHEST), 0)


def running_rate(count: Array) -> Array:
    """What the newest of `count` values weighs in a running mean."""
    return jnp.maximum(1 / jnp.maximum(count, 1), SLOWEST)
