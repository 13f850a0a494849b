"""What a stack that is trained layer by layer leaves out, measured on any size by forward-mode probes.

A direction θ̇ of random signs in the parameters of one layer is carried forward twice, through the whole network and
through its layers kept apart. At a step with loss L the two give the loss's derivative along θ̇, and what the layerwise
scheme takes for it; the mean over directions of the squared difference is the squared length of what is dropped.
"""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from evergrad._cells.base import output_of
from evergrad._cells.stack import Stack
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.model import Model, check_sequence, encode, stream_losses, where_streams
from evergrad._core.parameters import parameters, parted


@dataclasses.dataclass(frozen=True)
class Dropped:
    """Of one layer's gradient: the share of its square that is dropped, a standard error of it, and the cosine of what is left.

    Examples:
        >>> print(eg.lab.Dropped(layer=1, name="GRU", share=0.38, error=0.05, cosine=0.81))
        layer 1 (GRU): 38 % of the squared gradient is dropped (±5), cosine 0.810
    """

    layer: int
    name: str
    share: float
    error: float
    cosine: float

    def __str__(self) -> str:
        if self.share < 1e-9:
            return f"layer {self.layer} ({self.name}): nothing of the gradient is dropped"
        percent = f"{100 * self.share:.2g} % of the squared gradient is dropped (±{100 * self.error:.2g})"
        return f"layer {self.layer} ({self.name}): {percent}, cosine {self.cosine:.3f}"


def dropped(
    model: Model,
    xs: Any,
    ys: Any,
    resets: Any = None,
    *,
    weights: Any = None,
    probes: int = 64,
    key: Array | None = None,
) -> list[Dropped]:
    """What depth="layerwise" drops of the gradient of every layer of a stack, over a sequence [T, B] with frozen weights.

    Examples:
        >>> one, two = jax.random.split(key)
        >>> cell = eg.Stack(eg.RNN(1, 4, key=one), eg.RNN(4, 4, key=two))
        >>> model = eg.Model(cell, eg.Linear(units=4, outputs=1, key=key))
        >>> xs = ys = jnp.ones((30, 2, 1))
        >>> found = eg.lab.dropped(model, xs, ys, probes=4, key=key)
        >>> print(found[-1])
        layer 2 (RNN): nothing of the gradient is dropped
    """
    refuse_unless(
        isinstance(model.cell, Stack),
        f"{type(model.cell).__name__} is no eg.Stack, so there are no layers to tell apart.",
    )
    whole_number(probes, 2, f"dropped(probes={probes})", "probes", "the random directions")
    key = require_key(key, "evergrad.lab.depth.dropped(model, xs, ys, key=...)")
    data = check_sequence(model, xs, ys, resets, weights)
    found = []
    for number, layer in enumerate(cast(Stack, model.cell).layers):
        if jax.tree.leaves(parameters(layer)):
            keys = jax.random.split(jax.random.fold_in(key, number), probes)
            squares = np.asarray(_squares(model, number, data, keys), np.float64)
            found.append(_summary(len(found) + 1, type(layer).__name__, squares))
    return found


def _summary(layer, name, squares):
    """From Σ (a − b)², Σ a², Σ b² and Σ a b of every probe."""
    difference, exact, kept, product = squares.T
    share = difference.mean() / exact.mean()
    error = np.std(difference - share * exact, ddof=1) / np.sqrt(len(exact)) / exact.mean()
    return Dropped(layer, name, float(share), float(error), float(product.mean() / np.sqrt(exact.mean() * kept.mean())))


@eqx.filter_jit
def _squares(model, number, data, keys):
    return jax.lax.map(lambda key: _probe(model, number, data, key), keys)


def _probe(model, number, data, key):
    cell = model.cell
    trained, rest = parted(cell)
    direction = _direction(trained, number, key)
    start = jax.vmap(lambda _: cell.initial())(jnp.arange(data[2].shape[1]))
    nothing = jax.tree.map(jnp.zeros_like, start)

    def step(carry, inputs):
        state, whole, apart, sums = carry
        x, y, reset, weight = inputs
        x = encode(cell, x)
        state, whole, apart = (
            where_streams(reset, a, b) for a, b in ((start, state), (nothing, whole), (nothing, apart))
        )
        new, whole = _tangent(cell, trained, rest, direction, state, whole, x, Stack.step)
        _, apart = _tangent(cell, trained, rest, direction, state, apart, x, Stack.step_apart)
        delta = jax.grad(lambda new: _loss(model, new, x, y, weight))(new)
        climbed = jax.vmap(cell.down)(state, new, x, delta)
        a, b = _inner(delta, whole), _inner(climbed, apart)
        return (new, whole, apart, sums + jnp.stack([(a - b) ** 2, a**2, b**2, a * b])), None

    zeros = jnp.zeros(4, jax.tree.leaves(start)[0].dtype)
    return jax.lax.scan(step, (start, nothing, nothing, zeros), data)[0][3]


def _direction(trained, number, key):
    """Random signs in the parameters of one layer, zeros elsewhere."""
    leaves, tree = jax.tree.flatten(trained.layers[number])
    keys = jax.random.split(key, len(leaves))
    signs = [jax.random.rademacher(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    nothing = jax.tree.map(jnp.zeros_like, trained)
    return eqx.tree_at(lambda t: t.layers[number], nothing, jax.tree.unflatten(tree, signs))


def _tangent(cell, trained, rest, direction, state, tangent, x, step):
    """The new state of all streams, and its derivative along the direction."""

    def taken(trained, state):
        return jax.vmap(lambda state, x: step(eqx.combine(trained, rest), state, x))(state, x)

    return jax.jvp(taken, (trained, state), (direction, tangent))


def _loss(model, state, x, y, weight):
    seen = jax.vmap(lambda state, x: output_of(model.cell, state, x))(state, x)
    return stream_losses(model.readout, seen, y, weight)[0].mean()


def _inner(a, b):
    return sum(jnp.vdot(u, v) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
