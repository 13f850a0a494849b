"""Chaotic series, one step ahead: deterministic, but a step sees one number of a state that has more."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evergrad._core.checks import whole_number
from evergrad._core.names import refuse_unknown
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real

LENGTH, SETTLING = 20_000, 64  # values of a series, and how many of the first are left out


class ChaosStream(eqx.Module):
    lane: Int[Array, ""]
    at: Int[Array, ""]


class Chaos(Generated):
    """x is a value of a chaotic series and y the next one; every stream has a series with a start of its own.

    `system` is "henon" (the first coordinate; a = 1.4, b = 0.3), "mackey" (Mackey-Glass, Euler steps of 1, looking `delay`
    steps back) or "lorenz" (x, Euler steps of 0.01, every second one). A series has 20,000 values in double precision,
    normalised by its own mean and deviation, so that the squared error is the normalised one: the optimum is 0, the mean
    has 1. Streams are reset every `every` steps and begin again when their series ends. `seed` draws the starts.
    """

    inputs: ClassVar[int] = 1
    every: int = eqx.field(static=True)
    values: Float[Array, "L lanes"]

    def __init__(self, system: str = "henon", *, delay: int = 17, every: int = 200, batch: int = 8, seed: int = 0):
        call = f'Chaos("{system}", delay={delay}, every={every}, batch={batch}, seed={seed})'
        refuse_unknown("system", system, SYSTEMS, "choose one of")
        whole_number(delay, 1, call, "delay", "the steps that Mackey and Glass's equation looks back")
        whole_number(every, 1, call, "every", "the steps after which streams start anew")
        whole_number(batch, 1, call, "batch", "the number of series")
        whole_number(seed, 0, call, "seed", "of where they start")
        found = SYSTEMS[system](LENGTH + SETTLING, batch, np.random.default_rng(seed), delay)
        self.every = every
        self.values = jnp.asarray((found - found.mean(0)) / found.std(0), jnp.result_type(float))

    def begin(self, number, key):
        return ChaosStream(number % self.values.shape[1], jnp.zeros((), jnp.int32))

    def proceed(self, stream, key):
        x, y = (self.values[SETTLING + stream.at + later, stream.lane][None] for later in (0, 1))
        after = jnp.where(stream.at + 2 == LENGTH, 0, stream.at + 1)
        data = Data(x, y, stream.at % self.every == 0, real(True))
        return data, ChaosStream(stream.lane, after)

    def optimum(self):
        return 0.0

    def ignorance(self):
        return 1.0


def henon(length: int, lanes: int, rng: np.random.Generator, delay: int) -> Float[np.ndarray, "L lanes"]:
    """x' = 1 − 1.4 x² + 0.3 x₋₁."""
    values = np.empty((length, lanes))
    values[:2] = rng.uniform(-0.1, 0.1, (2, lanes))
    for t in range(2, length):
        values[t] = 1 - 1.4 * values[t - 1] ** 2 + 0.3 * values[t - 2]
    return values


def mackey(length: int, lanes: int, rng: np.random.Generator, delay: int) -> Float[np.ndarray, "L lanes"]:
    """x' = x + 0.2 x₋τ / (1 + x₋τ¹⁰) − 0.1 x."""
    values = np.empty((length + delay, lanes))
    values[: delay + 1] = rng.uniform(1.2, 1.4, (delay + 1, lanes))
    for t in range(delay + 1, length + delay):
        old = values[t - 1 - delay]
        values[t] = 0.9 * values[t - 1] + 0.2 * old / (1 + old**10)
    return values[delay:]


def lorenz(length: int, lanes: int, rng: np.random.Generator, delay: int) -> Float[np.ndarray, "L lanes"]:
    """ẋ = 10 (y − x), ẏ = x (28 − z) − y, ż = x y − 8/3 z; 100 steps are left to settle."""
    x, y, z = 1 + 0.1 * rng.normal(size=(3, lanes))
    values = np.empty((2 * length + 100, lanes))
    for t in range(len(values)):
        x, y, z = x + 0.1 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - 8 / 3 * z)
        values[t] = x
    return values[100::2]


SYSTEMS: dict[str, Callable] = {"henon": henon, "mackey": mackey, "lorenz": lorenz}
