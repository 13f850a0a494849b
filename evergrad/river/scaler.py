"""Online standardisation of features, without look-ahead."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.river import robust

SLOWEST = 1e-3  # running means forget, so that they follow a drift: no sample weighs less than this when it comes
WARM = robust.KEPT  # values after which their spread is known
GROWTH = 0.25  # of a variance, the most that one value can do: a wild one moves little, a new level is soon followed
USUAL = robust.USUAL  # standard deviations within which a value counts in full, however few there were
# The newest 30 values say that the scale is out of date if they vary by less than that part of it. A steady trend does not:
# in 30 samples it makes 1/30 of the way that it makes in the 1,000 which the scale remembers.
CALM = 1 / 64
ROUNDING = 1e-6  # of a value: what varies by no more stands still
LARGEST = 4e18  # feature or target: float32 holds the square of four times it, as a change of a change may be
FARTHEST = 4.0  # standard deviations; beyond that a value says "far out" and no more


class Scaler(eqx.Module):
    """Running mean and spread of every slot of a stream, or of many. NaN is a missing value and changes nothing.

    The first 30 values are looked at together and robustly, each time anew. Later the spread cannot grow by much at one
    value, and if the newest 30 show a far smaller one, as after a change of unit, the scale begins again with these.
    """

    count: Float[Array, "*B d"]
    mean: Float[Array, "*B d"]
    spread: Float[Array, "*B d"]
    recent: Float[Array, "*B d n"]  # the newest values, in a ring

    @property
    def variance(self) -> Float[Array, "*B d"]:
        return self.spread**2


def start(slots: int) -> Scaler:
    return Scaler(jnp.zeros(slots), jnp.zeros(slots), jnp.zeros(slots), jnp.zeros((slots, robust.KEPT)))


def update(scaler: Scaler, raw: Float[Array, "*B d"]) -> Scaler:
    present = ~jnp.isnan(raw)
    raw = jnp.where(present, raw, 0)
    count = scaler.count + 1
    recent = robust.keep(scaler.recent, count, raw)
    new = _follow(_running(scaler, count, raw, recent), raw)
    first = present & (count <= WARM)
    # a condition of all streams, not of each, so that it is one in the compiled program too
    new = jax.lax.cond(first.any(), lambda new: _choose(first, _first(new), new), lambda new: new, new)
    return _choose(present, new, scaler)


def _running(scaler, count, raw, recent):
    rate = running_rate(count)
    reach = jnp.maximum(USUAL, jnp.sqrt(GROWTH / rate))
    off = within(raw - scaler.mean, reach * scaler.spread, count > WARM)
    # (1 − r) s² + r (1 − r) off², in units of the larger, so that squares of 1e-20 do not vanish
    larger = jnp.maximum(scaler.spread, jnp.abs(off))
    unit = jnp.where(larger > 0, larger, 1)
    spread = larger * jnp.sqrt((1 - rate) * ((scaler.spread / unit) ** 2 + rate * (off / unit) ** 2))
    return Scaler(count, scaler.mean + rate * off, spread, recent)


def _follow(scaler, raw):
    """The scale begins again where the newest values are far closer to each other than it says."""
    whole = jnp.full(scaler.count.shape, WARM, raw.dtype)
    mean, spread = robust.mean_and_spread(scaler.recent, whole)
    calm = (scaler.count > WARM) & (spread < CALM * scaler.spread) & (spread > ROUNDING * jnp.abs(mean))
    in_order = 1 + (scaler.count - 1) % WARM  # so that the ring goes on where it is
    return _choose(calm, Scaler(WARM + in_order, mean, spread, scaler.recent), scaler)


def _first(scaler):
    mean, spread = robust.centre_and_spread(scaler.recent, scaler.count)
    return Scaler(scaler.count, mean, spread, scaler.recent)


def _choose(condition, one, other):
    def pick(a, b):
        return jnp.where(condition if a.ndim == condition.ndim else condition[..., None], a, b)

    return jax.tree.map(pick, one, other)


def standardise(scaler: Scaler, raw: Float[Array, "*B d"]) -> Float[Array, "*B d"]:
    """The values in standard deviations from the mean, 0 where missing. The sample itself counts: it is known."""
    scaler = update(scaler, raw)
    known = ~jnp.isnan(raw) & (scaler.spread > 0)
    z = (jnp.where(known, raw, 0) - scaler.mean) / jnp.where(known, scaler.spread, 1)
    return jnp.where(known, jnp.clip(z, -FARTHEST, FARTHEST), 0)


def within(value: Array, bound: Array, known: Array) -> Array:
    """Clipped to ±bound once that is known and not 0."""
    return jnp.where(known & (bound > 0), jnp.clip(value, -bound, bound), value)


def running_rate(count: Array) -> Array:
    """What the newest of `count` values weighs in a running mean."""
    return jnp.maximum(1 / jnp.maximum(count, 1), SLOWEST)
