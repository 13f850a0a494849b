"""Damaged ONNX, safetensors and river files: refused in a sentence, or read as what they say; never a traceback.

A few hundred of each here, thousands in `make test-slow`; every one can be had again from its number.
"""

import json
import math
import random
import re
import struct

import equinox as eqx
import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors import numpy as safetensors

import evergrad as eg
from evergrad.export import export_onnx, export_safetensors, import_onnx, import_safetensors
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor
from tests.fuzzing import changed_values, damaged, flipped, forget_peak, peak_mib, result_unless_refused

COUNT = pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.slow)])
INPUTS, UNITS, OUTPUTS = 3, 4, 2
CELLS = (eg.RNN, eg.LSTM, eg.GRU)


@pytest.fixture(autouse=True)
def little_memory():
    """No file makes this process hold a gigabyte more."""
    before = peak_mib()
    forget_peak()
    yield
    assert peak_mib() < before + 1024


def make(cell, readout=eg.Linear):
    first, second = jax.random.split(jax.random.key(0))
    return eg.Model(cell(INPUTS, UNITS, key=first), readout(UNITS, OUTPUTS, key=second, initial="fan_in"))


def xs():
    return np.random.default_rng(0).normal(size=(3, 2, INPUTS)).astype(np.float32)


@eqx.filter_jit
def predictions(model, xs):
    state = jax.vmap(lambda _: model.cell.initial())(np.arange(xs.shape[1]))
    outs = []
    for x in xs.astype(model.cell.weight.dtype):
        state = jax.vmap(model.cell.step)(state, x)
        outs.append(jax.vmap(lambda s: model.readout.predict(model.readout(model.cell.output(s))))(state))
    return outs


