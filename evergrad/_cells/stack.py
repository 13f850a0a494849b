"""Layers on top of each other, as one cell."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._cells.base import Cell, output_of, outputs_of
from evergrad._core.checks import refuse_unless, whole_number

SEE = ("top", "all")
DEPTHS = ("exact", "layerwise")


class Stack(Cell):
    """Layers on top of each other: layer l sees the output of layer l − 1 at the same step.

    A layer is a cell, or anything without a state that makes a vector of a vector: an Equinox module (an encoder in front
    of the cells, a layer norm between them) or a function. `see` is "top" if the readout sees the last layer, or "all"
    if it sees the outputs of all cells, one behind the other. All of it is trained, untruncated, by every estimator.

    depth="layerwise" is the cheap scheme: every layer has an influence of its own only, and δ is backpropagated through the
    layers at the newest step. It drops every path that climbs to a higher layer earlier and travels on there, so it is
    biased for all layers but the top one, whatever the estimator (`evergrad.lab.depth` measures how much is lost).

    Examples:
        >>> one, two = jax.random.split(key)
        >>> cell = eg.Stack(eg.GRU(3, 8, key=one), eg.LSTM(8, 6, key=two))
        >>> cell.inputs, cell.units
        (3, 6)
    """

    layers: tuple[Any, ...]
    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    see: str = eqx.field(static=True)
    depth: str = eqx.field(static=True)

    def __init__(self, *layers: Any, inputs: int | None = None, see: str = "top", depth: str = "exact"):
        refuse_unless(depth in DEPTHS, f'Stack(depth="{depth}"): choose "exact" or "layerwise" (cheaper, and biased).')
        refuse_unless(see in SEE, f'Stack(see="{see}"): choose "top" (the readout sees the last layer) or "all".')
        refuse_unless(
            any(isinstance(layer, Cell) for layer in layers),
            f"Stack has {len(layers)} layers and no cell among them: give it at least one, such as "
            "eg.Stack(eg.LSTM(...), eg.GRU(...)).",
        )
        for layer in layers:
            refuse_unless(
                callable(layer) or isinstance(layer, Cell),
                f"a layer of Stack is {type(layer).__name__}: give cells, Equinox modules, or functions of a vector.",
            )
        self.layers, self.see, self.depth = tuple(layers), see, depth
        self.inputs = _inputs(layers[0]) if inputs is None else inputs
        whole_number(
            self.inputs, 1, "Stack(inputs=...)", "inputs", "the entries of x, where the first layer does not say it"
        )
        self.units = self._check_sizes()

    def _check_sizes(self) -> int:
        """The size of what the readout sees; refuses layers that do not fit each other."""
        size, sizes = self.inputs, []
        for number, layer in enumerate(self.layers):
            name = f"layer {number + 1} of Stack, {type(layer).__name__}"
            if isinstance(layer, Cell):
                refuse_unless(
                    layer.inputs == size,
                    f"{name}, has inputs={layer.inputs}, but what comes from below has {size} numbers: they must be equal.",
                )
                size = outputs_of(layer)
                sizes.append(size)
            else:
                size = _output_size(layer, size, name)
        return sum(sizes) if self.see == "all" else size

    @property
    def layerwise(self):
        return self.depth == "layerwise"

    def initial(self):
        return tuple(layer.initial() for layer in self.layers if isinstance(layer, Cell))

    def step(self, state, x):
        return self._climbed(state, x)

    def step_apart(self, state, x):
        """The same step, in which no derivative passes from one cell's state to the next cell's; to weights between them one does."""
        return self._climbed(state, x, between=jax.lax.stop_gradient)

    def down(self, old, new, x, delta):
        """δ̄: what a loss that has the derivative δ by the new state has by every layer's, along all paths of this step."""
        nowhere = jax.tree.map(jnp.zeros_like, new)
        return jax.vjp(lambda shifts: self._climbed(old, x, shifts=shifts), nowhere)[1](delta)[0]

    def _climbed(self, state, x, *, between=lambda new: new, shifts=None):
        """The new state of every cell, moved by a shift where there are some; `between` is what the layers above see of it."""
        new, cells = [], iter(state)
        for layer in self.layers:
            if isinstance(layer, Cell):
                after = layer.step(next(cells), x)
                new.append(after if shifts is None else jax.tree.map(jnp.add, after, shifts[len(new)]))
                x = output_of(layer, between(new[-1]), x)
            else:
                x = layer(x)
        return tuple(new)

    def output(self, state, x):
        outputs, cells = [], iter(state)
        for layer in self.layers:
            if isinstance(layer, Cell):
                x = output_of(layer, next(cells), x)
                outputs.append(x)
            else:
                x = layer(x)
        return jnp.concatenate(outputs) if self.see == "all" else x


def layered(
    kind: Any, layers: int, inputs: int, units: int, *, key: jax.Array, depth: str = "exact", **starts: str
) -> Cell:
    """One cell of a kind, or a stack of so many equal ones."""
    if layers == 1:
        return kind(inputs=inputs, units=units, key=key, **starts)
    sizes = [inputs] + [kind.seen_of_unit * units] * (layers - 1)
    keys = jax.random.split(key, layers)
    cells = (kind(inputs=p, units=units, key=k, **starts) for p, k in zip(sizes, keys, strict=True))
    return Stack(*cells, depth=depth)


def _inputs(layer: Any) -> Any:
    """The entries of x that a layer takes, if it says so."""
    for name in ("inputs", "in_features", "in_size", "input_size"):
        if isinstance(size := getattr(layer, name, None), int):
            return size
    return None


def _output_size(layer: Callable, size: int, name: str) -> int:
    dtype = jnp.result_type(float)
    leaves = jax.tree.leaves(eqx.filter(layer, eqx.is_inexact_array))
    x = jax.ShapeDtypeStruct((size,), leaves[0].dtype if leaves else dtype)
    try:
        out = eqx.filter_eval_shape(layer, x)
    except Exception as error:
        said = str(error).strip().splitlines()
        refuse_unless(
            False, f"{name}, does not take a vector of {size} numbers: {said[0] if said else type(error).__name__}"
        )
    refuse_unless(
        hasattr(out, "shape") and len(out.shape) == 1,
        f"{name}, does not make a vector of a vector of {size} numbers: it gives {out}.",
    )
    return out.shape[0]
