"""A cell and a readout, and the losses of whole sequences."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from evergrad._cells.base import Cell, output_of, outputs_of
from evergrad._core.checks import check_inputs, check_resets, check_weights, refuse_unless
from evergrad._core.maps import check_cell
from evergrad._core.readouts import Readout


class Model(eqx.Module):
    """A cell, which carries the state, and a readout, which turns it into predictions and losses.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> xs = ys = jnp.zeros((10, 2), int)  # ten steps of two streams
        >>> model.losses(xs, ys).shape
        (10, 2)
    """

    cell: Cell
    readout: Readout

    def __init__(self, cell: Cell, readout: Readout):
        refuse_unless(
            isinstance(cell, Cell),
            f"Model's first argument is {type(cell).__name__}, not a cell: use eg.RNN, eg.RHN, eg.LSTM, eg.GRU or a "
            "subclass of eg.Cell.",
        )
        refuse_unless(
            isinstance(readout, Readout),
            f"Model's second argument is {type(readout).__name__}: use eg.Softmax or eg.Linear.",
        )
        seen = outputs_of(cell)
        more = "" if seen == cell.units else f", of which the readout sees {seen} numbers (`cell.outputs`),"
        refuse_unless(
            seen == readout.units,
            f"the cell has units={cell.units}{more} and the readout units={readout.units}: they must be equal, "
            "since the readout sees the cell's hidden state.",
        )
        _check_weights(cell)
        _check_untied(cell, readout)
        check_cell(cell)
        self.cell, self.readout = cell, readout

    def losses(self, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> Float[Array, "T B"]:
        """The loss of every step and stream, from the initial state; differentiable, so `jax.grad` is full BPTT.

        `weights` [T, B] multiplies the losses; 0 marks a missing target.
        """
        xs, ys, resets, weights = check_sequence(self, xs, ys, resets, weights)
        first = jax.lax.stop_gradient(self.cell.initial())
        start = jax.vmap(lambda _: first)(jnp.arange(resets.shape[1]))

        def step(state, inputs):
            x, y, reset, weight = inputs
            state = where_streams(reset, start, state)
            x = encode(self.cell, x)
            state = jax.vmap(self.cell.step)(state, x)
            seen = jax.vmap(lambda state, x: output_of(self.cell, state, x))(state, x)
            losses, _ = stream_losses(self.readout, seen, y, weight)
            return state, losses

        _, losses = jax.lax.scan(step, start, (xs, ys, resets, weights))
        return losses


def _check_weights(cell: Cell) -> None:
    refuse_unless(
        bool(jax.tree.leaves(eqx.filter(cell, eqx.is_inexact_array))),
        f"{type(cell).__name__} has no parameters, so there is nothing to train: give it arrays of real numbers, or modules "
        "that have some (eqx.nn.Linear), for fields.",
    )


def _check_untied(cell: Cell, readout: Readout) -> None:
    """Refuses one matrix in both places: it would be two after the first update."""
    mine = {id(a): jax.tree_util.keystr(path) for path, a in jax.tree_util.tree_leaves_with_path(cell) if _is_matrix(a)}
    for path, a in jax.tree_util.tree_leaves_with_path(readout):
        refuse_unless(
            not _is_matrix(a) or id(a) not in mine,
            f"{type(cell).__name__}{mine.get(id(a))} and {type(readout).__name__}{jax.tree_util.keystr(path)} are the same array, "
            "but would be trained apart: to tie them, use the matrix in the cell's `output` too, where its gradient counts as "
            "well; otherwise give the readout a copy (jnp.array(...)).",
        )


def _is_matrix(leaf: Any) -> bool:
    return eqx.is_inexact_array(leaf) and leaf.ndim > 1


def stream_losses(
    readout: Readout, h: Float[Array, "B n"], y: Any, weight: Float[Array, " B"], feedback: Array | None = None
):
    """Weighted losses [B] and predictions [B, ...] of one step. A target of weight 0 is not even looked at.

    With `feedback` [n, outputs] the derivative by z goes back to h through that matrix instead of the readout's own.
    """
    if feedback is None:
        z = jax.vmap(readout)(h)
    else:
        still = jax.lax.stop_gradient(h)
        z = jax.vmap(readout)(still) + (h - still) @ feedback
    zero = jnp.zeros((), y.dtype)
    y = where_streams(weight == 0, jnp.broadcast_to(zero, y.shape), y)
    return jnp.asarray(weight, z.dtype) * jax.vmap(readout.loss)(z, y), jax.vmap(readout.predict)(z)


def where_streams(chosen: Bool[Array, " B"], a: Any, b: Any) -> Any:
    """Per stream: a where chosen, else b; leaves of a and b have the streams first."""
    return jax.tree.map(lambda u, v: jnp.where(chosen.reshape(chosen.shape + (1,) * (v.ndim - 1)), u, v), a, b)


def encode(cell: Cell, x: Array) -> Float[Array, "*lead inputs"]:
    """Ids become one-hot vectors, vectors stay; both in the precision of the weights."""
    dtype = weight_dtype(cell)
    is_id = jnp.issubdtype(x.dtype, jnp.integer)
    return jax.nn.one_hot(x, cell.inputs, dtype=dtype) if is_id else jnp.asarray(x, dtype)


def weight_dtype(tree: Any) -> jnp.dtype:
    return jnp.result_type(*jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


@jax.jit
def _all_finite(arrays):
    return jnp.stack([jnp.isfinite(a).all() for a in arrays]).all()


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether all weights are numbers."""
    return _all_finite(jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def check_sequence(model: Model, xs: Any, ys: Any, resets: Any, weights: Any):
    """Arrays of [T, B, ...] in the model's dtype, refused with a reason where they do not fit."""
    xs, ys, resets, weights = (_as_array(a) for a in (xs, ys, resets, weights))
    refuse_unless(xs.ndim >= 2, f"xs has shape {list(xs.shape)}: pass [T, B] ids or [T, B, inputs] vectors.")
    return check_data(model, xs, ys, resets, weights, lead=xs.shape[:2])


def check_data(model: Model, x: Any, y: Any, reset: Any, weights: Any, *, lead: tuple[int, ...]):
    x, y, reset, weights = (_as_array(a) for a in (x, y, reset, weights))
    check_inputs(x, lead, model.cell.inputs)
    check_weights(weights, lead)
    model.readout.check(y, lead, weights)
    check_resets(reset, lead)
    dtype = weight_dtype(model)
    ones = jnp.ones(lead, dtype) if weights is None else jnp.asarray(weights, dtype)
    return _cast(x, dtype), _cast(y, dtype), jnp.zeros(lead, bool) if reset is None else jnp.asarray(reset), ones


def _as_array(a: Any) -> Any:
    return a if a is None or hasattr(a, "dtype") else jnp.asarray(a)


def _cast(a: Any, dtype: jnp.dtype) -> Array:
    return jnp.asarray(a, jnp.int32 if jnp.issubdtype(a.dtype, jnp.integer) else dtype)
