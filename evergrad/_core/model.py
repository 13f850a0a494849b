"""A cell and a readout, and the losses of whole sequences."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from evergrad._cells.base import Cell, output_of, outputs_of
from evergrad._core.checks import (
    InputError,
    check_inputs,
    check_resets,
    check_weights,
    refuse_given_away,
    refuse_swapped,
    refuse_unless,
    whole_number,
)
from evergrad._core.maps import check_cell
from evergrad._core.not_none import not_none
from evergrad._core.printable import first_line
from evergrad._core.readouts import Readout


class Model(eqx.Module):
    """A cell, and a readout of what it gives.

    x is ids, vectors, or a dict of them, which are put beside each other into the one vector that the cell sees, in the order
    of their names. With ids among them `inputs` says how many there are of each, `inputs={"price": 3, "weekday": 7}`, and is
    the order.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=4, units=8, key=key), eg.Softmax(units=8, classes=4, key=key))
        >>> xs = ys = jnp.zeros((10, 2), int)  # ten steps of two streams
        >>> model.losses(xs, ys).shape
        (10, 2)
    """

    cell: Cell
    readout: Readout
    parts: tuple[tuple[str, int], ...] | None = eqx.field(static=True, default=None)  # of a dict of inputs

    def __init__(self, cell: Cell, readout: Readout, *, inputs: Mapping[str, int] | None = None):
        refuse_unless(
            isinstance(cell, Cell),
            f"Model's first argument is {type(cell).__name__}, not a cell: use eg.RNN, eg.RHN, eg.LSTM, eg.GRU, a "
            "subclass of eg.Cell, or eg.from_equinox(cell) for a cell of Equinox.",
        )
        refuse_unless(
            isinstance(readout, Readout),
            f"Model's second argument is {type(readout).__name__}: use eg.Softmax or eg.Linear, or for a module and a loss of "
            "your own eg.Head(module, loss).",
        )
        _check_weights(cell)
        _check_untied(cell, readout)
        _check_seen(cell, readout)
        check_cell(cell)
        self.cell, self.readout, self.parts = cell, readout, None if inputs is None else _parts(inputs, cell)

    def losses(self, xs: Any, ys: Any, resets: Any = None, *, weights: Any = None) -> Float[Array, "T B"]:
        """The loss of every step and stream, from the initial state; differentiable, so `jax.grad` is full BPTT.

        `weights` [T, B] multiplies the losses; 0 marks a missing target.
        """
        refuse_given_away(self, "this model")
        xs, ys, resets, weights = check_sequence(self, xs, ys, resets, weights)
        start = _begun(self.cell, None, resets.shape[1])

        def step(state, inputs):
            x, y, reset, weight = inputs
            state, seen = _seen(self.cell, where_streams(reset, start, state), x)
            losses, _ = stream_losses(self.readout, seen, y, weight)
            return state, losses

        _, losses = jax.lax.scan(step, start, (xs, ys, resets, weights))
        return losses

    def run(self, xs: Any, resets: Any = None, state: Any = None) -> tuple[Any, Any]:
        """The hidden states after xs [T, B, ...] and the predictions [T, B, ...], with the weights as they are.

        `state` is where to begin: what an earlier call gave, or a learner's `state.cell_state`; None is the cell's initial
        one. It has the structure of `cell.initial()`, with the B streams in front of every array.
        """
        refuse_given_away(self, "this model")
        xs = _as_array(joined(self, xs))
        refuse_unless(xs.ndim >= 2, f"xs has shape {list(xs.shape)}: pass [T, B] ids or [T, B, inputs] vectors.")
        xs, _, resets, _ = check_data(self, xs, None, resets, None, lead=xs.shape[:2])
        return _run(self, xs, resets, _begun(self.cell, state, resets.shape[1]))


def _check_seen(cell: Cell, readout: Readout) -> None:
    """Refuses a readout that cannot be used on what the cell gives."""
    seen = outputs_of(cell)
    if readout.units is None:
        _check_called(readout, seen, weight_dtype(cell))
        return
    more = "" if seen == cell.units else f", of which the readout sees {seen} numbers (`cell.outputs`),"
    refuse_unless(
        seen == readout.units,
        f"the cell has units={cell.units}{more} and the readout units={readout.units}: they must be equal, "
        "since the readout sees the cell's hidden state.",
    )


def _check_called(readout: Readout, seen: int, dtype: Any) -> None:
    try:
        jax.eval_shape(lambda h: readout.predict(readout(h)), jax.ShapeDtypeStruct((seen,), dtype))
    except Exception as error:
        raise InputError(
            f"the {type(readout).__name__} cannot be called on the {seen} numbers that the cell gives: {first_line(error)}"
        ) from error


def _parts(inputs: Mapping[str, int], cell: Cell) -> tuple[tuple[str, int], ...]:
    call = f"Model(inputs={dict(inputs)})"
    for name, size in inputs.items():
        whole_number(size, 1, call, name, "the numbers, or the symbols, of this input")
    total = sum(inputs.values())
    refuse_unless(
        total == cell.inputs,
        f"`{call}`: that makes {total} numbers, but the cell has inputs={cell.inputs}: make them equal.",
    )
    return tuple((name, int(size)) for name, size in inputs.items())


def joined(model: Model, x: Any) -> Any:
    """A dict of inputs as the one vector that the cell sees; anything else as it is."""
    if not isinstance(x, Mapping):
        return x
    parts = dict(model.parts) if model.parts is not None else dict.fromkeys(sorted(x))
    refuse_unless(
        {*parts} == {*x},
        f"x has {', '.join(map(str, x))}, but the model was made for {', '.join(parts)}: pass all of these.",
    )
    return jnp.concatenate([_part(name, _as_array(x[name]), size, model) for name, size in parts.items()], axis=-1)


def _part(name: str, x: Any, size: int | None, model: Model) -> Array:
    dtype = weight_dtype(model)
    if jnp.issubdtype(x.dtype, jnp.floating):
        refuse_unless(
            size in (None, x.shape[-1]), f'x["{name}"] has shape {list(x.shape)}, but {size} numbers were announced.'
        )
        return jnp.asarray(x, dtype)
    refuse_unless(
        size is not None and jnp.issubdtype(x.dtype, jnp.integer),
        f'x["{name}"] is {x.dtype}{list(x.shape)}: pass floating-point vectors; for ids say how many there are, '
        f'eg.Model(cell, readout, inputs={{"{name}": 7, ...}}).',
    )
    check_inputs(x, x.shape, not_none(size), f'x["{name}"]', of=f'the number announced for "{name}"')
    return jax.nn.one_hot(x, not_none(size), dtype=dtype)


def _begun(cell: Cell, state: Any, batch: int) -> Any:
    """The hidden states that streams begin with, refused where they are not of the cell's structure."""
    first = jax.lax.stop_gradient(cell.initial())
    start = jax.vmap(lambda _: first)(jnp.arange(batch))
    if state is None:
        return start
    form, given = (jax.tree.map(lambda a: (jnp.shape(a), str(jnp.result_type(a))), tree) for tree in (start, state))
    refuse_unless(
        form == given,
        f"state is {given}, but a {type(cell).__name__} with {batch} streams has {form}: pass what Model.run gave, or "
        "`state.cell_state` of a learner's state.",
    )
    return state


