"""Sizes of a few values that one wild one does not set.

Over the newest values a learner has kept: the median and the median distance from it say what is usual, and what is
farther out than that counts as if it were at the edge. Used while there are few values, over all of them anew each time,
so that what a wild one did at first is taken back as soon as others show it for what it is.
Reference: Hampel 1974, The influence curve and its role in robust estimation.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

KEPT = 30  # newest values
USUAL = 6.0  # standard deviations of ordinary noise, beyond which a value is wild
NORMAL = 1.4826  # standard deviations of ordinary noise in its median distance


def keep(recent: Float[Array, "*B n"], count: Float[Array, "*B"], value: Float[Array, "*B"]) -> Float[Array, "*B n"]:
    """The ring of the newest n values with number `count` (1, 2, …) put in."""
    newest = (count - 1) % KEPT
    return jnp.where(_places(count) == newest[..., None], value[..., None], recent)


def centre_and_spread(
    recent: Float[Array, "*B n"], count: Float[Array, "*B"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Mean and standard deviation of the first `count` values, wild ones drawn in."""
    there = _there(recent, count)
    middle = _median(recent, there)[..., None]
    reach = USUAL * NORMAL * usual_size(jnp.abs(recent - middle), there)[..., None]
    return mean_and_spread(jnp.clip(recent, middle - reach, middle + reach), count)


def mean_and_spread(
    recent: Float[Array, "*B n"], count: Float[Array, "*B"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Of the first `count` values, as they are."""
    there = _there(recent, count)
    number = jnp.maximum(there.sum(-1).astype(recent.dtype), 1)
    mean = jnp.where(there, recent, 0).sum(-1) / number
    off = jnp.where(there, recent - mean[..., None], 0)
    largest = jnp.abs(off).max(-1)  # in units of which squares neither vanish nor overflow
    unit = jnp.where(largest > 0, largest, 1)
    return mean, largest * jnp.sqrt(((off / unit[..., None]) ** 2).sum(-1) / number)


def mean_size(sizes: Float[Array, "*B n"], count: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Of the first `count` sizes (none below 0), wild ones drawn in."""
    there = _there(sizes, count)
    drawn = jnp.minimum(sizes, USUAL * usual_size(sizes, there)[..., None])
    return jnp.where(there, drawn, 0).sum(-1) / jnp.maximum(there.sum(-1).astype(sizes.dtype), 1)


def usual_size(sizes: Float[Array, "*B n"], there: Bool[Array, "*B n"]) -> Float[Array, "*B"]:
    """The median; if that is 0, since most values are equal, the median of the others. Sizes are not below 0, so that zeros come first."""
    number, positive = there.sum(-1), (there & (sizes > 0)).sum(-1)
    zeros = number - positive
    places = jnp.concatenate([_middle(number), zeros[..., None] + _middle(positive)], -1)
    low, high, low_of_others, high_of_others = jnp.moveaxis(at_ranks(jnp.where(there, sizes, jnp.inf), places), -1, 0)
    others = jnp.where(positive > 0, (low_of_others + high_of_others) / 2, 0)
    return jnp.where((number > 0) & (low + high > 0), (low + high) / 2, others)


def _there(recent, count):
    return jnp.broadcast_to(_places(count) < count[..., None], recent.shape)


def _places(count):
    """0 … n − 1, with as many axes in front as the streams have."""
    return jnp.arange(KEPT, dtype=count.dtype).reshape(*(1,) * count.ndim, KEPT)


def _median(values, there):
    """0 of none."""
    number = there.sum(-1)
    return jnp.where(number > 0, at_ranks(jnp.where(there, values, jnp.inf), _middle(number)).mean(-1), 0)


def _middle(number):
    """The two places of a median among so many, equal if their number is odd."""
    last = jnp.maximum(number - 1, 0)[..., None]
    return jnp.concatenate([last // 2, (last + 1) // 2], -1)


def at_ranks(values: Float[Array, "*B n"], ranks: Int[Array, "*B k"]) -> Float[Array, "*B k"]:
    """The values at these places (0 for the smallest) if they were in order.

    By counting, which is a few wide instructions for some tens of values; a sort is a call for each of them.
    """
    smaller = (values[..., None, :] < values[..., :, None]).sum(-1)
    return jnp.where(smaller[..., None, :] <= ranks[..., :, None], values[..., None, :], -jnp.inf).max(-1)
