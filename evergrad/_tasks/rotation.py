from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evergrad._core.checks import whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real, waiting


class RotationStream(eqx.Module):
    at: Int[Array, ""]  # steps since the vector was shown; below 0 before a stream's first
    vector: Float[Array, " d"]  # as it is now


class Rotation(Generated):
    """Rotation memory: a random unit vector v is shown once, and the target t steps later is Rᵗ v, for `episode` steps.

    x is the vector and a 1 where it is shown, and 0 elsewhere. R is a rotation drawn from `seed`, the same for all
    streams, which has to be learned. The optimum is 0; who always says 0 has a squared error of 1, 1/d a coordinate.
    Reference: Yi & Wang 2026.
    """

    classes: ClassVar[int] = 0
    dimensions: int = eqx.field(static=True)
    episode: int = eqx.field(static=True)
    rotation: Float[Array, "d d"]

    def __init__(self, dimensions: int = 8, episode: int = 64, seed: int = 0):
        call = f"Rotation(dimensions={dimensions}, episode={episode}, seed={seed})"
        whole_number(dimensions, 2, call, "dimensions", "the entries of the vector")
        whole_number(episode, 1, call, "episode", "the steps that a vector is turned")
        whole_number(seed, 0, call, "seed", "of the rotation")
        self.dimensions, self.episode = dimensions, episode
        self.rotation = jnp.asarray(rotation_of(dimensions, seed), jnp.result_type(float))

    @property
    def inputs(self) -> int:
        return self.dimensions + 1

    @property
    def outputs(self) -> int:
        return self.dimensions

    def begin(self, number, key):
        return RotationStream(waiting(key, self.episode), jnp.zeros(self.dimensions, self.rotation.dtype))

    def proceed(self, stream, key):
        begins = stream.at == 0
        drawn = jax.random.normal(key, (self.dimensions,), self.rotation.dtype)
        vector = jnp.where(begins, drawn / jnp.linalg.norm(drawn), stream.vector)
        shown = jnp.append(vector, jnp.ones((), vector.dtype)) * real(begins)
        data = Data(shown, vector, begins, real(stream.at >= 0))
        after = jnp.where(stream.at + 1 == self.episode, 0, stream.at + 1)
        return data, RotationStream(after, jnp.where(stream.at >= 0, self.rotation @ vector, vector))

    def optimum(self):
        return 0.0

    def ignorance(self):
        return 1.0


def rotation_of(dimensions: int, seed: int) -> Float[np.ndarray, "d d"]:
    """Uniformly drawn: Q of a Gaussian matrix with R's diagonal made positive, and one column turned if it reflects."""
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimensions, dimensions)))
    q = q * np.sign(np.diag(r))
    return q * np.where(np.arange(dimensions) == 0, np.sign(np.linalg.det(q)), 1.0)
