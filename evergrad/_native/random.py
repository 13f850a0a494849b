"""Random bits by a kernel: the same that JAX draws, which on a CPU takes a loop of eighty small operations for each draw."""

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, UInt32

from evergrad import _native as native

THREEFRY = "threefry2x32"
_WORD = 32  # bits


def generator(name: str, weights: Any) -> Any:
    """The generator of that name, or one that draws the same by a kernel, where a network has as many weights as that is worth."""
    known = name == THREEFRY and cast(Any, jax.config).jax_threefry_partitionable
    return _BY_KERNEL if known and native.worth_a_call(weights) else name


def _keys(words: UInt32[Array, "2"]) -> Array:
    return jax.random.wrap_key_data(words, impl=THREEFRY)


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jax.random.key_data(jax.random.key(seed, impl=THREEFRY))


def _split(words: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
    def pure(words):
        return jax.random.key_data(jax.random.split(_keys(words), shape))

    return native.either(_drawn((*shape, 2), folded=False), pure, words)


def _random_bits(words: UInt32[Array, "2"], width: int, shape: tuple[int, ...]) -> Array:
    def pure(words):
        return jax.random.bits(_keys(words), shape, jnp.dtype(f"uint{width}"))

    def two_words(words):
        pairs = jnp.asarray(_drawn((*shape, 2), folded=False)(words), jnp.uint64)
        return pairs[..., 0] << jnp.uint64(_WORD) | pairs[..., 1]

    kernels = {_WORD: _drawn(shape, folded=True), 2 * _WORD: two_words}
    if width not in kernels or not math.prod(shape):
        return pure(words)
    return native.either(kernels[width], pure, words)


def _fold_in(words: UInt32[Array, "2"], data: Array | int) -> UInt32[Array, "2"]:
    def kernel(words, data):
        return native.call("fold", jax.ShapeDtypeStruct((2,), jnp.uint32), words, data, mapped=True)

    def pure(words, data):
        return jax.random.key_data(jax.random.fold_in(_keys(words), data))

    return native.either(kernel, pure, words, jnp.asarray(data, jnp.uint32))


def _drawn(shape, *, folded):
    def kernel(words):
        return native.call("bits", jax.ShapeDtypeStruct(shape, jnp.uint32), words, mapped=True, folded=folded)

    return kernel


_BY_KERNEL = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32 by a kernel",
    tag="fryk",
)
