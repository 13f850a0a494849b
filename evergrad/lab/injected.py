"""The noise that one fold puts into the influence, and the least that the format allows.

Nothing is built to measure it: ‖X‖² = E‖vX‖² for a vector v of random signs, and vG' is what an estimator's `gradient`
gives. For the bound the influence is built once, where it fits.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._cells.base import KroneckerCell
from evergrad._core.linearize import Memory, initial_state, linearize, pullback, transition
from evergrad._core.low_rank import inclusion
from evergrad._core.maps import maps_of
from evergrad._core.model import Model, encode, weight_dtype
from evergrad._core.not_none import not_none
from evergrad._core.parameters import repeated
from evergrad._core.sources import Data
from evergrad._estimators import KF, OK, Estimator
from evergrad.lab.noise import drive, inner, start

DRAWS = 256  # with sampling the noise is rare and large, so fewer may miss it
_DENSE = 1 << 26


@dataclasses.dataclass(frozen=True)
class Injected:
    """Means over the places looked at; all are of a step, in units of the influence's ‖G‖².

    Nothing is `measured` where no window has been folded, and a `bound` is not always known. `error` is the standard
    error of what is measured: with sampling the noise is rare and large, and draws of it scatter.
    """

    measured: float | None
    error: float | None
    bound: float | None
    rounding: float = 0.0  # what rounding alone may add

    def verdict(self) -> str | None:
        """Whether the noise is what it should be, where that is known: "met" within three standard errors."""
        if self.measured is None or self.bound is None:
            return None
        error = not_none(self.error)
        if self.measured > self.bound + 3 * error + self.rounding:
            return "above"
        return "below" if self.measured < self.bound - 3 * error - self.rounding else "met"


def injected(
    model: Model, estimator: Estimator, data: Data, *, key: Array, places: int = 3, draws: int = DRAWS
) -> Injected:
    """Of the first stream of `data` [T, B], at `places` spread over its steps. An estimator without noise gives 0."""
    data = jax.tree.map(lambda a: a[:, :1], data)
    block = estimator.past.period
    if len(data.reset) <= block:
        return Injected(None, None, None)
    state_key, noise_key = jax.random.split(key)
    state = start(model, estimator, 1, state_key)
    length = max(block + 1, (len(data.reset) - 1) // places)
    measured, errors, bounds = [], [], []
    for place in range(min(places, max(1, (len(data.reset) - 1) // length))):
        stretch = jax.tree.map(lambda a, i=place: a[i * length : (i + 1) * length], data)
        state = _advanced(estimator, state, stretch)
        following = jax.tree.map(lambda a, i=place: a[(i + 1) * length, 0], data)
        fold = Fold(estimator, model.cell, *_at_fold(estimator, model, state, following))
        noise, size = (np.asarray(a, np.float64) for a in _noise(fold, jax.random.fold_in(noise_key, place), draws))
        measured.append(noise.mean() / size.mean() / block)
        errors.append(_ratio_error(noise, size) / block)
        least = bound(fold)
        bounds.append(None if least is None else least / size.mean() / block)
    error = float(np.sqrt(np.square(errors).sum()) / len(errors))
    rounding = 16 * (_terms(model.cell) * float(jnp.finfo(weight_dtype(model)).eps)) ** 2
    return Injected(float(np.mean(measured)), error, None if None in bounds else float(np.mean(bounds)), rounding)


def _terms(cell: Any) -> int:
    """How many singular values an influence has, each of which rounding may be all of."""
    return max((each.p for each in maps_of(cell).maps), default=1)


def _ratio_error(a: np.ndarray, b: np.ndarray) -> float:
    """The standard error of mean(a) / mean(b)."""
    return float((a - a.mean() / b.mean() * b).std() / np.sqrt(len(a)) / b.mean())


class Fold(eqx.Module):
    """One stream's influence and the steps that are about to be folded into it, the oldest first."""

    estimator: Estimator
    cell: Any
    carried: Any
    memories: Memory

    def before(self, v: Float[Array, " m"]) -> Any:
        """v(PG' + Σ SF), exactly."""

        def back(v, memory):
            return transition(self.cell, memory).vecmat(v), v

        left, deltas = jax.lax.scan(back, v, self.memories, reverse=True)
        inside = pullback(self.cell, self.memories, deltas)
        return jax.tree.map(jnp.add, inside, _contracted(self.estimator, self.carried, self.cell, left))

    def after(self, v: Float[Array, " m"], key: Array) -> Any:
        """The same as it is after the fold."""
        return _contracted(self.estimator, self.absorbed(key), self.cell, v)

    def absorbed(self, key: Array) -> Any:
        """The influence after the fold."""
        cells = repeated(self.cell, len(self.memories.alive))
        return self.estimator.influence.absorb(self.carried, cells, self.memories, key)


