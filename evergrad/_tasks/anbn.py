import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core.checks import whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, entropy, real

A, B, END = 0, 1, 2


class AnBnStream(eqx.Module):
    at: Int[Array, ""]  # place in the string
    n: Int[Array, ""]


class AnBn(Generated):
    """The next symbol of strings aⁿbⁿ#, one after the other, n uniform from 1 to `largest`.

    All that is uncertain is n, once a string of 2n + 1 symbols, so the optimum is log(largest) / (largest + 2) nats a
    symbol. The b's must be counted against the a's, and then all be forgotten. Nothing is ever reset.
    """

    inputs: ClassVar[int] = 3
    classes: ClassVar[int] = 3
    largest: int = eqx.field(static=True)

    def __init__(self, largest: int = 32):
        whole_number(largest, 2, f"AnBn(largest={largest})", "largest", "the most a's in a row")
        self.largest = largest

    def begin(self, number, key):
        return AnBnStream(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def proceed(self, stream, key):
        drawn = jax.random.randint(key, (), 1, self.largest + 1, jnp.int32)
        n = jnp.where(stream.at == 0, drawn, stream.n)
        ends = stream.at == 2 * n
        after = jnp.where(ends, 0, stream.at + 1)
        data = Data(_symbol(stream.at, n), _symbol(after, n), jnp.zeros((), bool), real(True))
        return data, AnBnStream(after, n)

    def optimum(self):
        return math.log(self.largest) / (self.largest + 2)

    def ignorance(self):
        mean = self.largest + 2
        letter = (self.largest + 1) / 2 / mean
        return entropy((letter, letter, 1 / mean))


def _symbol(at, n):
    return jnp.where(at < n, A, jnp.where(at < 2 * n, B, END)).astype(jnp.int32)
