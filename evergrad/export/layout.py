"""The weights of a model in PyTorch's layout, and back.

    weight_ih_l0 [g·n, inputs], weight_hh_l0 [g·n, n], bias_ih_l0 [g·n], bias_hh_l0 [g·n]

Gates are in the same order as here: LSTM i, f, g, o; GRU r, z, candidate, whose two halves (of x and of h) are two
columns of W here and one gate of two biases there. Where PyTorch has two biases for one of ours, the second is 0.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import evergrad as eg
from evergrad.cells.base import KroneckerCell
from evergrad.checks import refuse_unless
from evergrad.model import all_finite

KINDS = {"RNN": eg.RNN, "LSTM": eg.LSTM, "GRU": eg.GRU}
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}

NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")

Layout = dict[str, np.ndarray]


def kind_of(cell: eg.Cell) -> str:
    kinds = [name for name, kind in KINDS.items() if type(cell) is kind]
    refuse_unless(
        bool(kinds),
        f"a {type(cell).__name__} cannot be exported: ONNX and PyTorch know RNN, LSTM and GRU. Train one of these.",
    )
    return kinds[0]


def check_weights(model: eg.Model) -> None:
    """Refuses, before anything is written, what no other framework could use either."""
    refuse_unless(
        bool(all_finite(model)),
        "some of the model's weights are NaN or infinite: it has diverged, and there is nothing to export. Train anew with a "
        "lower learning rate.",
    )


def to_layout(cell: KroneckerCell) -> Layout:
    kind = kind_of(cell)
    weight = np.asarray(cell.weight, np.float32).reshape(-1, len(cell.gates), cell.units)
    first, second = _halves(kind)
    x, h, bias = weight[: cell.inputs], weight[cell.inputs : -1], weight[-1]
    second_bias = bias[second] * np.isin(second, first, invert=True)[:, None]
    flat = lambda a: np.ascontiguousarray(a.reshape(a.shape[0], -1).T)  # noqa: E731
    return {
        "weight_ih_l0": flat(x[:, first]),
        "weight_hh_l0": flat(h[:, second]),
        "bias_ih_l0": bias[first].reshape(-1),
        "bias_hh_l0": second_bias.reshape(-1),
    }


def from_layout(layout: Layout, source: str) -> KroneckerCell:
    """A cell of the kind that the number of gates says. `source` is where it came from, for errors."""
    missing = sorted({"weight_ih_l0", "weight_hh_l0"} - layout.keys())
    refuse_unless(
        not missing, f"{source} has no {' and no '.join(missing)}: it holds no PyTorch RNN, LSTM or GRU of one layer."
    )
    further = sorted(name for name in layout if name.startswith(("weight", "bias")) and name not in NAMES)
    refuse_unless(
        not further,
        f"{source} has {', '.join(further)}: cells have one layer, one direction and no projection here. Import the first "
        "alone.",
    )
    x, h = layout["weight_ih_l0"], layout["weight_hh_l0"]
    refuse_unless(
        x.ndim == h.ndim == 2,
        f"{source}: weight_ih_l0 {list(x.shape)} and weight_hh_l0 {list(h.shape)} are no matrices.",
    )
    units = h.shape[1]
    kinds = [name for name, gates in GATES.items() if h.shape == (gates * units, units) and len(x) == len(h)]
    refuse_unless(
        bool(kinds),
        f"{source}: weight_ih_l0 {list(x.shape)} and weight_hh_l0 {list(h.shape)} are those of no RNN, LSTM or GRU.",
    )
    (kind,) = kinds
    none = np.zeros(len(h), np.float32)
    biases = layout.get("bias_ih_l0", none), layout.get("bias_hh_l0", none)
    for name, bias in zip(("bias_ih_l0", "bias_hh_l0"), biases, strict=True):
        refuse_unless(bias.shape == none.shape, f"{source}: {name} {list(bias.shape)} is not [{len(none)}].")
    cell = KINDS[kind](x.shape[1], units, key=_any_key())
    first, second = _halves(kind)
    weight = np.zeros((x.shape[1] + units + 1, len(cell.gates), units), np.float32)
    gates = lambda a: a.T.reshape(-1, GATES[kind], units)  # noqa: E731
    weight[: x.shape[1], first] = gates(x)
    weight[x.shape[1] : -1, second] = gates(h)
    for place, bias in zip((first, second), biases, strict=True):
        weight[-1, place] += bias.reshape(-1, units)
    return with_weights(cell, weight.reshape(len(weight), -1))


def readout_from(weight: np.ndarray, bias: np.ndarray | None, softmax: bool) -> eg.Readout:
    """From PyTorch's layout, weight [outputs, n]."""
    fits = weight.ndim == 2 and (bias is None or bias.shape == weight.shape[:1])
    given = f"{list(weight.shape)}" + ("" if bias is None else f" and a bias {list(bias.shape)}")
    refuse_unless(fits, f"a readout has weights [outputs, units] and a bias [outputs], not {given}.")
    outputs, units = weight.shape
    readout = (eg.Softmax if softmax else eg.Linear)(units, outputs, key=_any_key())
    return with_weights(readout, weight.T, np.zeros(outputs) if bias is None else bias)


def with_weights(part, weight: np.ndarray, bias: np.ndarray | None = None):
    given = [weight] if bias is None else [weight, bias]
    refuse_unless(all(np.isfinite(a).all() for a in given), "some of its weights are NaN or infinite.")
    part = eqx.tree_at(lambda p: p.weight, part, jnp.asarray(weight, part.weight.dtype))
    return part if bias is None else eqx.tree_at(lambda p: p.bias, part, jnp.asarray(bias, part.bias.dtype))


def _halves(kind):
    """Which gates of ours make up those of weight_ih and those of weight_hh."""
    return (np.array([0, 1, 2]), np.array([0, 1, 3])) if kind == "GRU" else (np.arange(GATES[kind]),) * 2


def _any_key():
    """For weights that are replaced at once."""
    return jax.random.key(0)
