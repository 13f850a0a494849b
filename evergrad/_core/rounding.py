"""Numbers rounded at random, up or down, such that their mean is what they were."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

_STEP, _FIRST, _SECOND = 0x9E3779B9, 0x7FEB352D, 0x846CA68B  # odd numbers, whose products scatter all bits


def rounded_at_random(x: Float[Array, "*shape"], dtype: Any, key: Array) -> Array:
    """x in a type with the same exponents and fewer digits: one of the two neighbours there, and E[…] = x.

    The digits that do not fit are a share of the step between the two, and a random number of as many digits is added
    before they are dropped: it carries with just that probability. What is not finite stays as it is.
    """
    dropped = jnp.finfo(x.dtype).nmant - jnp.finfo(dtype).nmant
    whole = {4: jnp.uint32, 8: jnp.uint64}[x.dtype.itemsize]
    noise = _random_bits(x.shape, key).astype(whole)
    noise = noise >> (32 - dropped) if dropped <= 32 else noise << (dropped - 32)
    bits = jax.lax.bitcast_convert_type(x, whole) + noise
    kept = jax.lax.bitcast_convert_type((bits >> dropped) << dropped, x.dtype)
    return jnp.where(jnp.isfinite(x), kept, x).astype(dtype)


def _random_bits(shape: tuple[int, ...], key: Array) -> UInt32[Array, "*shape"]:
    """Each is uniform, since it is a permutation of a uniform number. Cheap, and part of whatever loop reads them: JAX's own
    generator would take longer than the products that made the numbers.
    """
    first, second = noise_of(key)
    places = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _scattered(_scattered(places * jnp.uint32(_STEP) + first) ^ second)


def noise_of(key: Array) -> UInt32[Array, " 2"]:
    """All that a rounding draws. The kernels round by the same two numbers."""
    return jax.random.bits(key, (2,), jnp.uint32)


def _scattered(bits: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """A permutation of all numbers of 32 bits."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(_FIRST)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(_SECOND)
    return bits ^ (bits >> 16)
