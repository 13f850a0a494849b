"""How far back a gradient looks, by directions that are carried forward: for sequences whose states do not fit into the memory.

Beside the tangent ṡ of a random direction θ̇, which begins with the sequence, there is one for every lag J = 1, 2, 4, …, which begins
anew every J steps. At its last step before that it has seen θ̇ at the last J steps only, so that its slope is g_J·θ̇, and

    ‖g − g_J‖² = E[(g·θ̇ − g_J·θ̇)²]        ‖g‖² = E[(g·θ̇)²]

over directions, for steps at which both are known.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evergrad._cells.base import output_of
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.linearize import flat_step, initial_state, unflatten
from evergrad._core.model import check_sequence, encode, stream_losses
from evergrad._core.parameters import parted
from evergrad._core.probes import direction
from evergrad.lab.reached import Reach, cost_of


def reach_by_probes(model, xs, ys, resets=None, *, weights=None, probes=64, key=None) -> Reach:
    """As `eg.lab.reach(..., probes=)` says."""
    whole_number(probes, 2, f"reach(probes={probes})", "probes", "the random directions")
    key = require_key(key, "eg.lab.reach(model, xs, ys, probes=..., key=...)")
    data = check_sequence(model, xs, ys, resets, weights)
    steps = len(data[0])
    lags = 2 ** np.arange(max(1, (steps // 4).bit_length()))
    missing, whole = (
        np.asarray(a, np.float64) for a in _sums(model, data, jnp.asarray(lags), jax.random.split(key, probes))
    )
    seen = whole.sum(0) > 0
    refuse_unless(bool(seen.any()), "the gradient is zero along all directions: nothing can be said.")
    missing, whole, lags = missing[:, seen], whole[:, seen], lags[seen]
    without = 1 - (missing.sum(0) - missing) / (whole.sum(0) - whole)
    error = np.sqrt((probes - 1) / probes * ((without - without.mean(0)) ** 2).sum(0))
    return Reach(1 - missing.sum(0) / whole.sum(0), error, probes, steps // 2, lags, cost_of(model.cell))


@eqx.filter_jit
def _sums(model, data, lags, keys):
    """Σ (g·θ̇ − g_J·θ̇)² and Σ (g·θ̇)² of every direction and lag [r, lags], over the steps of the second half at which J is known."""
    trained, rest = parted(model.cell)
    start = initial_state(model.cell)
    resets = data[2]
    steps, batch = resets.shape

    def one(key):
        along = direction(model.cell, key)

        def step(carry, inputs):
            t, (x, y, reset, weight) = inputs
            hidden, tangents, sums = carry

            def taken(trained, hidden):
                cell = eqx.combine(trained, rest)
                x_ = encode(cell, x)
                before = jnp.where(reset[:, None], start[None], hidden)
                after = jax.vmap(lambda h, x: flat_step(cell, h, x))(before, x_)
                seen = jax.vmap(lambda h, x: output_of(cell, unflatten(cell, h), x))(after, x_)
                return after, stream_losses(model.readout, seen, y, weight)[0].mean()

            begins = jnp.concatenate([jnp.zeros(1, bool), t % lags == 0])
            tangents = jnp.where(begins[:, None, None], 0, tangents)
            (hidden, _), pushed = jax.linearize(taken, trained, hidden)
            tangents, slopes = jax.vmap(lambda tangent: pushed(along, tangent))(tangents)
            known = (t % lags == lags - 1) & (t >= steps // 2)
            found = jnp.stack([(slopes[0] - slopes[1:]) ** 2, jnp.broadcast_to(slopes[0] ** 2, lags.shape)])
            return (hidden, tangents, sums + jnp.where(known, found, 0)), None

        hidden = jnp.tile(start[None], (batch, 1))
        tangents = jnp.zeros((len(lags) + 1, *hidden.shape), hidden.dtype)
        sums = jnp.zeros((2, len(lags)), hidden.dtype)
        return jax.lax.scan(step, (hidden, tangents, sums), (jnp.arange(steps), data))[0][2]

    return jnp.moveaxis(jax.lax.map(one, keys), 1, 0)
