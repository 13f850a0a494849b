"""ONNX: onnxruntime computes what the model here computes, whole or stepped, and what is read back is the same."""

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import evergrad as eg
from evergrad._tasks.series import Series, scale_after
from evergrad.export import export_onnx, import_onnx

INPUTS, UNITS, OUTPUTS, STEPS, STREAMS = 3, 5, 2, 7, 4
CELLS = {"rnn": eg.RNN, "lstm": eg.LSTM, "gru": eg.GRU}
READOUTS = {"linear": eg.Linear, "softmax": eg.Softmax}


def make(cell, readout):
    first, second = jax.random.split(jax.random.key(0))
    return eg.Model(
        CELLS[cell](INPUTS, UNITS, key=first), READOUTS[readout](UNITS, OUTPUTS, key=second, initial="fan_in")
    )


@pytest.fixture(params=[(c, r) for c in CELLS for r in READOUTS], ids="-".join)
def model(request):
    return make(*request.param)


@pytest.fixture
def xs():
    return np.random.default_rng(0).normal(size=(STEPS, STREAMS, INPUTS)).astype(np.float32)


def expected(model, xs):
    """Predictions [T, B, outputs] and the last states [B, s, n]."""
    state = jax.vmap(lambda _: model.cell.initial())(np.arange(xs.shape[1]))
    outs = []
    for x in xs.astype(model.cell.weight.dtype):
        state = jax.vmap(model.cell.step)(state, x)
        outs.append(jax.vmap(lambda s: model.readout.predict(model.readout(model.cell.output(s))))(state))
    return np.stack(outs), np.asarray(state)


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def zeros(run):
    return {i.name: np.zeros((1, STREAMS, UNITS), np.float32) for i in run.get_inputs() if i.name != "x"}


def test_a_series_goes_in_and_forecasts_come_out_in_its_units(tmp_path):
    """As the series itself scores: the error of what comes out is the one that was reported."""
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=(40, 3)), axis=0) * [1.0, 100.0, 0.0] + [1e6, -5.0, 7.0]
    series = Series(rows, [1, 0], ahead=2)
    model = make("lstm", "linear")
    scale = scale_after(rows, [1, 0], batch=1, ahead=2, steps=40)
    run = session(export_onnx(model, tmp_path / "model.onnx", scale=scale))
    states = {name: np.zeros((1, 1, UNITS), np.float32) for name in ("h", "c")}
    y = run.run(None, {"x": rows[-1][None, None], **states})[0][0, 0]
    said = expected(model, np.asarray(series.inputs[-1][None]))[0][0, 0]
    unit = [np.sqrt(np.mean((rows[2:, i] - rows[:-2, i]) ** 2)) for i in (1, 0)]
    np.testing.assert_allclose(y, rows[-1, [1, 0]] + np.array(unit) * said, rtol=1e-9, atol=1e-3)
    again = import_onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(np.asarray(again.cell.weight), np.asarray(model.cell.weight), atol=1e-6)


def test_onnxruntime_agrees(model, xs, tmp_path):
    run = session(export_onnx(model, tmp_path / "model.onnx"))
    y, *states = run.run(None, {"x": xs, **zeros(run)})
    outs, last = expected(model, xs)
    np.testing.assert_allclose(y, outs, rtol=0, atol=1e-5)
    for i, state in enumerate(states):
        np.testing.assert_allclose(state[0], last[:, i], rtol=0, atol=1e-5)


def test_a_server_can_step_it(model, xs, tmp_path):
    run = session(export_onnx(model, tmp_path / "model.onnx"))
    state, outs = zeros(run), []
    for x in xs:
        y, *after = run.run(None, {"x": x[None], **state})
        state, outs = dict(zip(state, after, strict=True)), [*outs, y[0]]
    np.testing.assert_allclose(np.stack(outs), expected(model, xs)[0], rtol=0, atol=1e-5)


def test_there_and_back(model, xs, tmp_path):
    back = import_onnx(export_onnx(model, tmp_path / "model.onnx"))
    assert type(back.cell) is type(model.cell)
    assert type(back.readout) is type(model.readout)
    np.testing.assert_allclose(expected(back, xs)[0], expected(model, xs)[0], rtol=0, atol=1e-6)


