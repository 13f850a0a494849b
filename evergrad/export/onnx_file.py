"""ONNX models with state in and state out, so that a server can step them."""

from pathlib import Path
from typing import Any

import numpy as np

import evergrad as eg
from evergrad.checks import InputError, refuse_unless
from evergrad.export.layout import GATES, Layout, check_weights, from_layout, kind_of, readout_from, to_layout
from evergrad.files import written_whole

ORDER = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # ONNX's gates (LSTM i o f c, GRU z r h) among PyTorch's
# nodes that change no number, and those that pass on some of them
_SAME = {"Squeeze", "Unsqueeze", "Transpose", "Reshape", "Flatten", "Identity", "Cast", "Dropout"}
_PARTS = {"Slice", "Gather", "Shape"}
OPSET, IR = 17, 8  # what onnxruntime of 2022 and later reads


def export_onnx(model: eg.Model, path: str | Path) -> Path:
    """Inputs x [T, B, inputs] and the state h (and c) [1, B, n]; outputs y [T, B, outputs] and the state after it.

    The state starts as zeros. y is the prediction: probabilities for a Softmax readout. Ids are one-hot vectors there.
    """
    onnx = _onnx()
    kind, path = kind_of(model.cell), Path(path)
    check_weights(model)
    helper, states = onnx.helper, ["h", "c"] if kind == "LSTM" else ["h"]
    tensor = lambda name, a: onnx.numpy_helper.from_array(np.ascontiguousarray(a), name)  # noqa: E731
    info = lambda name, *shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)  # noqa: E731
    n, inputs, outputs = model.cell.units, model.cell.inputs, len(model.readout.bias)
    settings = {"linear_before_reset": 1} if kind == "GRU" else {}
    softmax = isinstance(model.readout, eg.Softmax)
    nodes = [
        helper.make_node(
            kind,
            ["x", "W", "R", "B", "", *states],
            ["all", *(f"{s}_out" for s in states)],
            name="cell",
            hidden_size=n,
            **settings,
        ),
        helper.make_node("Squeeze", ["all", "direction"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "readout_weight"], ["product"]),
        helper.make_node("Add", ["product", "readout_bias"], ["logits" if softmax else "y"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["y"], axis=-1))
    graph = helper.make_graph(
        nodes,
        "evergrad",
        [info("x", "T", "B", inputs), *(info(s, 1, "B", n) for s in states)],
        [info("y", "T", "B", outputs), *(info(f"{s}_out", 1, "B", n) for s in states)],
        [tensor(name, a) for name, a in _weights(kind, to_layout(model.cell)).items()]
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


def import_onnx(path: str | Path, *, readout: str | None = None) -> eg.Model:
    """From any ONNX model with one RNN, LSTM or GRU node (one direction; a GRU with linear_before_reset=1) followed by
    a MatMul, with or without Add, or a Gemm, and maybe a Softmax. What else it computes is refused.

    `readout` is "linear" or "softmax", for a model that ends in logits; by default what the file has.
    """
    onnx, path = _onnx(), Path(path)
    refuse_unless(path.is_file(), f"{path} is not a file.")
    try:
        proto = onnx.load(path)
        onnx.checker.check_model(proto)
    except Exception as error:
        raise InputError(f"{path} is cut short or no ONNX model: {error}") from None
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    cells = [node for node in proto.graph.node if node.op_type in GATES]
    refuse_unless(
        len(cells) == 1, f"{path} has {len(cells)} RNN, LSTM and GRU nodes: a model with exactly one can be imported."
    )
    _check_input(proto.graph, cells[0], path)
    return eg.Model(_cell(cells[0], constants, path), _readout(proto.graph, cells[0], constants, readout, path))


def _weights(kind: str, layout: Layout) -> Layout:
    """W, R and B of an ONNX node."""
    turn = lambda a: a.reshape(GATES[kind], -1, *a.shape[1:])[ORDER[kind]].reshape(a.shape)  # noqa: E731
    return {
        "W": turn(layout["weight_ih_l0"])[None],
        "R": turn(layout["weight_hh_l0"])[None],
        "B": np.concatenate([turn(layout["bias_ih_l0"]), turn(layout["bias_hh_l0"])])[None],
    }


def _cell(node: Any, constants: Layout, path: Path) -> eg.Cell:
    kind, settings = node.op_type, {a.name: a for a in node.attribute}
    refuse = lambda bad, what: refuse_unless(not bad, f"{path}: its {kind} {what}.")  # noqa: E731
    refuse("direction" in settings and settings["direction"].s != b"forward", "does not run forward only")
    refuse("activations" in settings and not _usual(kind, settings), "has activations other than the usual ones")
    refuse("clip" in settings or ("layout" in settings and settings["layout"].i), "has a clip, or batches first")
    refuse("input_forget" in settings and settings["input_forget"].i, "couples input and forget gates")
    refuse(len(node.input) > 7 and node.input[7] != "", "has peepholes")
    before = kind == "GRU" and not ("linear_before_reset" in settings and settings["linear_before_reset"].i)
    refuse(before, "resets before the linear map (linear_before_reset=0), which eg.GRU does not: export it with 1")
    begins = [constants[name] for name in node.input[5:7] if name in constants]
    refuse(any(np.any(a) for a in begins), "starts from a state that is not zero")
    arrays = [constants.get(name) if name else None for name in (*node.input, "", "", "")[1:4]]
    refuse(arrays[0] is None or arrays[1] is None, "has weights that are not constants of the model")
    w, r, b = arrays
    gates = GATES[kind]
    back = lambda a: a.reshape(gates, -1, *a.shape[1:])[np.argsort(ORDER[kind])].reshape(a.shape)  # noqa: E731
    b = np.zeros(2 * r.shape[1], np.float32) if b is None else b[0]
    first, second = np.split(b, 2)
    layout = {"weight_ih_l0": back(w[0]), "weight_hh_l0": back(r[0])}
    return from_layout({**layout, "bias_ih_l0": back(first), "bias_hh_l0": back(second)}, str(path))


def _usual(kind, settings):
    usual = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}[kind]
    return [s.decode().lower() for s in settings["activations"].strings] == usual


def _check_input(graph: Any, cell: Any, path: Path) -> None:
    """Refuses what changes x before the cell sees it."""
    makers = {name: node for node in graph.node for name in node.output}
    name = cell.input[0]
    while name in makers:
        node = makers[name]
        refuse_unless(
            node.op_type in _SAME,
            f"{path}: a {node.op_type} before its {cell.op_type} cannot be imported. Do that to the data instead.",
        )
        name = node.input[0]


def _readout(graph: Any, cell: Any, constants: Layout, readout: str | None, path: Path) -> eg.Readout:
    """The one affine map downstream of the cell. Whatever else changes numbers there is refused."""
    reached, weight, bias, softmax = set(cell.output), None, None, False
    for node in graph.node:
        if not reached & set(node.input):
            continue
        reached |= set(node.output)
        given = [constants[name] for name in node.input if name in constants]
        if node.op_type == "MatMul" and weight is None and given:
            weight = given[0].T
        elif node.op_type == "Gemm" and weight is None and given and _plain(node):
            turned = any(a.name == "transB" and a.i for a in node.attribute)
            weight, bias = given[0] if turned else given[0].T, given[1] if len(given) > 1 else np.zeros(1)
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
    refuse_unless(
        weight is not None, f"{path} has no MatMul or Gemm with constant weights after its {cell.op_type}: no readout."
    )
    refuse_unless(
        not (softmax and readout == "linear"), f"{path} ends in a Softmax, so it predicts symbols and no numbers."
    )
    bias = None if bias is None else np.broadcast_to(np.ravel(bias), len(weight))
    return readout_from(weight, bias, softmax or readout == "softmax")


def _plain(gemm):
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
