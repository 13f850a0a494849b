"""Cells of Equinox and Flax NNX, trained as they are."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from evergrad.cells.base import Cell
from evergrad.checks import InputError, refuse_unless
from evergrad.model import weight_dtype


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
    rest: Any

    def initial(self):
        h = jnp.zeros(self.units, weight_dtype(self.params))
        return (h, h) if self.pair else h

    def step(self, state, x):
        return self.merge(self.params, jax.lax.stop_gradient(self.rest))(state, x)[0]

    def output(self, state):
        return state[1] if self.pair else state

    @property
    def module(self) -> Any:
        """The Flax module with the weights as they are now."""
        return self.merge(self.params, self.rest)


def from_equinox(cell: Any) -> Cell:
    """An Equinox cell (`eqx.nn.LSTMCell`, `eqx.nn.GRUCell`, or one called the same way) as an `eg.Cell`.

    For RTRL, UORO and TBPTT, which take any differentiable cell. The trained one is `model.cell.inner`.
    """
    inputs, units = (_size(cell, name, "from_equinox") for name in ("input_size", "hidden_size"))
    return _checked(EquinoxCell(inputs, units, isinstance(cell, eqx.nn.LSTMCell), cell), "from_equinox")


def from_flax(cell: Any) -> Cell:
    """A Flax NNX cell (`nnx.LSTMCell`, `nnx.OptimizedLSTMCell`, `nnx.GRUCell`, `nnx.SimpleCell`) as an `eg.Cell`.

    For RTRL, UORO and TBPTT, which take any differentiable cell. The trained one is `model.cell.module`.
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
    graph, params, rest = nnx.split(cell, nnx.Param, ...)
    pair = isinstance(cell, nnx.LSTMCell | nnx.OptimizedLSTMCell)
    merge = _Merge(graph, jax.tree.structure(params), jax.tree.structure(rest))
    leaves = [jax.tree.leaves(part) for part in (params, rest)]
    return _checked(FlaxCell(inputs, units, pair, merge, *leaves), "from_flax")


class _Merge(eqx.Module):
    """From lists of arrays back to the module; equal for equal modules, so that nothing is compiled twice."""

    graph: Any = eqx.field(static=True)
    params: Any = eqx.field(static=True)
    rest: Any = eqx.field(static=True)

    def __call__(self, params: list[Array], rest: list[Array]) -> Any:
        from flax import nnx

        return nnx.merge(self.graph, jax.tree.unflatten(self.params, params), jax.tree.unflatten(self.rest, rest))


def _size(cell, name, door):
    size = getattr(cell, name, None)
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