def test_a_cell_that_onnx_does_not_know_is_refused(tmp_path):
    model = eg.Model(eg.MinGRU(2, 3, key=jax.random.key(0)), eg.Linear(3, 1, key=jax.random.key(1)))
    with pytest.raises(eg.InputError, match="a MinGRU cannot be exported"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_other_gru_is_refused(tmp_path):
    path = export_onnx(make("gru", "linear"), tmp_path / "model.onnx")
    proto = onnx.load(path)
    (attribute,) = (a for a in proto.graph.node[0].attribute if a.name == "linear_before_reset")
    attribute.i = 0
    onnx.save(proto, path)
    with pytest.raises(eg.InputError, match="linear_before_reset=0"):
        import_onnx(path)


def test_what_is_no_such_model_is_refused(tmp_path):
    path = export_onnx(make("lstm", "linear"), tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(eg.InputError, match="cut short or no ONNX model"):
        import_onnx(path)
    with pytest.raises(eg.InputError, match="is not a file"):
        import_onnx(tmp_path / "none.onnx")


def insert(path, op, inputs, before=None):
    """Puts a node in front of the readout's product, or after everything, whose first input is what was there."""
    proto = onnx.load(path)
    nodes = list(proto.graph.node)
    if before:
        at = [node.op_type for node in nodes].index(before)
        place = nodes[at].input
    else:
        at, place = len(nodes), nodes[-1].output
    node = onnx.helper.make_node(op, ["was", *inputs], ["then"])
    if before:
        node.input[0], place[0] = place[0], "then"
    else:
        node.output[0], place[0] = place[0], "was"
    nodes.insert(at, node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(OUTPUTS, dtype=np.float32), "k"))
    onnx.save(proto, path)


@pytest.mark.parametrize(
    ("op", "inputs", "before", "where"),
    [
        ("Relu", [], "MatMul", "after"),
        ("Sigmoid", [], None, "after"),
        ("MatMul", ["k"], None, "after"),
        ("Exp", [], "LSTM", "before"),
    ],
)
def test_what_it_could_not_do_is_refused(op, inputs, before, where, tmp_path):
    """And not left out, which would predict something else."""
    path = export_onnx(make("lstm", "linear"), tmp_path / "model.onnx")
    insert(path, op, inputs, before)
    with pytest.raises(eg.InputError, match=f"a {op} {where} its LSTM cannot be imported"):
        import_onnx(path)


def test_logits_are_read_as_what_is_asked_for(xs, tmp_path):
    path = export_onnx(make("gru", "linear"), tmp_path / "model.onnx")
    back = import_onnx(path, readout="softmax")
    assert isinstance(back.readout, eg.Softmax)
    logits = expected(import_onnx(path), xs)[0]
    np.testing.assert_allclose(expected(back, xs)[0], jax.nn.softmax(logits), rtol=0, atol=1e-6)
    symbols = export_onnx(make("gru", "softmax"), tmp_path / "symbols.onnx")
    with pytest.raises(eg.InputError, match="predicts symbols and no numbers"):
        import_onnx(symbols, readout="linear")


def with_tensor(name, dims=None, dtype=None, raw=None):
    """Changes a tensor of a file to say or hold something else."""

    def change(proto):
        (tensor,) = (each for each in proto.graph.initializer if each.name == name)
        if dims is not None:
            del tensor.dims[:]
            tensor.dims.extend(dims)
        tensor.data_type = tensor.data_type if dtype is None else dtype
        tensor.raw_data = tensor.raw_data if raw is None else raw

    return change


def with_attribute(name, value):
    def change(proto):
        attributes = proto.graph.node[0].attribute
        kept = [each for each in attributes if each.name != name]
        del attributes[:]
        attributes.extend([*kept, onnx.helper.make_attribute(name, value)])

    return change


def without_constant_bias(proto):
    proto.graph.node[0].input[3] = "x"


def with_weights_first(proto):
    (product,) = (node for node in proto.graph.node if node.op_type == "MatMul")
    product.input[0], product.input[1] = product.input[1], product.input[0]


ODD = {
    "dims": (with_tensor("W", dims=[1, 20, 4]), "cut short or no ONNX model"),
    "dtype": (with_tensor("R", dtype=onnx.TensorProto.DOUBLE), "cut short or no ONNX model"),
    "unknown dtype": (with_tensor("R", dtype=33), "cut short or no ONNX model"),
    "huge dims": (with_tensor("R", dims=[1, 2**33, 2**31]), "cut short or no ONNX model"),
    "whole numbers": (with_tensor("W", dtype=onnx.TensorProto.INT32), "weight_ih_l0 is int32"),
    "F8": (with_tensor("W", dtype=onnx.TensorProto.FLOAT8E4M3FN, raw=bytes(60)), "weight_ih_l0 is float8_e4m3fn"),
    "F8 readout": (
        with_tensor("readout_weight", dtype=onnx.TensorProto.FLOAT8E5M2, raw=bytes(10)),
        "the readout's weight is float8_e5m2",
    ),
    "empty W": (with_tensor("W", dims=[1, 20, 0], raw=b""), r"\[1, 20, 0\].* do not fit together"),
    "empty R": (with_tensor("R", dims=[1, 0, 0], raw=b""), r"\[1, 0, 0\].* do not fit together"),
    "scalar W": (with_tensor("W", dims=[], raw=bytes(4)), r"\[\].* do not fit together"),
    "scalar R": (with_tensor("R", dims=[], raw=bytes(4)), r"\[\].* do not fit together"),
    "scalar B": (with_tensor("B", dims=[], raw=bytes(4)), r"\[\].* do not fit together"),
    "empty B": (with_tensor("B", dims=[1, 0], raw=b""), r"\[1, 0\].* do not fit together"),
    "empty readout": (with_tensor("readout_weight", dims=[0, 0], raw=b""), r"a readout has weights.*not \[0, 0\]"),
    "scalar readout": (with_tensor("readout_weight", dims=[], raw=bytes(4)), r"a readout has weights.*not \[\]"),
    "readout bias": (with_tensor("readout_bias", dims=[2, 1]), r"a bias \[2, 1\]"),
    "direction": (with_attribute("direction", b"\xff\xfe"), "does not run forward only"),
    "activations": (with_attribute("activations", [b"\xff", b"\xfe", b"\xfd"]), "other than the usual ones"),
    "hidden size": (with_attribute("hidden_size", 2**31), "another hidden_size than R"),
    "bias from outside": (without_constant_bias, "not constants of the model"),
    "weights first": (with_weights_first, "a MatMul after its LSTM cannot be imported"),
}


@pytest.mark.parametrize("case", ODD)
def test_parts_that_do_not_fit_are_refused(case, tmp_path):
    path = export_onnx(make("lstm", "linear"), tmp_path / "model.onnx")
    proto, (change, message) = onnx.load(path), ODD[case]
    change(proto)
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(eg.InputError, match=message) as refused:
        import_onnx(path)
    assert str(path) in str(refused.value)
    assert str(refused.value).isprintable()
