"""Cells of Equinox and Flax NNX: as one of ours where that is what they are, and else trained as they are."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from evergrad._cells import GRU, LSTM, Cell
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import weight_dtype
from evergrad._core.parameters import Frozen


class EquinoxCell(Cell):
    """An `eqx.nn` cell: called as `cell(x, state) -> state`; an LSTM's state is the pair (h, c)."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    pair: bool = eqx.field(static=True)
    inner: Any

    def initial(self):
        h = jnp.zeros(self.units, weight_dtype(self.inner))
        return (h, h) if self.pair else h

    def step(self, state, x):
        return self.inner(x, state)

    def output(self, state):
        return state[0] if self.pair else state


class FlaxCell(Cell):
    """A Flax NNX cell: called as `cell(carry, x) -> carry, h`; an LSTM's carry is the pair (c, h).

    The module is kept split: `params` are trained, `rest` (other variables) is carried along unchanged.
    """

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    pair: bool = eqx.field(static=True)
    merge: Callable = eqx.field(static=True)
    params: Any
    rest: Frozen

    def initial(self):
        h = jnp.zeros(self.units, weight_dtype(self.params))
        return (h, h) if self.pair else h

    def step(self, state, x):
        return self.merge(self.params, self.rest.value)(state, x)[0]

    def output(self, state):
        return state[1] if self.pair else state

    @property
    def module(self) -> Any:
        """The Flax module with the weights as they are now."""
        return self.merge(self.params, self.rest.value)


def from_equinox(cell: Any) -> Cell:
    """An Equinox cell (`eqx.nn.LSTMCell`, `eqx.nn.GRUCell`, or one called the same way) as an `eg.Cell`.

    Equinox's LSTM and GRU are `eg.LSTM` and `eg.GRU`, and become one of these; any other is trained as it is.
    `eg.to_equinox(model.cell)` is the trained one, as Equinox has it.

    Examples:
        >>> cell = eg.from_equinox(eqx.nn.LSTMCell(3, 8, key=key))
        >>> type(cell).__name__, cell.units
        ('LSTM', 8)
    """
    inputs, units = (_size(cell, name, "from_equinox") for name in ("input_size", "hidden_size"))
    kind = type(cell)
    if kind is eqx.nn.LSTMCell and cell.use_bias:
        return _ours(LSTM, cell.weight_ih.T, cell.weight_hh.T, cell.bias)
    if kind is eqx.nn.GRUCell and cell.use_bias:
        return _our_gru(cell.weight_ih.T, cell.weight_hh.T, cell.bias, cell.bias_n)
    return _checked(EquinoxCell(inputs, units, isinstance(cell, eqx.nn.LSTMCell), cell), "from_equinox")


def from_flax(cell: Any) -> Cell:
    """A Flax NNX cell (`nnx.LSTMCell`, `nnx.OptimizedLSTMCell`, `nnx.GRUCell`, `nnx.SimpleCell`) as an `eg.Cell`.

    Flax's LSTMs are `eg.LSTM`, and become one; any other cell is trained as it is (Flax's GRU has a bias less than
    `eg.GRU`). `eg.to_flax(model.cell)` is the trained one, as Flax has it.

    Examples:
        >>> from flax import nnx
        >>> cell = eg.from_flax(nnx.LSTMCell(3, 8, rngs=nnx.Rngs(0)))
        >>> type(cell).__name__, cell.units
        ('LSTM', 8)
    """
    try:
        from flax import nnx
    except ImportError:
        raise ImportError("eg.from_flax needs flax, which is not installed: pip install 'evergrad[flax]'.") from None
    refuse_unless(
        isinstance(cell, nnx.Module),
        f"eg.from_flax was given a {type(cell).__name__}, not a Flax NNX module: pass nnx.LSTMCell(...), for instance.",
    )
    inputs, units = (_size(cell, name, "from_flax") for name in ("in_features", "hidden_features"))
    usual = getattr(cell, "gate_fn", None) is nnx.sigmoid and getattr(cell, "activation_fn", None) in (
        nnx.tanh,
        jnp.tanh,
    )
    kind = type(cell)
    if kind is nnx.LSTMCell and usual:
        seen, recurrent = ([getattr(cell, f"{a}{gate}") for gate in gates] for a, gates in _FLAX_GATES.items())
        kernels = [jnp.concatenate([each.kernel[...] for each in some], axis=1) for some in (seen, recurrent)]
        return _ours(LSTM, *kernels, jnp.concatenate([each.bias[...] for each in recurrent]))
    if kind is nnx.OptimizedLSTMCell and usual:
        return _ours(LSTM, cell.dense_i.kernel[...], cell.dense_h.kernel[...], cell.dense_h.bias[...])
    graph, params, rest = nnx.split(cell, nnx.Param, ...)
    pair = isinstance(cell, nnx.LSTMCell | nnx.OptimizedLSTMCell)
    merge = _Merge(graph, jax.tree.structure(params), jax.tree.structure(rest))
    leaves = [jax.tree.leaves(part) for part in (params, rest)]
    params, rest = leaves
    return _checked(FlaxCell(inputs, units, pair, merge, params, Frozen(rest)), "from_flax")


