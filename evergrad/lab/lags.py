"""How far back a gradient looks: what a horizon of so many steps would have of it.

At some steps t of a sequence the loss is carried back, exactly, to the stream's beginning, and the gradient's part of every lag is
kept apart. With g the whole gradient and g_J its part from the last J steps, the share of J is

    1 − ‖g − g_J‖² / ‖g‖²

summed over the steps that were looked at: what TBPTT(horizon=J, stride=1) has of the gradient's square. Where the states of
all steps do not fit into the memory, `reach(..., probes=r)` finds the same for lags 1, 2, 4, … along random directions.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from evergrad._cells.base import output_of
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.linearize import GeneralMemory, flat_step, initial_state, through_step, unflatten
from evergrad._core.model import Model, check_sequence, encode, stream_losses
from evergrad._core.parameters import parameters
from evergrad.lab.reached import Cost, Reach, cost_of


def reach(
    model: Model,
    xs: Any,
    ys: Any,
    resets: Any = None,
    *,
    weights: Any = None,
    samples: int = 32,
    probes: int | None = None,
    key: Array | None = None,
) -> Reach:
    """How far back the gradient of this model looks on this data [T, B], with the weights frozen.

    `samples` steps with a target, drawn at random from the second half, are taken apart. Cost: samples · T backward steps of all
    streams, twice; memory T · B states and two gradients.

    With `probes`, so many random directions are carried forward instead, and lags 1, 2, 4, … are looked at, all steps with a
    target at an age of the lag. Cost: probes · log₂(T) · T forward steps; memory log₂(T) · B states, however long the sequence is.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> xs = ys = jnp.ones((30, 2, 1))
        >>> found = eg.lab.reach(model, xs, ys, samples=4, key=key)
        >>> found.horizon(0.99) <= 30
        True
    """
    if probes is not None:
        from evergrad.lab.lag_probes import reach_by_probes

        return reach_by_probes(model, xs, ys, resets, weights=weights, probes=probes, key=key)
    whole_number(samples, 2, f"reach(samples={samples})", "samples", "the steps that are taken apart")
    key = require_key(key, "eg.lab.reach(model, xs, ys, key=...)")
    data = check_sequence(model, xs, ys, resets, weights)
    taught = np.flatnonzero(np.asarray(data[3] != 0).any(axis=1))
    late = taught[taught >= len(data[0]) // 2]
    refuse_unless(
        len(late) > 0, "no step in the second half of the sequence has a target: there is no gradient to look at."
    )
    at = np.asarray(jax.random.choice(key, jnp.asarray(late), (min(samples, len(late)),), replace=False))
    memories = _forward(model, data)
    missing, whole = (np.asarray(a, np.float64) for a in _parts(model, data, memories, jnp.asarray(at)))
    return _summary(missing, whole, cost_of(model.cell))


def _summary(missing: np.ndarray, whole: np.ndarray, cost: Cost | None) -> Reach:
    """From ‖g − g_J‖² [samples, lags] and ‖g‖² [samples]: the ratio of the sums, and its standard error by leaving one out."""
    refuse_unless(bool(whole.sum() > 0), "the gradient is zero at all steps that were looked at: nothing can be said.")
    lags = missing.shape[1]
    shares = 1 - missing.sum(0) / whole.sum()
    without = 1 - (missing.sum(0)[None] - missing) / np.maximum(whole.sum() - whole, np.finfo(float).tiny)[:, None]
    n = len(whole)
    error = np.sqrt((n - 1) / n * ((without - without.mean(0)) ** 2).sum(0))
    last = max(1, int(np.flatnonzero(missing.sum(0) > 1e-12 * whole.sum())[-1:].sum()) + 2)
    return Reach(shares[: min(last, lags)], error[: min(last, lags)], n, lags, cost=cost)


@eqx.filter_jit
def _forward(model, data):
    """Every step's state before it, input and reset."""
    xs, _, resets, _ = data
    cell = model.cell
    start = initial_state(cell)

    def step(hidden, inputs):
        x, reset = encode(cell, inputs[0]), inputs[1]
        before = jnp.where(reset[:, None], start[None], hidden)
        alive = 1 - jnp.asarray(reset, hidden.dtype)
        after = jax.vmap(lambda h, x: flat_step(cell, h, x))(before, x)
        return after, GeneralMemory(before, x, alive)

    hidden = jnp.tile(start[None], (resets.shape[1], 1))
    return jax.lax.scan(step, hidden, (xs, resets))[1]


@eqx.filter_jit
def _parts(model, data, memories, at):
    """‖g − g_J‖² for all J, and ‖g‖², of every step looked at."""
    return jax.lax.map(lambda t: _one(model, data, memories, t), at)


def _one(model, data, memories, t):
    cell, steps = model.cell, len(data[2])
    delta = _delta(model, data, memories, t)
    nothing = jax.tree.map(jnp.zeros_like, parameters(cell))

    def back(total, whole):
        """Lag after lag: the partial sum, and how far it is from the whole."""

        def lag(carry, j):
            delta, total = carry
            memory = jax.tree.map(lambda a: a[jnp.maximum(t - j, 0)], memories)
            left, found = through_step(cell, memory, delta)
            inside = j <= t
            total = jax.tree.map(lambda a, b: a + jnp.where(inside, b, 0), total, found)
            far = jax.tree.map(jnp.subtract, whole, total)
            return (jnp.where(inside, left, 0), total), _square(far)

        return jax.lax.scan(lag, (delta, total), jnp.arange(steps))

    (_, whole), _ = back(nothing, nothing)
    _, missing = back(nothing, whole)
    return missing, _square(whole)


def _delta(model, data, memories, t):
    """dL/dh of a step, of all streams."""
    _, ys, _, weights = data
    cell = model.cell
    memory, y, weight = jax.tree.map(lambda a: a[t], (memories, ys, weights))
    hidden = jax.vmap(lambda h, x: flat_step(cell, h, x))(memory.state, memory.x)

    def loss(hidden):
        seen = jax.vmap(lambda h, x: output_of(cell, unflatten(cell, h), x))(hidden, memory.x)
        return stream_losses(model.readout, seen, y, weight)[0].mean()

    return jax.grad(loss)(hidden)


def _square(tree):
    return sum(jnp.sum(a * a) for a in jax.tree.leaves(tree))
