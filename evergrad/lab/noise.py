"""How far estimates of the recurrent gradient are from it, along a sequence and with the weights frozen.

The exact gradient of a stretch of steps is computed once, and every repetition of every estimator is compared with it
inside the compiled loop, so that what is kept is a few numbers a step and not the gradients.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from evergrad._core import driver, planner, room
from evergrad._core.checks import refuse_unless
from evergrad._core.linearize import initial_state
from evergrad._core.model import Model
from evergrad._core.parameters import parameters
from evergrad._core.sources import Data, Sequence
from evergrad._estimators import RTRL, TBPTT, Estimator

PROBES = 8  # random directions in which a bias is looked for
_VANISHING = 1e-15  # a norm whose square, and the sums of it, float32 no longer holds well
_PIECE = 1 << 26  # numbers of exact gradients held at a time
_DENSE = 1 << 27  # numbers of all streams' influence that may be held to be exact


@dataclasses.dataclass(frozen=True)
class Noise:
    """R repetitions of an estimator along T steps: ĝ against the exact g."""

    truth: Float[np.ndarray, " T"]  # ‖g‖²
    dots: Float[np.ndarray, "R T"]  # ⟨ĝ, g⟩
    squares: Float[np.ndarray, "R T"]  # ‖ĝ‖²
    errors: Float[np.ndarray, "R T"]  # ‖ĝ − g‖²
    along: Float[np.ndarray, "R probes"]  # Σ_t ⟨ĝ − g, v⟩ for fixed random v

    def cosines(self) -> Float[np.ndarray, "R T"]:
        """In float64, where products of small squares do not vanish; 0 where an estimate or the gradient does."""
        size = np.sqrt(self.squares.astype(float)) * np.sqrt(self.truth[None].astype(float))
        return np.divide(self.dots, size, out=np.zeros_like(size), where=size > 0)

    def large(self, smallest: float) -> np.ndarray:
        """The steps whose exact gradient is no smaller than this, and not zero."""
        return np.sqrt(self.truth) >= max(smallest, _VANISHING)

    def relative_error(self) -> float:
        """E‖ĝ − g‖² over E‖g‖², means over steps and repetitions; of no gradient at all, not a number."""
        return float(self.errors.mean() / self.truth.mean()) if self.truth.any() else math.nan

    def bias_z(self) -> float | None:
        """How surprising the mean error is, as a normal z: from Student's t of every probe, their number allowed for.

        None where nothing is random.
        """
        repetitions = len(self.along)
        if repetitions < 2:
            return None
        spread = self.along.std(axis=0, ddof=1) / math.sqrt(repetitions)
        if (spread <= 1e-6 * np.sqrt(self.truth.sum())).any():
            return None
        t = np.abs(self.along.mean(axis=0) / spread).max()
        chance = min(1.0, 2 * PROBES * stats.t.sf(t, repetitions - 1))
        return float(stats.norm.isf(chance / 2))


def exact(model: Model, steps: int, batch: int) -> Estimator:
    """The cheaper exact one: RTRL with a window of n while the influence fits, else backpropagation to the start."""
    size = batch * initial_state(model.cell).size * sum(a.size for a in jax.tree.leaves(parameters(model.cell)))
    return RTRL(window=model.cell.units) if size <= _DENSE else TBPTT(horizon=steps, stride=1)


def measure(
    model: Model,
    estimators: Mapping[str, Estimator],
    data: Data,
    *,
    repetitions: int,
    key: Array,
    told: Callable[[str, int], None] = lambda name, steps: None,
) -> dict[str, Noise]:
    """Noise of every estimator over `data` [T, B]. `told(name, steps)` hears of progress."""
    for name, estimator in estimators.items():
        refuse_unless(estimator.past.stride == 1, f"{name}: a gradient at every step needs stride=1.")
        estimator.check(model.cell)
    steps, batch = data.reset.shape
    _check_room(model, estimators, steps, batch, repetitions)
    probe_key, *keys = jax.random.split(key, len(estimators) + 1)
    probes = _probes(model, probe_key)
    reference = exact(model, steps, batch)
    true_state = start(model, reference, batch, probe_key)
    states = {
        name: _started(model, e, batch, jax.random.split(key, _draws(e, repetitions)))
        for (name, e), key in zip(estimators.items(), keys, strict=True)
    }
    parts: dict[str, list[Any]] = {name: [] for name in estimators}
    for piece in _pieces(model, data):
        true_state, truth = _exact_piece(reference, true_state, piece)
        told("exact", len(piece.reset))
        for name, estimator in estimators.items():
            states[name], found = _noisy_piece(estimator, states[name], piece, truth, probes)
            parts[name].append(jax.tree.map(np.asarray, found))
            told(name, len(piece.reset))
    return {name: _joined(found) for name, found in parts.items()}


def _check_room(model, estimators, steps, batch, repetitions):
    """The states of all repetitions, a piece of exact gradients, the numbers that are kept, and one step's scratch."""
    reference, key, item = exact(model, steps, batch), jax.random.key(0), jnp.result_type(float).itemsize
    size = sum(a.size for a in jax.tree.leaves(parameters(model.cell)))
    needed, scratches = item * min(steps * size, max(size, _PIECE)), []
    for estimator in (reference, *estimators.values()):
        draws = 1 if estimator is reference else _draws(estimator, repetitions)
        state = room.bytes_of(lambda e=estimator: driver.start(model, e, batch, key))
        needed += draws * (state + item * 3 * steps)
        scratches.append(planner.scratch(model.cell, estimator, batch))
    remedy = "lower --units, --batch, --steps, --repetitions or an estimator's own sizes"
    room.require(needed + max(scratches), "measuring these estimators", remedy)


