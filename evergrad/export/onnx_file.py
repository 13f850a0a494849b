"""ONNX models with state in and state out, so that a server can step them."""

from pathlib import Path
from typing import Any, cast

import numpy as np

import evergrad as eg
from evergrad._cells.base import KroneckerCell
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import written_whole
from evergrad._core.printable import first_line
from evergrad._tasks.series import FARTHEST, Scale
from evergrad.export.layout import (
    GATES,
    Layout,
    check_weights,
    kind_of,
    layer_from,
    layer_layout,
    layers_of,
    readout_from,
    stacked,
)
from evergrad.export.onnx_highway import highway_nodes, is_highway

ORDER = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # ONNX's gates (LSTM i o f c, GRU z r h) among PyTorch's
# nodes that change no number, and those that pass on some of them
_SAME = {"Squeeze", "Unsqueeze", "Transpose", "Reshape", "Flatten", "Identity", "Cast", "Dropout"}
_PARTS = {"Slice", "Gather", "Shape"}
OPSET, IR = 17, 8  # what onnxruntime of 2022 and later reads


_SCALING = "scaling"  # how the names of nodes begin that go between the data's units and the model's


def export_onnx(model: eg.Model, path: str | Path, *, scale: Scale | None = None) -> Path:
    """Inputs x [T, B, inputs] and the state h (and c) [1, B, n]; outputs y [T, B, outputs] and the state after it.

    A stack has a state for every layer: h_l0, h_l1, … An RHN, which ONNX has no node for, is written with basic operators inside
    a Scan. The state starts as zeros. y is the prediction: probabilities for a Softmax readout. Ids are one-hot vectors there.

    With the `scale` of a series x and y are in the data's units, in double precision, y the forecast itself: x is standardised on
    its way in, and what comes out is added to the newest row. A NaN in x counts as average.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=3, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.onnx"
        ...     _ = eg.export.export_onnx(model, file)
        ...     again = eg.export.import_onnx(file)
        >>> bool(jnp.allclose(again.cell.weight, model.cell.weight))
        True
    """
    onnx = _onnx()
    layers, path, helper = layers_of(model.cell, is_highway), Path(path), onnx.helper
    check_weights(model)

    def tensor(name, a):
        return onnx.numpy_helper.from_array(np.ascontiguousarray(a), name)

    def info(name, *shape, of=onnx.TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, of, shape)

    inputs, outputs = model.cell.inputs, len(model.readout.bias)
    softmax = isinstance(model.readout, eg.Softmax)
    nodes, states, weights, seen = [], [], {}, "x" if scale is None else "z"
    for number, layer in enumerate(layers):
        last = f"_l{number}" if len(layers) > 1 else ""
        found, own, arrays, seen = _layer_nodes(helper, layer, seen, last)
        nodes, weights = [*nodes, *found], weights | arrays
        states += [(name, layer.units) for name in own]
    nodes += [
        helper.make_node("MatMul", [seen, "readout_weight"], ["product"]),
        helper.make_node(
            "Add", ["product", "readout_bias"], ["logits" if softmax else "y" if scale is None else "change"]
        ),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["y"], axis=-1))
    first, last, constants = ([], [], {}) if scale is None else _scaling(onnx, scale)
    nodes, weights = [*first, *nodes, *last], weights | constants
    outside = onnx.TensorProto.FLOAT if scale is None else onnx.TensorProto.DOUBLE
    graph = helper.make_graph(
        nodes,
        "evergrad",
        [info("x", "T", "B", inputs, of=outside), *(info(s, 1, "B", n) for s, n in states)],
        [info("y", "T", "B", outputs, of=outside), *(info(f"{s}_out", 1, "B", n) for s, n in states)],
        [tensor(name, a) for name, a in weights.items()]
        + [
            tensor("direction", np.array([1])),
            tensor("readout_weight", np.asarray(model.readout.weight, np.float32)),
            tensor("readout_bias", np.asarray(model.readout.bias, np.float32)),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="evergrad")
    proto.ir_version = IR
    onnx.checker.check_model(proto)
    with written_whole(path) as beside:
        beside.write_bytes(proto.SerializeToString())
    return path


def _scaling(onnx: Any, scale: Scale) -> tuple[list, list, dict[str, np.ndarray]]:
    """The nodes from x to z, those from the readout's output to y, and their constants."""
    node, (single, double) = onnx.helper.make_node, (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)

    def step(kind, given, made, **settings):
        return node(kind, given, [made], name=f"{_SCALING} {made}", **settings)

    first = [
        step("IsNaN", ["x"], "missing"),
        step("Where", ["missing", "mean", "x"], "filled"),
        step("Sub", ["filled", "mean"], "off"),
        step("Mul", ["off", "inverse"], "wide"),
        step("Clip", ["wide", "least", "most"], "clipped"),
        step("Cast", ["clipped"], "z", to=single),
    ]
    last = [
        step("Cast", ["change"], "precise", to=double),
        step("Mul", ["precise", "unit"], "moved"),
        step("Gather", ["x", "columns"], "newest", axis=2),
        step("Add", ["newest", "moved"], "y"),
    ]
    constants = {"mean": scale.mean, "inverse": scale.inverse, "unit": scale.unit}
    constants = {name: np.asarray(a, np.float64) for name, a in constants.items()}
    constants |= {"least": np.array(-FARTHEST), "most": np.array(FARTHEST)}
    return first, last, constants | {"columns": np.array(scale.targets, np.int64)}


def _layer_nodes(helper: Any, layer: eg.Cell, seen: str, last: str) -> tuple[list, list[str], Layout, str]:
    """Of one layer: its nodes, the names of its states, its weights, and the name of what it gives."""
    if is_highway(layer):
        return highway_nodes(helper, layer, seen, last)
    kind = kind_of(layer)
    states = [f"{s}{last}" for s in (("h", "c") if kind == "LSTM" else ("h",))]
    settings = {"linear_before_reset": 1} if kind == "GRU" else {}
    weights = {f"{name}{last}": a for name, a in _weights(kind, layer_layout(cast(KroneckerCell, layer))).items()}
    given = [seen, *weights, "", *states]
    made = [f"all{last}", *(f"{s}_out" for s in states)]
    node = helper.make_node(kind, given, made, name=f"cell{last}", hidden_size=layer.units, **settings)
    squeeze = helper.make_node("Squeeze", [f"all{last}", "direction"], [f"hidden{last}"])
    return [node, squeeze], states, weights, f"hidden{last}"


def import_onnx(path: str | Path, *, readout: str | None = None) -> eg.Model:
    """From any ONNX model with RNN, LSTM or GRU nodes, one or a stack of them (one direction; GRUs with
    linear_before_reset=1), followed by a MatMul, with or without Add, or a Gemm, and maybe a Softmax. What else it computes is refused.

    `readout` is "linear" or "softmax", for a model that ends in logits; by default what the file has.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=3, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.onnx"
        ...     _ = eg.export.export_onnx(model, file)
        ...     again = eg.export.import_onnx(file)
        >>> bool(jnp.allclose(again.cell.weight, model.cell.weight))
        True
    """
    onnx, path = _onnx(), Path(path)
    refuse_unless(path.is_file(), f"{path} is not a file.")
    try:
        proto = onnx.load(path)
        onnx.checker.check_model(proto)
        constants = _constants(onnx, proto.graph)
    except Exception as error:  # whatever damage makes the library raise
        raise InputError(f"{path} is cut short or no ONNX model: {first_line(error)}") from None
    cells = [node for node in proto.graph.node if node.op_type in GATES]
    refuse_unless(len(cells) > 0, f"{path} has no RNN, LSTM or GRU node: there is no cell in it.")
    for below, cell in zip([None, *cells], cells, strict=False):
        _check_input(proto.graph, below, cell, path)
    cell = stacked([_cell(node, constants, path) for node in cells], str(path))
    return eg.Model(cell, _readout(proto.graph, cells[-1], constants, readout, path))


def _constants(onnx: Any, graph: Any) -> Layout:
    found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return found


def _weights(kind: str, layout: Layout) -> Layout:
    """W, R and B of an ONNX node."""

    def turn(a):
        return a.reshape(GATES[kind], -1, *a.shape[1:])[ORDER[kind]].reshape(a.shape)

    return {
        "W": turn(layout["weight_ih"])[None],
        "R": turn(layout["weight_hh"])[None],
        "B": np.concatenate([turn(layout["bias_ih"]), turn(layout["bias_hh"])])[None],
    }


def _cell(node: Any, constants: Layout, path: Path) -> KroneckerCell:
    kind, settings = node.op_type, {a.name: a for a in node.attribute}

    def refuse(bad, what):
        return refuse_unless(not bad, f"{path}: its {kind} {what}.")

    refuse("direction" in settings and settings["direction"].s != b"forward", "does not run forward only")
    refuse("activations" in settings and not _usual(kind, settings), "has activations other than the usual ones")
    refuse("clip" in settings or ("layout" in settings and settings["layout"].i), "has a clip, or batches first")
    refuse("input_forget" in settings and settings["input_forget"].i, "couples input and forget gates")
    refuse(len(node.input) > 7 and node.input[7] != "", "has peepholes")
    before = kind == "GRU" and not ("linear_before_reset" in settings and settings["linear_before_reset"].i)
    refuse(before, "resets before the linear map (linear_before_reset=0), which eg.GRU does not: export it with 1")
    begins = [constants[name] for name in node.input[5:7] if name in constants]
    refuse(any(np.any(a) for a in begins), "starts from a state that is not zero")
    names = (*node.input, "", "", "")[1:4]
    w, r, b = (constants.get(name) if name else None for name in names)
    unknown = w is None or r is None or (b is None and names[2] != "")
    refuse(unknown, "has weights that are not constants of the model")
    w, r, gates = cast(Any, w), cast(Any, r), GATES[kind]
    refuse(
        not _fit(gates, w, r, b), f"has weights W, R and B of the shapes {_shapes(w, r, b)}, which do not fit together"
    )
    refuse("hidden_size" in settings and settings["hidden_size"].i != r.shape[2], "has another hidden_size than R")

    def back(a):
        return a.reshape(gates, -1, *a.shape[1:])[np.argsort(ORDER[kind])].reshape(a.shape)

    b = np.zeros(2 * r.shape[1], np.float32) if b is None else b[0]
    first, second = np.split(b, 2)
    layout = {"weight_ih_l0": back(w[0]), "weight_hh_l0": back(r[0])}
    return layer_from({**layout, "bias_ih_l0": back(first), "bias_hh_l0": back(second)}, str(path))


def _fit(gates, w, r, b):
    """W [1, g·n, inputs], R [1, g·n, n] and B [1, 2·g·n]."""
    if r.ndim != 3 or w.ndim != 3 or 0 in (w.size, r.size):
        return False
    rows = gates * r.shape[2]
    return r.shape[:2] == w.shape[:2] == (1, rows) and (b is None or b.shape == (1, 2 * rows))


def _shapes(*arrays):
    return ", ".join(str(list(a.shape)) for a in arrays if a is not None)


def _usual(kind, settings):
    usual = {"RNN": [b"tanh"], "LSTM": [b"sigmoid", b"tanh", b"tanh"], "GRU": [b"sigmoid", b"tanh"]}[kind]
    return [s.lower() for s in settings["activations"].strings] == usual


def _check_input(graph: Any, below: Any, cell: Any, path: Path) -> None:
    """Refuses what changes x, or the output of the cell below, before a cell sees it."""
    makers = {name: node for node in graph.node for name in node.output if name}
    name = cell.input[0]
    while name in makers:
        node = makers[name]
        if below is not None and node == below:
            refuse_unless(
                name == below.output[0], f"{path}: its second {cell.op_type} sees a state of the first, not its output."
            )
            return
        refuse_unless(
            node.op_type in _SAME or node.name.startswith(_SCALING),
            f"{path}: a {node.op_type} before its {cell.op_type} cannot be imported. Do that to the data instead.",
        )
        name = node.input[0]
    refuse_unless(
        below is None,
        f"{path} has several RNN, LSTM and GRU nodes that are not one on top of the other: it cannot be imported.",
    )


def _readout(graph: Any, cell: Any, constants: Layout, readout: str | None, path: Path) -> eg.Readout:
    """The one affine map downstream of the cell. Whatever else changes numbers there is refused."""
    reached, weight, bias, softmax = {name for name in cell.output if name}, None, None, False
    for node in graph.node:
        if not reached & set(node.input) or node.name.startswith(_SCALING):
            continue
        reached |= {name for name in node.output if name}
        given = [constants[name] for name in node.input if name in constants]
        second = constants.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type == "MatMul" and weight is None and second is not None:
            weight = second.T
        elif node.op_type == "Gemm" and weight is None and second is not None and _plain(node, constants):
            turned = any(a.name == "transB" and a.i for a in node.attribute)
            weight, bias = second if turned else second.T, given[1] if len(given) > 1 else np.zeros(1, np.float32)
        elif node.op_type == "Add" and weight is not None and bias is None and given:
            bias = given[0]
        elif node.op_type in ("Softmax", "LogSoftmax") and weight is not None and not softmax:
            softmax = True
        else:
            refuse_unless(
                node.op_type in _SAME | _PARTS,
                f"{path}: a {node.op_type} after its {cell.op_type} cannot be imported: one MatMul with or without Add, or one "
                "plain Gemm, and a Softmax are what a readout here can do.",
            )
    if weight is None:
        raise InputError(f"{path} has no MatMul or Gemm with constant weights after its {cell.op_type}: no readout.")
    refuse_unless(
        not (softmax and readout == "linear"), f"{path} ends in a Softmax, so it predicts symbols and no numbers."
    )
    if bias is not None and weight.ndim == 2:
        bias = _for_all(bias, len(weight))
    return readout_from(weight, bias, softmax or readout == "softmax", str(path))


def _for_all(bias, outputs):
    """A bias that is the same for all steps and streams as [outputs]; any other as it is."""
    same = bias.size in (1, outputs) and bias.shape[-1:] in ((), (bias.size,))
    return np.broadcast_to(np.ravel(bias), outputs) if same else bias


def _plain(gemm, constants):
    """A·B + C with nothing multiplied or turned but B, and a C, if any, that is constant."""
    if len(gemm.input) > 2 and gemm.input[2] not in constants:
        return False
    return not any((a.name in ("alpha", "beta") and a.f != 1) or (a.name == "transA" and a.i) for a in gemm.attribute)


def _onnx():
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise ImportError("ONNX files need onnx, which is not installed: pip install 'evergrad[export]'.") from None
    return onnx