def assert_as_the_file_says(model, content):
    """onnxruntime computes the same from the damaged file, where it can, and where numbers are such that rounding
    does not decide."""
    largest = max(float(abs(a).max()) for a in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    if largest > 100 or (model.cell.inputs, model.cell.units) != (INPUTS, UNITS):
        return
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    try:
        run = onnxruntime.InferenceSession(content, quiet, providers=["CPUExecutionProvider"])
        feed = {i.name: np.zeros((1, 2, UNITS), np.float32) for i in run.get_inputs()[1:]}
        y = run.run(None, {run.get_inputs()[0].name: xs(), **feed})[0]
    except Exception:  # not a model for it: nothing to compare with
        return
    ours = np.stack(predictions(model, xs()))
    if y.shape == ours.shape:
        np.testing.assert_allclose(ours, y, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def onnx_contents(tmp_path_factory):
    """Of every cell, with either readout."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return [
        export_onnx(make(cell, readout), path).read_bytes() for cell in CELLS for readout in (eg.Linear, eg.Softmax)
    ]


def refuses_or_agrees(path, content):
    path.write_bytes(content)
    model = result_unless_refused(lambda: import_onnx(path))
    if model is not None:
        assert_as_the_file_says(model, content)


@COUNT
def test_damaged_onnx(count, onnx_contents, tmp_path):
    for seed, whole in enumerate(onnx_contents):
        for content in damaged(whole, count // len(onnx_contents), seed):
            refuses_or_agrees(tmp_path / "model.onnx", content)


@COUNT
def test_odd_onnx(count, onnx_contents, tmp_path):
    """Whole files, whose parts do not fit together."""
    for number in range(count):
        chance = random.Random(number)
        proto = onnx.load_from_string(chance.choice(onnx_contents))
        chance.choice((change_tensor, change_tensor, change_node, change_attribute))(proto, chance)
        refuses_or_agrees(tmp_path / "model.onnx", proto.SerializeToString())


def change_tensor(proto, chance):
    tensor = chance.choice(list(proto.graph.initializer))
    kind = chance.randrange(5)
    if kind == 0:
        tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice((0, -1, 1, 2, 7, 2**31, 2**62))
    elif kind == 1:
        dims = chance.choice(
            ([], [0], [0, 0], [0, 0, 0], list(tensor.dims)[1:], [1, *tensor.dims], list(tensor.dims)[::-1])
        )
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif kind == 2:
        tensor.data_type = chance.randrange(30)
    elif kind == 3:
        tensor.raw_data = tensor.raw_data[: chance.randrange(len(tensor.raw_data) + 1)]
    else:
        tensor.name = chance.choice([each.name for each in proto.graph.initializer] + ["", "x", "\x1b[31m"])


def change_node(proto, chance):
    node = chance.choice(list(proto.graph.node))
    kind = chance.randrange(5)
    if kind == 0:
        node.op_type = chance.choice(
            ("RNN", "LSTM", "GRU", "Add", "MatMul", "Gemm", "Identity", "Constant", "Softmax", "Tanh")
        )
    elif kind == 1:
        names = [each.name for each in proto.graph.initializer]
        node.input[chance.randrange(len(node.input))] = chance.choice((*names, "x", "h", "hidden", ""))
    elif kind == 2:
        node.output[chance.randrange(len(node.output))] = chance.choice(("", "x", "y", "hidden"))
    elif kind == 3:
        del node.input[chance.randrange(len(node.input)) :]
    else:
        proto.graph.node.remove(node)


def change_attribute(proto, chance):
    cell = proto.graph.node[0]
    name, value = chance.choice(
        (
            ("direction", b"\xff\xfe"),
            ("direction", b"reverse"),
            ("activations", [b"\xff", b"\xfe", b"\xfd"]),
            ("activations", ["Tanh"]),
            ("hidden_size", 2**31),
            ("hidden_size", 1),
            ("hidden_size", b"4"),
            ("layout", 1),
            ("clip", math.nan),
            ("linear_before_reset", 0),
        )
    )
    kept = [a for a in cell.attribute if a.name != name]
    del cell.attribute[:]
    cell.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


@pytest.fixture(scope="module")
def safetensors_content(tmp_path_factory):
    """Cell and readout in one file."""
    cell, readout = export_safetensors(make(eg.LSTM), tmp_path_factory.mktemp("safetensors") / "m.safetensors")
    inside = {f"readout.{name}": a for name, a in safetensors.load_file(readout).items()}
    return safetensors.save(safetensors.load_file(cell) | inside, {"readout": "Linear"})


def header_of(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def refuses_or_has_what_the_file_has(path, content):
    path.write_bytes(content)
    model = result_unless_refused(lambda: import_safetensors(path))
    if model is not None:
        header, data = header_of(content)
        about = header["readout.weight"]
        start, end = about["data_offsets"]
        dtype = {"F16": np.float16, "F32": np.float32, "F64": np.float64}.get(about["dtype"])
        if dtype is not None:
            theirs = np.frombuffer(data[start:end], dtype).reshape(about["shape"])
            np.testing.assert_array_equal(np.asarray(model.readout.weight).T, theirs)


@COUNT
def test_damaged_safetensors(count, safetensors_content, tmp_path):
    for content in damaged(safetensors_content, count):
        refuses_or_has_what_the_file_has(tmp_path / "m.safetensors", content)


DTYPES = ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F4", "I16", "F16", "BF16", "I32", "F32", "F64", "I64", "C64", "X")


@COUNT
def test_odd_safetensors(count, safetensors_content, tmp_path):
    """Headers that are JSON, and say something else."""
    whole, data = header_of(safetensors_content)
    for number, header in enumerate(changed_values(whole, count)):
        chance = random.Random(number)
        about = header.get(chance.choice(list(whole)))
        if chance.random() < 0.3 and isinstance(about, dict):
            about["dtype"] = chance.choice(DTYPES)
        refuses_or_has_what_the_file_has(tmp_path / "m.safetensors", with_header(header, data))


LEARNERS = [(OnlineRNNRegressor, 0), (OnlineRNNClassifier, 0)]  # compiling what learns takes longest
TAUGHT = [pytest.param((kind, 6), marks=pytest.mark.slow) for kind, _ in LEARNERS]


@pytest.fixture(scope="module", params=[*LEARNERS, *TAUGHT], ids=lambda case: f"{case[0].__name__}-{case[1]}")
def saved(request, tmp_path_factory):
    """A learner's class, and the content of the file of one that was taught so often."""
    path, (kind, often) = tmp_path_factory.mktemp("river") / "model.safetensors", request.param
    model = kind(units=3, cell="rnn", seed=1, estimator=eg.OK(rank=2, window=3))
    for t in range(often + 2):
        x = {"a": math.sin(t), "c": "xy"[t % 2], 7: float(t)}
        model.predict_one(x)
        if t < often:
            model.learn_one(x, "pqr"[t % 3] if kind is OnlineRNNClassifier else math.cos(t))
    model.save(path)
    return kind, path.read_bytes()


def same(model, content, path):
    """Whether it would save what was saved."""
    model.save(path)
    (ours, mine), (theirs, data) = header_of(path.read_bytes()), header_of(content)
    return ours == theirs and mine == data


@COUNT
def test_damaged_river_files(count, saved, tmp_path):
    """What is read in spite of the damage is what was saved."""
    kind, whole = saved
    path = tmp_path / "model.safetensors"
    chance = random.Random(0)
    flips = (flipped(whole, chance.randrange(8 * len(whole))) for _ in range(count))
    for content in (*damaged(whole, count), *flips):
        path.write_bytes(content)
        model = result_unless_refused(lambda: kind.load(path))
        assert model is None or same(model, whole, path)


@COUNT
def test_odd_river_files(count, saved, tmp_path):
    """Files without a checksum, as they were before there was one, with other content that is JSON."""
    kind, whole = saved
    path = tmp_path / "model.safetensors"
    header, data = header_of(whole)
    about = {name: text for name, text in header["__metadata__"].items() if name != "sha256"}
    for content in changed_values(json.loads(about["content"]), count):
        changed = {**header, "__metadata__": {**about, "content": json.dumps(content)}}
        path.write_bytes(with_header(changed, data))
        result_unless_refused(lambda: kind.load(path))


DEEP = "[" * 100_000 + "]" * 100_000
ANNOUNCED = {
    "units": lambda text: text.replace('"units", 3', f'"units", {2**31}'),
    "slots": lambda text: re.sub(r'"slots", \d', f'"slots", {2**40}', text),
    "lanes": lambda text: text.replace('"lanes", 1', f'"lanes", {2**31}'),
    "rank": lambda text: text.replace('"rank", 2', f'"rank", {2**31}'),
    "window": lambda text: text.replace('"window", 3', f'"window", {2**50}'),
    "digits": lambda text: text.replace('"units", 3', f'"units", {"9" * 5000}'),
    "depth": lambda text: text.replace('"units", 3', f'"units", {DEEP}'),
}


@pytest.mark.parametrize("case", ANNOUNCED)
def test_river_files_that_announce_more_than_they_hold_are_refused_before_room_is_made(case, saved, tmp_path):
    kind, whole = saved
    header, data = header_of(whole)
    about = {name: text for name, text in header["__metadata__"].items() if name != "sha256"}
    changed = ANNOUNCED[case](about["content"])
    assert changed != about["content"]
    path = tmp_path / "model.safetensors"
    path.write_bytes(with_header({**header, "__metadata__": {**about, "content": changed}}, data))
    with pytest.raises(eg.InputError, match=r"is damaged \("):
        kind.load(path)