def _draws(estimator: Estimator, repetitions: int) -> int:
    """Where nothing is random, once is enough."""
    return 1 if isinstance(estimator, RTRL | TBPTT) or getattr(estimator, "mix", "") == "truncate" else repetitions


@eqx.filter_jit
def _probes(model, key):
    """Random signs, of norm one."""
    leaves, form = jax.tree.flatten(parameters(model.cell))
    size = sum(a.size for a in leaves)
    keys = jax.random.split(key, len(leaves))
    signs = [jax.random.rademacher(k, (PROBES, *a.shape), a.dtype) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(form, [s / math.sqrt(size) for s in signs])


def _pieces(model, data):
    steps = len(data.reset)
    size = sum(a.size for a in jax.tree.leaves(parameters(model.cell)))
    count = -(-steps * size // _PIECE)
    length = -(-steps // count)
    for first in range(0, steps, length):
        yield jax.tree.map(lambda a, first=first: a[first : first + length], data)


def inner(a: Any, b: Any) -> Array:
    total: Any = sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    return total


def drive(estimator: Estimator, state: Any, data: Data, results: Any, consume: Callable) -> tuple[Any, Any]:
    """The state after the steps of `data`, weights untouched, and what `consume` made of the gradients."""
    first = jnp.zeros((), jnp.int32)

    def keep(out):
        return out.losses

    state, _, _, results = driver.drive(
        estimator, state, Sequence(data), first, len(data.reset), keep=keep, results=results, consume=consume
    )
    return state, results


start = eqx.filter_jit(driver.start)


@eqx.filter_jit
def _started(model, estimator, batch, keys):
    """A state for each repetition."""
    return eqx.filter_vmap(lambda key: driver.start(model, estimator, batch, key))(keys)


@eqx.filter_jit
def _exact_piece(estimator, state, data):
    steps = len(data.reset)
    results = jax.tree.map(lambda a: jnp.zeros((steps, *a.shape), a.dtype), parameters(state.model.cell))

    def write(state, results, t, gradient, steps, target):
        return state, jax.tree.map(lambda all_, one: all_.at[t].set(one), results, gradient.cell)

    return drive(estimator, state, data, results, write)


@eqx.filter_jit
def _noisy_piece(estimator, states, data, truth, probes):
    steps = len(data.reset)
    arrays, rest = eqx.partition(states, eqx.is_array)
    dtype = jax.tree.leaves(truth)[0].dtype

    def compare(state, results, t, gradient, steps, target):
        g = jax.tree.map(lambda a: a[t], truth)
        error = jax.tree.map(jnp.subtract, gradient.cell, g)
        numbers = inner(gradient.cell, g), inner(gradient.cell, gradient.cell), inner(error, error)
        *series, along = results
        series = [all_.at[t].set(one) for all_, one in zip(series, numbers, strict=True)]
        return state, (*series, along + jax.vmap(lambda v: inner(error, v))(probes))

    def one(arrays):
        zeros = jnp.zeros(steps, dtype)
        results = (zeros, zeros, zeros, jnp.zeros(PROBES, dtype))
        state, results = drive(estimator, eqx.combine(arrays, rest), data, results, compare)
        return eqx.filter(state, eqx.is_array), results

    arrays, (dots, squares, errors, along) = jax.lax.map(one, arrays)
    return eqx.combine(arrays, rest), (jax.vmap(inner)(truth, truth), dots, squares, errors, along)


def _joined(parts):
    truth, dots, squares, errors, along = zip(*parts, strict=True)
    dots, squares, errors = (np.concatenate(each, axis=1) for each in (dots, squares, errors))
    return Noise(np.concatenate(truth), dots, squares, errors, np.sum(along, axis=0))