_FLAX_GATES = {"i": ("i", "f_", "g", "o"), "h": ("i", "f", "g", "o")}  # its names for the maps of x and of h


def to_equinox(cell: Cell) -> Any:
    """The Equinox cell that an `eg.LSTM`, an `eg.GRU` or a cell from `eg.from_equinox` is, with the weights as they are now.

    Examples:
        >>> type(eg.to_equinox(eg.LSTM(inputs=3, units=8, key=key))).__name__
        'LSTMCell'
    """
    if isinstance(cell, EquinoxCell):
        return cell.inner
    if not isinstance(cell, LSTM | GRU):
        raise InputError(
            f"eg.to_equinox was given a {type(cell).__name__}: Equinox has an LSTM and a GRU, nothing of this kind."
        )
    kind = eqx.nn.LSTMCell if isinstance(cell, LSTM) else eqx.nn.GRUCell
    made = kind(cell.inputs, cell.units, dtype=cell.weight.dtype, key=jax.random.key(0))
    seen, recurrent, bias = jnp.split(cell.weight, (cell.inputs, cell.inputs + cell.units))
    if isinstance(cell, LSTM):
        return eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias), made, (seen.T, recurrent.T, bias[0]))
    n = cell.units
    two, of_x, of_h = slice(0, 2 * n), slice(2 * n, 3 * n), slice(3 * n, 4 * n)
    seen, recurrent = (
        jnp.concatenate([w[:, two], w[:, own]], axis=1).T for w, own in ((seen, of_x), (recurrent, of_h))
    )
    weights = seen, recurrent, bias[0, : 3 * n], bias[0, of_h]
    return eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n), made, weights)


def to_flax(cell: Cell) -> Any:
    """The Flax NNX cell that an `eg.LSTM` or a cell from `eg.from_flax` is, with the weights as they are now.

    Examples:
        >>> type(eg.to_flax(eg.LSTM(inputs=3, units=8, key=key))).__name__
        'OptimizedLSTMCell'
    """
    from flax import nnx

    if isinstance(cell, FlaxCell):
        return cell.module
    if not isinstance(cell, LSTM):
        raise InputError(
            f"eg.to_flax was given a {type(cell).__name__}: of the cells here only the LSTM is one of Flax's."
        )
    made: Any = nnx.OptimizedLSTMCell(cell.inputs, cell.units, param_dtype=cell.weight.dtype, rngs=nnx.Rngs(0))
    seen, recurrent, bias = jnp.split(cell.weight, (cell.inputs, cell.inputs + cell.units))
    made.dense_i.kernel[...], made.dense_h.kernel[...], made.dense_h.bias[...] = seen, recurrent, bias[0]
    return made


def _ours(kind: type[LSTM] | type[GRU], *rows: Array) -> Cell:
    """One of our cells with these rows of W: for x, for h, and the biases."""
    inputs, units = len(rows[0]), len(rows[1])
    weight = jnp.concatenate([rows[0], rows[1], rows[2][None]])
    return eqx.tree_at(lambda c: c.weight, kind(inputs, units, key=jax.random.key(0)), weight)


def _our_gru(seen: Array, recurrent: Array, bias: Array, bias_n: Array) -> Cell:
    """Three gates of both as our four: the candidate's share of x and its share of h are gates of their own."""
    n = len(recurrent)

    def zeros(rows):
        return jnp.zeros((rows, n), seen.dtype)

    seen = jnp.concatenate([seen, zeros(len(seen))], axis=1)
    recurrent = jnp.concatenate([recurrent[:, : 2 * n], zeros(n), recurrent[:, 2 * n :]], axis=1)
    return _ours(GRU, seen, recurrent, jnp.concatenate([bias, bias_n]))


class _Merge(eqx.Module):
    """From lists of arrays back to the module; equal for equal modules, so that nothing is compiled twice."""

    graph: Any = eqx.field(static=True)
    params: Any = eqx.field(static=True)
    rest: Any = eqx.field(static=True)

    def __call__(self, params: list[Array], rest: list[Array]) -> Any:
        from flax import nnx

        return nnx.merge(self.graph, jax.tree.unflatten(self.params, params), jax.tree.unflatten(self.rest, rest))


def _size(cell, name, door):
    size: Any = getattr(cell, name, None)
    refuse_unless(
        isinstance(size, int),
        f"eg.{door} was given a {type(cell).__name__} without `{name}`: it takes recurrent cells. Write another one as "
        "a subclass of eg.Cell (initial, step, output).",
    )
    return size


def _checked(cell: Cell, door: str) -> Cell:
    """Refuses, with what went wrong, a cell that does not take and give a state of its size."""
    state, x = cell.initial(), jnp.zeros(cell.inputs, weight_dtype(cell))
    try:
        after = jax.eval_shape(cell.step, state, x)
    except Exception as error:
        raise InputError(f"eg.{door}: one step of the cell failed: {error}") from error
    same = jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    refuse_unless(same, f"eg.{door}: a step of the cell gives another kind of state than it takes ({after}).")
    return cell
