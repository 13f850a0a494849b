"""Online standardisation of features, without look-ahead."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

SLOWEST = 1e-3  # running means forget, so that they follow a drift: no sample weighs less than this when it comes
WARM = 30  # values after which their spread is known
GROWTH = 0.25  # of a variance, the most that one value can do: a wild one moves little, a new level is soon followed
USUAL = 6.0  # standard deviations within which a value counts in full, however few there were
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
    rate = running_rate(count)
    off = jnp.where(present, raw, 0) - scaler.mean
    reach = jnp.maximum(USUAL, jnp.sqrt(GROWTH / rate))
    off = within(off, reach * jnp.sqrt(scaler.variance), count > WARM)
    rate = jnp.where(present, rate, 0)
    mean = scaler.mean + rate * off
    return Scaler(count, mean, scaler.variance + rate * ((1 - rate) * off**2 - scaler.variance))


def standardise(scaler: Scaler, raw: Float[Array, " d"]) -> Float[Array, " d"]:
    """The values in standard deviations from the mean, 0 where missing. The sample itself counts: it is known."""
    scaler = update(scaler, raw)
    spread = jnp.sqrt(scaler.variance)
    known = ~jnp.isnan(raw) & (spread > 0)
    z = (jnp.where(known, raw, 0) - scaler.mean) / jnp.where(known, spread, 1)
    return jnp.where(known, jnp.clip(z, -FARTHEST, FARTHEST), 0)


def within(value: Array, bound: Array, known: Array) -> Array:
    """Clipped to ±bound once that is known and not 0."""
    return jnp.where(known & (bound > 0), jnp.clip(value, -bound, bound), value)


def running_rate(count: Array) -> Array:
    """What the newest of `count` values weighs in a running mean."""
    return jnp.maximum(1 / jnp.maximum(count, 1), SLOWEST)
