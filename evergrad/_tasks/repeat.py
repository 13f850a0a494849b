import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core.checks import whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real, waiting


class RepeatStream(eqx.Module):
    at: Int[Array, ""]  # steps since the first bit; below 0 before a stream's first
    bits: Int[Array, " length"]


class Repeat(Generated):
    """Copying at one lag: `length` random bits, `gap` steps of nothing, and the same bits said again.

    x is the bit as ±1 where it is shown, and 1 where it is to be said; the loss is at those steps only. Every bit is said
    `lag` = length + gap steps after it was shown. Streams are reset at their first bits. The optimum is 0; who does not
    remember has log 2. Without a gap a longer lag is also more to hold; with a fixed length it is not. `Copy` is the
    same with strings that grow.
    """

    inputs: ClassVar[int] = 2
    classes: ClassVar[int] = 2
    length: int = eqx.field(static=True)
    gap: int = eqx.field(static=True)

    def __init__(self, length: int = 4, gap: int = 0):
        call = f"Repeat(length={length}, gap={gap})"
        whole_number(length, 1, call, "length", "the bits to say again")
        whole_number(gap, 0, call, "gap", "the steps from the last bit to the first that is said")
        self.length, self.gap = length, gap

    @property
    def lag(self) -> int:
        return self.length + self.gap

    def begin(self, number, key):
        return RepeatStream(waiting(key, self.lag + self.length), jnp.zeros(self.length, jnp.int32))

    def proceed(self, stream, key):
        at, begins = stream.at, stream.at == 0
        bits = jnp.where(begins, jax.random.randint(key, (self.length,), 0, 2, jnp.int32), stream.bits)
        shows, says = (at >= 0) & (at < self.length), at >= self.lag
        bit = bits[jnp.clip(jnp.where(says, at - self.lag, at), 0, self.length - 1)]
        x = jnp.stack([real(jnp.where(shows, 2 * bit - 1, 0)), real(says)])
        after = jnp.where(at + 1 == self.lag + self.length, 0, at + 1)
        return Data(x, bit, begins, real(says)), RepeatStream(after, bits)

    def optimum(self):
        return 0.0

    def ignorance(self):
        return math.log(2)
