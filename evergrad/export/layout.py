"""The weights of a model in PyTorch's layout, and back.

    weight_ih_l0 [g·n, inputs], weight_hh_l0 [g·n, n], bias_ih_l0 [g·n], bias_hh_l0 [g·n]

and so on for layer 1, whose inputs are the n of layer 0. Gates are in the same order as here: LSTM i, f, g, o; GRU r, z, candidate, whose two halves (of x and of h) are two
columns of W here and one gate of two biases there. Where PyTorch has two biases for one of ours, the second is 0.
"""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import evergrad as eg
from evergrad._cells.base import KroneckerCell
from evergrad._core.checks import refuse_unless
from evergrad._core.model import all_finite
from evergrad._core.printable import printable

KINDS = {"RNN": eg.RNN, "LSTM": eg.LSTM, "GRU": eg.GRU}
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
FLOATS = ("float16", "bfloat16", "float32", "float64")

Layout = dict[str, np.ndarray]

_QUIET: dict[str, Any] = {
    "over": "ignore",
    "invalid": "ignore",
}  # what single precision cannot hold becomes infinite, and is refused


def kind_of(cell: eg.Cell) -> str:
    kinds = [name for name, kind in KINDS.items() if type(cell) is kind]
    refuse_unless(
        bool(kinds),
        f"a {type(cell).__name__} cannot be exported: ONNX and PyTorch know RNN, LSTM and GRU. Train one of these (an RHN can go "
        "to ONNX).",
    )
    return kinds[0]


def check_weights(model: eg.Model) -> None:
    """Refuses, before anything is written, what no other framework could use either."""
    refuse_unless(
        bool(all_finite(model)),
        "some of the model's weights are NaN or infinite: it has diverged, and there is nothing to export. Train anew with a "
        "lower learning rate.",
    )


def layers_of(cell: eg.Cell, also: Callable[[eg.Cell], bool] = lambda layer: False) -> list[Any]:
    """The cells of a stack, or the cell alone; refused where other programs have nothing of the kind, but for those that can
    be written `also`."""
    layers: list[Any] = list(cell.layers) if isinstance(cell, eg.Stack) else [cell]
    for layer in layers:
        if not also(layer):
            kind_of(layer)
    refuse_unless(
        not isinstance(cell, eg.Stack) or cell.see == "top",
        'a Stack with see="all" cannot be exported: elsewhere a readout sees the top layer. Train one with see="top".',
    )
    return layers


def to_layout(cell: eg.Cell) -> Layout:
    """PyTorch's own stacks have one kind of cell and one size."""
    layers = layers_of(cell)
    same = {(kind_of(layer), layer.units) for layer in layers}
    refuse_unless(
        len(same) == 1,
        f"PyTorch's layout has layers of one kind and size, not {', '.join(f'{k} {n}' for k, n in sorted(same))}: export to ONNX.",
    )
    return {
        f"{name}_l{number}": array for number, layer in enumerate(layers) for name, array in layer_layout(layer).items()
    }


def layer_layout(cell: KroneckerCell) -> Layout:
    """Of one cell, without the number of its layer."""
    kind = kind_of(cell)
    weight = np.asarray(cell.weight, np.float32).reshape(-1, len(cell.gates), cell.units)
    first, second = _halves(kind)
    x, h, bias = weight[: cell.inputs], weight[cell.inputs : -1], weight[-1]
    second_bias = bias[second] * np.isin(second, first, invert=True)[:, None]

    def flat(a):
        return np.ascontiguousarray(a.reshape(a.shape[0], -1).T)

    return {
        "weight_ih": flat(x[:, first]),
        "weight_hh": flat(h[:, second]),
        "bias_ih": bias[first].reshape(-1),
        "bias_hh": second_bias.reshape(-1),
    }


def from_layout(layout: Layout, source: str) -> eg.Cell:
    """A cell, or a stack of them. `source` is where it came from, for errors."""
    _check_there(layout, ("weight_ih_l0", "weight_hh_l0"), source)
    count = 1
    while f"weight_ih_l{count}" in layout:
        count += 1
    known = {f"{name}_l{number}" for name in NAMES for number in range(count)}
    further = sorted(name for name in layout if name.startswith(("weight", "bias")) and name not in known)
    refuse_unless(
        not further,
        f"{source} has {printable(', '.join(further))}: layers follow each other here, have one direction and no projection.",
    )
    return stacked([layer_from(layout, source, number) for number in range(count)], source)


def _check_there(layout: Layout, names: tuple[str, ...], source: str) -> None:
    missing = sorted({*names} - layout.keys())
    refuse_unless(not missing, f"{source} has no {' and no '.join(missing)}: it holds no PyTorch RNN, LSTM or GRU.")