def _contracted(estimator, carried, cell, v):
    streams = jax.tree.map(lambda a: a[None], carried)
    return estimator.influence.contract(streams, cell, v[None])


@eqx.filter_jit
def _advanced(estimator, state, data):
    return drive(estimator, state, data, None, lambda state, results, *_: (state, results))[0]


@eqx.filter_jit
def _at_fold(estimator, model, state, following):
    """The influence of the one stream, and what comes next: the oldest of the window, or the step that follows."""
    carried = jax.tree.map(lambda a: a[0], state.track.carried)
    oldest = estimator.past.oldest(state.track)
    if oldest is not None:
        return carried, jax.tree.map(lambda a: a[:, 0], oldest)
    _, memory = linearize(model.cell, state.hidden[0], encode(model.cell, following.x), following.reset)
    return carried, jax.tree.map(lambda a: a[None], memory)


@eqx.filter_jit
def _noise(fold, key, draws):
    """Draws of ‖v(G' − E G')‖² and ‖v E G'‖²."""
    m, dtype = initial_state(fold.cell).size, initial_state(fold.cell).dtype

    def one(key):
        sign_key, fold_key = jax.random.split(key)
        v = jax.random.rademacher(sign_key, (m,), dtype)
        exact = fold.before(v)
        error = jax.tree.map(jnp.subtract, fold.after(v, fold_key), exact)
        return inner(error, error), inner(exact, exact)

    return jax.lax.map(one, jax.random.split(key, draws))


def bound(fold: Fold) -> float | None:
    """What the fold's noise should be: for OK the optimum of Theorem 2, for KF that of the sign trick; else unknown."""
    maps, rows = maps_of(fold.cell).maps, initial_state(fold.cell).size
    if rows * sum(each.p * each.q for each in maps) > _DENSE or any(each.mask is not None for each in maps):
        return None  # terms are mixed unmasked
    if isinstance(fold.estimator, OK):
        return sum(_optimum(fold, each, terms) for each, terms in zip(maps, _dense(fold), strict=True))
    single = isinstance(fold.cell, KroneckerCell) and len(fold.memories.alive) == 1
    if isinstance(fold.estimator, KF) and fold.estimator.diagonal_rank is None and single:
        return _sign_trick(fold)
    return None


def _dense(fold) -> list[np.ndarray]:
    """The influence of every linear map as it is before the fold, [m, p, q]."""
    rows = jnp.eye(initial_state(fold.cell).size, dtype=initial_state(fold.cell).dtype)
    leaves = jax.tree.leaves(eqx.filter_jit(lambda f: jax.lax.map(f.before, rows))(fold))
    found = [(np.asarray(leaves[each.leaf], np.float64), each.transposed) for each in maps_of(fold.cell).maps]
    return [np.swapaxes(a, 1, 2) if transposed else a for a, transposed in found]


def _optimum(fold, each, terms):
    """s₁²/k − s₂ over the singular values of all terms of a map; for "truncate" the square of what is dropped."""
    rank, count = min(fold.estimator.rank, each.p), len(fold.memories.alive) * len(each.uses)
    terms = np.moveaxis(terms, 1, 0).reshape(each.p, -1)
    squares = np.linalg.eigvalsh(terms @ terms.T)[::-1][: rank + count]
    d = np.sqrt(np.maximum(squares, 0))
    if fold.estimator.mix == "truncate":
        return float((d[rank:] ** 2).sum())
    p = np.asarray(inclusion(jnp.asarray(d, jnp.result_type(float)), rank), np.float64)
    return float((d[p > 0] ** 2 * (1 / p[p > 0] - 1)).sum())


def _sign_trick(fold):
    """The cross terms of (u ⊗ HA) + (ĥ ⊗ D) with balanced factors: 2‖u ⊗ HA‖‖ĥ ⊗ D‖ + 2⟨u ⊗ HA, ĥ ⊗ D⟩, a copy's mean."""
    u, a = fold.carried
    one = KF(copies=1)

    def dense(u, a):
        return _dense(Fold(one, fold.cell, (u, a), fold.memories))[0]

    fresh = dense(*jax.tree.map(jnp.zeros_like, (u[:1], a[:, :1])))
    total = 0.0
    for c in range(len(u)):
        old = dense(u[c : c + 1], a[:, c : c + 1]) - fresh
        total += 2 * np.linalg.norm(old) * np.linalg.norm(fresh) + 2 * float((old * fresh).sum())
    return float(total / len(u) ** 2)
