"""A bound on the error of OK's influence, carried along with it: one number a stream, true at every step.

A fold of k steps makes G' = Q(P G' + Σ S F) of what was exact, with P the product of their transitions and Q what squeezes. With
ρ̄ = min(‖P‖_F, √(‖P‖₁‖P‖_∞)) ≥ ‖P‖₂ and d the singular values that Q sees, the error ‖G' − G‖_F obeys

    e' = ρ̄ e + √(Σ dropped d²)            mix="truncate", where Q drops all but the r largest
    V' = ρ̄² V + Σ d² (1/p − 1), e = √V    otherwise: V bounds the mean of the square, since Q is right in the mean

and the gradient's is at most ‖δ‖ e. Where ρ̄ stays above 1 the bound grows without limit and says nothing, whatever the error is:
then measure it, with `eg.lab.probe`.
"""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._cells.base import KroneckerCell
from evergrad._core import room
from evergrad._core.checks import refuse_unless, require_key
from evergrad._core.linearize import initial_state, linearize, transition
from evergrad._core.low_rank import inclusion
from evergrad._core.model import Model, encode
from evergrad._estimators import OK, Estimator
from evergrad.lab.injected import Fold


@dataclasses.dataclass(frozen=True)
class Certificate:
    """After every fold: `bounds` on ‖G' − G‖ (in the root mean square where the estimator is `unbiased`), the `sizes` ‖G'‖ and
    the `growth` ρ̄ of its steps together; `steps` counts the steps behind a fold.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> found = eg.lab.certificate(model, eg.OK(rank=2, window=4), jnp.ones((8, 1, 1)), key=key)
        >>> found.bounds.shape, found.unbiased
        ((2,), True)
    """

    steps: np.ndarray
    bounds: np.ndarray
    sizes: np.ndarray
    growth: np.ndarray
    unbiased: bool

    @property
    def vacuous(self) -> bool:
        """Whether the bound at the end is no less than the influence itself."""
        return not bool(self.bounds[-1] < self.sizes[-1])

    def __str__(self) -> str:
        sure = "in the root mean square" if self.unbiased else "for sure"
        mean = float(np.exp(np.log(np.maximum(self.growth, np.finfo(float).tiny)).mean()))
        told = f"ρ̄ of a fold is {mean:.3g} in the geometric mean, after {int(self.steps[-1]):,} steps"
        if self.vacuous:
            return (
                f"vacuous: the bound is {self.bounds[-1] / self.sizes[-1]:.3g} times the influence ({told}); that says nothing of "
                "the error itself, which `evergrad lab probe` measures"
            )
        return f"the influence is wrong by at most {self.bounds[-1] / self.sizes[-1]:.3g} of its size, {sure} ({told})"


def certificate(
    model: Model, estimator: Estimator, xs: Any, resets: Any = None, *, key: Array | None = None
) -> Certificate:
    """Of OK over xs [T, B], for the first stream, with frozen weights. Builds the influence, m·p·q numbers, at every fold.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> found = eg.lab.certificate(model, eg.OK(rank=2, window=4), jnp.ones((8, 1, 1)), key=key)
        >>> found.steps.tolist()  # a bound after every fold of a window
        [4, 8]
    """
    call = "eg.lab.certificate(model, estimator, xs, key=...)"
    cell: Any = model.cell
    refuse_unless(
        isinstance(estimator, OK), f"`{call}` knows how OK squeezes, and {estimator!r} is another: use eg.lab.probe."
    )
    refuse_unless(
        isinstance(cell, KroneckerCell) and bool(np.all(np.asarray(getattr(cell, "mask", 1)))),
        f"`{call}`: {type(cell).__name__} is not one linear map without a mask, whose singular values could be had: use eg.lab.probe.",
    )
    estimator.check(cell)
    block = max(cast(OK, estimator).window, 1)
    refuse_unless(len(xs) >= block, f"`{call}`: {len(xs)} steps are less than a window of {block}: give more.")
    key = require_key(key, call)
    numbers = initial_state(cell).size * cell.weight.size
    room.require(4 * 4 * numbers, f"`{call}`", "use a smaller network, or eg.lab.probe")
    folds = len(xs) // block
    x, reset = jnp.asarray(xs)[: folds * block, 0], np.zeros(folds * block, bool)
    reset = reset if resets is None else np.asarray(resets)[: folds * block, 0]
    found = _certified(cell, estimator, x, jnp.asarray(reset), jax.random.split(key, folds))
    bounds, sizes, growth = (np.asarray(a, np.float64) for a in found)
    return Certificate(block * np.arange(1, folds + 1), bounds, sizes, growth, estimator.unbiased)


@eqx.filter_jit
def _certified(cell, estimator, x, reset, keys):
    def see(state, inputs):
        return linearize(cell, state, encode(cell, inputs[0]), inputs[1])

    _, memories = jax.lax.scan(see, initial_state(cell), (x, reset))
    blocks = jax.tree.map(lambda a: a.reshape(len(keys), -1, *a.shape[1:]), memories)

    def fold(carry, inputs):
        carried, bound = carry
        memories, key = inputs
        now = Fold(estimator, cell, carried, memories)
        d, rho = singular_values(now), growth(product(cell, memories))
        bound = grown(bound, rho, dropped(d, estimator), estimator.unbiased)
        return (now.absorbed(key), bound), (bound, jnp.linalg.norm(d), rho)

    first = estimator.influence.init(cell), jnp.zeros((), initial_state(cell).dtype)
    return jax.lax.scan(fold, first, (blocks, keys))[1]


def product(cell: Any, memories: Any) -> Float[Array, "m m"]:
    """P = H_k ⋯ H₁."""

    def step(p, memory):
        return transition(cell, memory).matmul(p), None

    eye = jnp.eye(initial_state(cell).size, dtype=initial_state(cell).dtype)
    return jax.lax.scan(step, eye, memories)[0]


def growth(p: Float[Array, "m m"]) -> Float[Array, ""]:
    """ρ̄, by which no vector grows more: what two cheap norms know of ‖P‖₂."""
    size = jnp.abs(p)
    return jnp.minimum(jnp.linalg.norm(p), jnp.sqrt(size.sum(0).max() * size.sum(1).max()))


def grown(bound: Array, rho: Array, lost: Array, unbiased: bool) -> Array:
    """The bound after a fold that loses so much: √V where it is lost in the mean square only."""
    return jnp.sqrt((rho * bound) ** 2 + lost**2) if unbiased else rho * bound + lost


def singular_values(fold: Fold) -> Float[Array, " N"]:
    """Of PG' + Σ SF as a matrix of p rows, 0 where rounding is all there is."""
    rows = jnp.eye(initial_state(fold.cell).size, dtype=initial_state(fold.cell).dtype)
    dense = jax.lax.map(fold.before, rows).weight
    terms = jnp.moveaxis(dense, 1, 0).reshape(dense.shape[1], -1)
    d = jnp.linalg.svd(terms, compute_uv=False)
    return jnp.where(d > max(terms.shape) * jnp.finfo(d.dtype).eps * d[:1], d, 0)


def dropped(d: Float[Array, " N"], estimator: OK) -> Float[Array, ""]:
    """What a fold loses: the length of what is left out, or the standard deviation of what is drawn."""
    if estimator.mix == "truncate":
        return jnp.linalg.norm(d[estimator.rank :])
    p = inclusion(d, estimator.rank)
    return jnp.sqrt(jnp.sum(jnp.where(p > 0, d**2 * (1 / jnp.where(p > 0, p, 1) - 1), 0)))