@eqx.filter_jit
def _run(model, xs, resets, state):
    start = _begun(model.cell, None, resets.shape[1])

    def step(state, inputs):
        x, reset = inputs
        state, seen = _seen(model.cell, where_streams(reset, start, state), x)
        return state, jax.vmap(lambda h: model.readout.predict(model.readout(h)))(seen)

    return jax.lax.scan(step, state, (xs, resets))


def _seen(cell, state, x):
    """The states after a step of all streams, and what the readout sees of them."""
    x = encode(cell, x)
    state = jax.vmap(cell.step)(state, x)
    return state, jax.vmap(lambda state, x: output_of(cell, state, x))(state, x)


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
    """Weighted losses [B] and predictions [B, ...] of one step. A target of weight 0 is not even looked at, and without y
    all losses are 0.

    With `feedback` [n, outputs] the derivative by z goes back to h through that matrix instead of the readout's own.
    """
    if feedback is None:
        z = jax.vmap(readout)(h)
    else:
        still = jax.lax.stop_gradient(h)
        z = jax.vmap(readout)(still) + (h - still) @ feedback
    predictions = jax.vmap(readout.predict)(z)
    if y is None:
        return jnp.zeros(len(h), h.dtype), predictions
    y = where_streams(weight == 0, jax.tree.map(jnp.zeros_like, y), y)
    losses = jax.vmap(readout.loss)(z, y)
    return jnp.asarray(weight, losses.dtype) * losses, predictions


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
    xs = _as_array(joined(model, xs))
    refuse_unless(xs.ndim >= 2, f"xs has shape {list(xs.shape)}: pass [T, B] ids or [T, B, inputs] vectors.")
    return check_data(model, xs, ys, resets, weights, lead=xs.shape[:2])


def check_data(model: Model, x: Any, y: Any, reset: Any, weights: Any, *, lead: tuple[int, ...]):
    """The same of one step or many; `lead` is their shape, [B] or [T, B]. y is None where no stream has a target."""
    x, reset, weights = (_as_array(a) for a in (joined(model, x), reset, weights))
    y, dtype = _as_arrays(y), weight_dtype(model)
    check_inputs(x, lead, model.cell.inputs)
    check_weights(weights, lead)
    check_resets(reset, lead)
    if y is None:
        weights = jnp.zeros(lead, dtype)
    else:
        for leaf in jax.tree.leaves(y):
            refuse_swapped(leaf, lead, "y")
        model.readout.check(y, lead, weights)
    ones = jnp.ones(lead, dtype) if weights is None else jnp.asarray(weights, dtype)
    y = jax.tree.map(lambda a: _cast(a, dtype), y)
    return _cast(x, dtype), y, jnp.zeros(lead, bool) if reset is None else jnp.asarray(reset), ones


def _as_array(a: Any) -> Any:
    return a if a is None or hasattr(a, "dtype") else jnp.asarray(a)


def _as_arrays(y: Any) -> Any:
    """Targets: an array, nested lists of numbers, or a pytree of arrays."""
    plain = isinstance(y, list | tuple) and not any(hasattr(a, "dtype") for a in jax.tree.leaves(y))
    return _as_array(y) if plain else jax.tree.map(_as_array, y)


def _cast(a: Any, dtype: jnp.dtype) -> Array:
    return jnp.asarray(a, jnp.int32 if jnp.issubdtype(a.dtype, jnp.integer) else dtype)
