import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core.checks import whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real, waiting


class ChainStream(eqx.Module):
    at: Int[Array, ""]  # steps since the bit; below 0 before a stream's first
    bit: Int[Array, ""]


class Chain(Generated):
    """A memory chain: a bit, and `lag` steps later the question which it was; the loss is at the questions only.

    x is the bit as ±1 where it is shown, 1 where there is the question, and how much of the time is left. Streams are
    reset at their bits. The optimum is 0; who does not remember has log 2. `Cue` is the same with lags that vary and with
    distractors. After the memory_len task of bsuite (Osband et al. 2020).
    """

    inputs: ClassVar[int] = 3
    classes: ClassVar[int] = 2
    lag: int = eqx.field(static=True)

    def __init__(self, lag: int = 16):
        whole_number(lag, 1, f"Chain(lag={lag})", "lag", "the steps from the bit to its question")
        self.lag = lag

    def begin(self, number, key):
        return ChainStream(waiting(key, self.lag), jnp.zeros((), jnp.int32))

    def proceed(self, stream, key):
        begins, asks = stream.at == 0, stream.at == self.lag
        bit = jnp.where(begins, jax.random.randint(key, (), 0, 2, jnp.int32), stream.bit)
        left = 1 - real(jnp.maximum(stream.at, 0)) / self.lag
        x = jnp.stack([real(jnp.where(begins, 2 * bit - 1, 0)), real(asks), left])
        return Data(x, bit, begins, real(asks)), ChainStream(jnp.where(asks, 0, stream.at + 1), bit)

    def optimum(self):
        return 0.0

    def ignorance(self):
        return math.log(2)
