"""Quantiles of what a prediction misses by, followed online, so that intervals hold what they promise on any stream.

    q_τ ← q_τ + η (τ − [e ≤ q_τ])        e = (y − ŷ) / usual miss

Whatever the data, after T samples the share of e ≤ q_τ is off τ by no more than (largest |q_τ| + η) / (η T): each time too
many are below, q_τ falls. Misses are counted in units of their running mean, which follows a change of volatility at once.
Reference: Gibbs and Candès 2021, Adaptive conformal inference under distribution shift; Angelopoulos, Candès and Tibshirani
2023, Conformal PID control, whose quantile tracker this is.
"""

from statistics import NormalDist

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad.river import robust

LEVELS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.995)  # τ; others lie between them
SCORES = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
STEP = 0.05  # η
RATE = 0.02  # of the usual miss: 50 samples
FARTHEST = 10.0  # usual misses; a wild one counts as that


class Bands(eqx.Module):
    """Of one stream."""

    quantiles: Float[Array, " k"]
    usual: Float[Array, ""]
    count: Float[Array, ""]


def start() -> Bands:
    """As if misses were normal, whose mean size is √(2/π) standard deviations."""
    return Bands(jnp.asarray(SCORES * (np.pi / 2) ** 0.5, jnp.result_type(float)), jnp.zeros(()), jnp.zeros(()))


def offsets(bands: Bands) -> Float[Array, " k"]:
    """From the prediction, at all levels, in order."""
    return bands.usual * robust.at_ranks(bands.quantiles, jnp.arange(len(LEVELS)))


def learn(bands: Bands, missed: Float[Array, ""]) -> Bands:
    count = bands.count + 1
    unit = jnp.where(bands.usual > 0, bands.usual, 1)
    below = jnp.asarray(missed / unit <= bands.quantiles, missed.dtype)
    quantiles = bands.quantiles + STEP * (jnp.asarray(LEVELS, missed.dtype) - below)
    size = jnp.abs(missed)
    size = jnp.where(bands.usual > 0, jnp.minimum(size, FARTHEST * bands.usual), size)
    usual = bands.usual + jnp.maximum(RATE, 1 / count) * (size - bands.usual)
    return Bands(jnp.where(bands.usual > 0, quantiles, bands.quantiles), usual, count)


def at(level: float, offsets: np.ndarray) -> np.ndarray:
    """Of offsets [..., k], the one at any level: on a line in normal scores between two of ours, and on it beyond them."""
    score = NormalDist().inv_cdf(level)
    right = int(np.clip(np.searchsorted(SCORES, score), 1, len(SCORES) - 1))
    part = (score - SCORES[right - 1]) / (SCORES[right] - SCORES[right - 1])
    return offsets[..., right - 1] + part * (offsets[..., right] - offsets[..., right - 1])


def level_of(value: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The level of values [...] among offsets [..., k]: the inverse of `at`."""
    found = np.empty(np.shape(value))
    for place in np.ndindex(found.shape):
        found[place] = NormalDist().cdf(_score(float(value[place]), offsets[place]))
    return found


def _score(value, offsets):
    right = int(np.clip(np.searchsorted(offsets, value), 1, len(SCORES) - 1))
    width = offsets[right] - offsets[right - 1]
    if not width > 0:
        return float(SCORES[right] if value >= offsets[right] else SCORES[right - 1])
    return float(SCORES[right - 1] + (value - offsets[right - 1]) / width * (SCORES[right] - SCORES[right - 1]))
