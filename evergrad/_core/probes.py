"""How good any estimator is on any network, at any size, without exact RTRL: forward-mode probes.

A direction θ̇ of random signs in all parameters of the cell is carried forward beside the network, ṡ' = H ṡ + F θ̇, one
Jacobian-vector product a step. Then the derivative of the loss along it is exact, δ ṡ = g·θ̇, and for an estimate ĝ

    ‖ĝ − g‖² = E[(ĝ·θ̇ − g·θ̇)²]      ‖g‖² = E[(g·θ̇)²]      ⟨ĝ, g⟩ = E[(ĝ·θ̇)(g·θ̇)]

over directions, each with a relative standard deviation of √(2/r) for r of them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._cells.base import output_of
from evergrad._core import driver
from evergrad._core.checks import InputError, refuse_unless, require_key, whole_number
from evergrad._core.linearize import flat_step, initial_state, unflatten
from evergrad._core.model import Model, check_sequence, encode, stream_losses
from evergrad._core.parameters import parameters, parted
from evergrad._core.sources import Data, Sequence
from evergrad._estimators.base import Estimator


class NoGradient(InputError):
    """There is nothing to compare an estimate with."""


@dataclasses.dataclass(frozen=True)
class Probed:
    """Of an estimator over a sequence: the cosine of its gradients with the exact ones and their squared error in units of the
    exact gradient's square, summed over steps, each with a standard error over directions.

    Examples:
        >>> print(eg.lab.Probed(cosine=0.98, cosine_error=0.01, error=0.04, error_error=0.01))
        cosine 0.980 ± 0.010, error²/gradient² 0.04 ± 0.01
    """

    cosine: float
    cosine_error: float
    error: float
    error_error: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.3f} ± {self.cosine_error:.3f}, error²/gradient² {self.error:.3g} ± {self.error_error:.2g}"


def probe(
    model: Model,
    estimators: Mapping[str, Estimator],
    xs: Any,
    ys: Any,
    resets: Any = None,
    *,
    weights: Any = None,
    probes: int = 64,
    key: Array | None = None,
) -> dict[str, Probed]:
    """Cosine and squared error of every estimator's cell gradients over [T, B], with the weights frozen.

    A loss's gradient is needed at the loss's own step, so TBPTT wants stride=1 and ARTBP rolling=True. Memory: probes · B states; time: probes forward passes, and a
    product with every direction a step and estimator.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> xs = ys = jnp.ones((30, 2, 1))
        >>> found = eg.lab.probe(model, {"exact": eg.RTRL()}, xs, ys, probes=4, key=key)
        >>> f"{found['exact'].cosine:.3f}"
        '1.000'
    """
    whole_number(probes, 2, f"probe(probes={probes})", "probes", "the random directions")
    key = require_key(key, "eg.lab.probe(model, estimators, xs, ys, key=...)")
    data = check_sequence(model, xs, ys, resets, weights)
    for name, estimator in estimators.items():
        check_probed(estimator, name)
        estimator.check(model.cell)
    directions, draws = jax.random.split(key)
    keys = jax.random.split(directions, probes)
    truth = np.asarray(_exact(model, data, keys), np.float64)
    return {name: _of(truth, _estimated(model, e, data, keys, draws)) for name, e in estimators.items()}


def check_probed(estimator: Estimator, name: str) -> None:
    """Refuses an estimator whose gradients come later than their losses."""
    refuse_unless(
        estimator.past.delay == 0,
        f"{name}: its gradients come later than their losses, so there is nothing to compare step by step: use stride=1 (TBPTT), "
        "or rolling=True (ARTBP).",
    )


def direction(cell: Any, key: Array) -> Any:
    """Random signs for all parameters, made anew whenever they are needed."""
    leaves, tree = jax.tree.flatten(parameters(cell))
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        tree, [jax.random.rademacher(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    )


@eqx.filter_jit
def _exact(model, data, keys) -> Float[Array, "r T"]:
    """g·θ̇ of every direction and step."""
    trained, rest = parted(model.cell)
    start = initial_state(model.cell)
    xs, ys, resets, weights = data

    def one(key):
        along = direction(model.cell, key)

        def step(carry, inputs):
            x, y, reset, weight = inputs

            def taken(trained, hidden):
                cell = eqx.combine(trained, rest)
                x_ = encode(cell, x)
                before = jnp.where(reset[:, None], start[None], hidden)
                after = jax.vmap(lambda h, x: flat_step(cell, h, x))(before, x_)
                seen = jax.vmap(lambda h, x: output_of(cell, unflatten(cell, h), x))(after, x_)
                return after, stream_losses(model.readout, seen, y, weight)[0].mean()

            (hidden, _), (tangent, slope) = jax.jvp(taken, (trained, carry[0]), (along, carry[1]))
            return (hidden, tangent), slope

        hidden = jnp.tile(start[None], (resets.shape[1], 1))
        return jax.lax.scan(step, (hidden, jnp.zeros_like(hidden)), (xs, ys, resets, weights))[1]

    return jax.lax.map(one, keys)


@eqx.filter_jit
def _estimated(model, estimator, data, keys, key) -> Float[Array, "r T"]:
    """ĝ·θ̇ of every direction and step."""
    steps, batch = data[2].shape
    dtype = jax.tree.leaves(parameters(model.cell))[0].dtype

    def compare(state, dots, t, gradient, *_):
        along = jax.lax.map(lambda k: _inner(gradient.cell, direction(model.cell, k)), keys)
        return state, dots.at[:, t].set(along)

    results = jnp.zeros((len(keys), steps), dtype)
    state = driver.start(model, estimator, batch, key)
    source, first = Sequence(Data(*data)), jnp.zeros((), jnp.int32)
    *_, results = driver.drive(estimator, state, source, first, steps, keep=_losses, results=results, consume=compare)
    return results


def _losses(out):
    return out.losses


def _inner(a, b):
    return sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def _of(truth: np.ndarray, dots: Any) -> Probed:
    """The figures, and their standard errors by leaving one direction out. Both lengths of the cosine are of the same directions,
    whose luck then cancels."""
    dots = np.asarray(dots, np.float64)
    sums = [((dots - truth) ** 2).sum(1), (truth**2).sum(1), (dots**2).sum(1), (dots * truth).sum(1)]
    if not sums[1].sum() > 0:
        raise NoGradient("the gradient is zero along all directions: nothing can be said.")

    def figures(errors, exact, estimated, inner):
        return np.stack([inner / np.sqrt(np.maximum(exact * estimated, np.finfo(float).tiny)), errors / exact])

    n = len(truth)
    mean = figures(*(a.mean() for a in sums))
    left_out = figures(*((a.sum() - a) / (n - 1) for a in sums))
    spread = np.sqrt((n - 1) / n * ((left_out - left_out.mean(1, keepdims=True)) ** 2).sum(1))
    return Probed(float(mean[0]), float(spread[0]), float(mean[1]), float(spread[1]))