def stacked(layers: list[KroneckerCell], source: str) -> eg.Cell:
    """One cell, or several on top of each other, refused where they do not fit."""
    for number, (below, above) in enumerate(itertools.pairwise(layers)):
        refuse_unless(
            above.inputs == below.units,
            f"{source}: layer {number + 1} reads {above.inputs} numbers, and layer {number} has {below.units} units.",
        )
    return layers[0] if len(layers) == 1 else eg.Stack(*layers)


@np.errstate(**_QUIET)
def layer_from(layout: Layout, source: str, number: int = 0) -> KroneckerCell:
    """One layer, a cell of the kind that the number of gates says."""
    ih, hh, *_ = names = [f"{name}_l{number}" for name in NAMES]
    _check_there(layout, (ih, hh), source)
    layout = {name: as_numbers(layout[name], name, source) for name in names if name in layout}
    x, h = layout[ih], layout[hh]
    refuse_unless(
        x.ndim == h.ndim == 2 and x.size > 0 and h.size > 0,
        f"{source}: {ih} {list(x.shape)} and {hh} {list(h.shape)} are no matrices with numbers in them.",
    )
    units = h.shape[1]
    kinds = [name for name, gates in GATES.items() if h.shape == (gates * units, units) and len(x) == len(h)]
    refuse_unless(
        bool(kinds),
        f"{source}: {ih} {list(x.shape)} and {hh} {list(h.shape)} are those of no RNN, LSTM or GRU.",
    )
    (kind,) = kinds
    none = np.zeros(len(h), np.float32)
    biases = [layout.get(name, none) for name in names[2:]]
    for name, bias in zip(names[2:], biases, strict=True):
        refuse_unless(bias.shape == none.shape, f"{source}: {name} {list(bias.shape)} is not [{len(none)}].")
    cell = KINDS[kind](x.shape[1], units, key=_any_key())
    first, second = _halves(kind)
    weight = np.zeros((x.shape[1] + units + 1, len(cell.gates), units), np.float32)

    def gates(a):
        return a.T.reshape(-1, GATES[kind], units)

    weight[: x.shape[1], first] = gates(x)
    weight[x.shape[1] : -1, second] = gates(h)
    for place, bias in zip((first, second), biases, strict=True):
        weight[-1, place] += bias.reshape(-1, units)
    return with_weights(cell, source, weight.reshape(len(weight), -1))


@np.errstate(**_QUIET)
def as_numbers(a: np.ndarray, name: str, source: str) -> np.ndarray:
    """Refuses weights in a form that is quantised, or of no numbers at all."""
    refuse_unless(
        a.dtype.name in FLOATS, f"{source}: {name} is {a.dtype.name}, and weights are {', '.join(FLOATS)}: convert it."
    )
    return a.astype(np.float32) if a.dtype.name in FLOATS[:2] else a


def readout_from(weight: np.ndarray, bias: np.ndarray | None, softmax: bool, source: str) -> eg.Readout:
    """From PyTorch's layout, weight [outputs, n]."""
    weight = as_numbers(weight, "the readout's weight", source)
    bias = None if bias is None else as_numbers(bias, "the readout's bias", source)
    fits = weight.ndim == 2 and weight.size > 0 and (bias is None or bias.shape == weight.shape[:1])
    given = f"{list(weight.shape)}" + ("" if bias is None else f" and a bias {list(bias.shape)}")
    refuse_unless(fits, f"{source}: a readout has weights [outputs, units] and a bias [outputs], not {given}.")
    outputs, units = weight.shape
    readout = (eg.Softmax if softmax else eg.Linear)(units, outputs, key=_any_key())
    return with_weights(readout, source, weight.T, np.zeros(outputs) if bias is None else bias)


@np.errstate(**_QUIET)
def with_weights(part, source: str, weight: np.ndarray, bias: np.ndarray | None = None):
    given = [a.astype(part.weight.dtype) for a in (weight, bias) if a is not None]
    refuse_unless(all(np.isfinite(a).all() for a in given), f"{source}: some of its weights are NaN or infinite.")
    part = eqx.tree_at(lambda p: p.weight, part, jnp.asarray(given[0]))
    return part if bias is None else eqx.tree_at(lambda p: p.bias, part, jnp.asarray(given[1]))


def _halves(kind):
    """Which gates of ours make up those of weight_ih and those of weight_hh."""
    return (np.array([0, 1, 2]), np.array([0, 1, 3])) if kind == "GRU" else (np.arange(GATES[kind]),) * 2


def _any_key():
    """For weights that are replaced at once."""
    return jax.random.key(0)
