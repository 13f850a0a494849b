"""PyTorch's layout: there and back, and what is refused. That PyTorch agrees is tests/interop's to show."""

import json
import struct

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import evergrad as eg
from evergrad.export import export_onnx, export_safetensors, import_safetensors, read_model
from evergrad.export.layout import to_layout

CELLS = {"rnn": (eg.RNN, 1), "lstm": (eg.LSTM, 4), "gru": (eg.GRU, 3)}


def make(cell):
    first, second = jax.random.split(jax.random.key(0))
    return eg.Model(cell(3, 5, key=first), eg.Softmax(5, 4, key=second, initial="fan_in"))


@pytest.fixture(params=CELLS)
def case(request):
    return CELLS[request.param]


def test_names_and_shapes(case, tmp_path):
    cell, gates = case
    file, readout = export_safetensors(make(cell), tmp_path / "model.safetensors")
    assert {name: a.shape for name, a in load_file(file).items()} == {
        "weight_ih_l0": (gates * 5, 3),
        "weight_hh_l0": (gates * 5, 5),
        "bias_ih_l0": (gates * 5,),
        "bias_hh_l0": (gates * 5,),
    }
    assert {name: a.shape for name, a in load_file(readout).items()} == {"weight": (4, 5), "bias": (4,)}


def test_there_and_back(case, tmp_path):
    model = make(case[0])
    file, _ = export_safetensors(model, tmp_path / "model.safetensors")
    back = import_safetensors(file)
    assert type(back.readout) is eg.Softmax
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)  # float32 in the file


def test_both_biases_count(case, tmp_path):
    cell, gates = case
    rng = np.random.default_rng(0)
    tensors = {
        "weight_ih_l0": rng.normal(size=(gates * 2, 1)),
        "weight_hh_l0": rng.normal(size=(gates * 2, 2)),
        "bias_ih_l0": rng.normal(size=gates * 2),
        "bias_hh_l0": rng.normal(size=gates * 2),
        "readout.weight": rng.normal(size=(1, 2)),
    }
    save_file({name: a.astype(np.float32) for name, a in tensors.items()}, tmp_path / "m.safetensors")
    model = import_safetensors(tmp_path / "m.safetensors", readout="linear")
    bias = np.asarray(model.cell.weight)[-1].reshape(len(model.cell.gates), 2)
    both = (tensors["bias_ih_l0"] + tensors["bias_hh_l0"]).reshape(gates, 2)
    if cell is eg.GRU:
        np.testing.assert_allclose(bias[:2], both[:2], rtol=1e-6)
        np.testing.assert_allclose(
            bias[2:].reshape(-1), [*tensors["bias_ih_l0"][4:], *tensors["bias_hh_l0"][4:]], rtol=1e-6
        )
    else:
        np.testing.assert_allclose(bias, both, rtol=1e-6)


def test_imported_models_go_on_learning(tmp_path):
    import optax

    file, _ = export_safetensors(make(eg.LSTM), tmp_path / "model.safetensors")
    learner = eg.Learner(import_safetensors(file), eg.OK(rank=2, window=4), optax.adam(1e-2))
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(600, 1, 3)).astype(np.float32)
    ys = xs.argmax(-1).astype(np.int32)
    _, out = learner.run(learner.init(batch=1, key=jax.random.key(0)), xs, ys)
    assert out.losses[-100:].mean() < 0.7 * out.losses[:100].mean()


def test_the_ending_says_which(tmp_path):
    model = make(eg.GRU)
    export_safetensors(model, tmp_path / "m.safetensors")
    export_onnx(model, tmp_path / "m.onnx")
    a, b = read_model(tmp_path / "m.safetensors"), read_model(tmp_path / "m.onnx")
    np.testing.assert_array_equal(a.cell.weight, b.cell.weight)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": (2, 2)}, "has no weight_hh_l0 and no weight_ih_l0"),
        ({"weight_ih_l0": (5, 1), "weight_hh_l0": (5, 2)}, "are those of no RNN, LSTM or GRU"),
        ({"weight_ih_l0": (2, 1), "weight_hh_l0": (2, 2), "weight_ih_l1": (2, 2)}, "weight_hh_l1"),
        ({"weight_ih_l0": (8, 1), "weight_hh_l0": (8, 2), "weight_hr_l0": (1, 2)}, "no projection"),
        ({"weight_ih_l0": (2,), "weight_hh_l0": (2, 2)}, "are no matrices"),
        ({"weight_ih_l0": (2, 1), "weight_hh_l0": (2, 2), "bias_hh_l0": (3,)}, r"bias_hh_l0 \[3\] is not \[2\]"),
        ({"weight_ih_l0": (2, 1), "weight_hh_l0": (2, 2), "readout.bias": (3,)}, r"and a bias \[3\]"),
    ],
)
def test_other_layouts_are_refused(tensors, message, tmp_path):
    content = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    save_file({**content, "readout.weight": np.zeros((1, 2), np.float32)}, tmp_path / "m.safetensors")
    with pytest.raises(eg.InputError, match=message):
        import_safetensors(tmp_path / "m.safetensors")


def test_a_file_without_readout_or_cut_short_is_refused(tmp_path):
    file, readout = export_safetensors(make(eg.RNN), tmp_path / "m.safetensors")
    readout.unlink()
    with pytest.raises(eg.InputError, match="has no readout: add `readout"):
        import_safetensors(file)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(eg.InputError, match="cut short"):
        import_safetensors(file)


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    file, _ = export_safetensors(make(eg.RNN), tmp_path / "m.safetensors")
    tensors = load_file(file)
    tensors["weight_ih_l0"][0, 0] = np.nan
    save_file(tensors, file)
    with pytest.raises(eg.InputError, match="NaN or infinite"):
        import_safetensors(file)


def odd_file(path, change):
    """A whole file with another header."""
    file, readout = export_safetensors(make(eg.LSTM), path)
    inside = {f"readout.{name}": a for name, a in load_file(readout).items()}
    save_file(load_file(file) | inside, file, {"readout": "linear"})
    readout.unlink()
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(change(header) or header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return file


def as_type(dtype, shape):
    return lambda header: header["weight_hh_l0"].update(dtype=dtype, shape=shape)


ODD = {
    "F8": (as_type("F8_E4M3", [80, 5]), r"weight_hh_l0 is F8_E4M3, and weights are float16, bfloat16"),
    "whole numbers": (as_type("I32", [20, 5]), "weight_hh_l0 is I32"),
    "shape": (as_type("F32", [21, 5]), "cut short or no safetensors file"),
    "2^31 units": (as_type("F32", [2**33, 2**31]), "cut short or no safetensors file"),
    "nothing": (as_type("F32", [0, 0]), "cut short or no safetensors file"),
    "a key": (
        lambda header: header.update({"bias\x1b\n": header.pop("bias_hh_l0")}),
        r"has bias\\x1b\\n: layers follow each other here",
    ),
    "metadata": (lambda header: header["__metadata__"].update(readout="\x1b[31m"), r'readout="\\x1b\[31m"'),
}


@pytest.mark.parametrize("case", ODD)
def test_headers_that_do_not_fit_are_refused(case, tmp_path):
    change, message = ODD[case]
    file = odd_file(tmp_path / "m.safetensors", change)
    with pytest.raises(eg.InputError, match=message) as refused:
        import_safetensors(file)
    assert str(file) in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("shapes", [((0, 0), (0, 0)), ((2**31, 0), (2**31, 0)), ((20, 0), (20, 5))])
def test_weights_of_no_size_are_refused(shapes, tmp_path):
    content = {
        name: np.zeros(shape, np.float32) for name, shape in zip(("weight_ih_l0", "weight_hh_l0"), shapes, strict=True)
    }
    save_file(content | {"readout.weight": np.zeros((1, 5), np.float32)}, tmp_path / "m.safetensors")
    with pytest.raises(eg.InputError, match="are no matrices with numbers in them"):
        import_safetensors(tmp_path / "m.safetensors")


def test_what_single_precision_cannot_hold_is_refused(tmp_path):
    content = {
        "weight_ih_l0": np.full((5, 1), 1e300),
        "weight_hh_l0": np.zeros((5, 5)),
        "readout.weight": np.zeros((1, 5)),
    }
    save_file(content, tmp_path / "m.safetensors")
    with pytest.raises(eg.InputError, match="NaN or infinite"):
        import_safetensors(tmp_path / "m.safetensors")


def test_half_precision_is_read(tmp_path):
    content = {"weight_ih_l0": np.ones((5, 1)), "weight_hh_l0": np.zeros((5, 5)), "readout.weight": np.ones((1, 5))}
    save_file({name: a.astype(np.float16) for name, a in content.items()}, tmp_path / "m.safetensors")
    assert np.asarray(import_safetensors(tmp_path / "m.safetensors").cell.weight)[0].tolist() == [1.0] * 5


def whole_model(head, tail, layers=1, cell=eg.LSTM, more=()):
    """A state dict as PyTorch names it, and the model that it is of."""
    first, *keys = jax.random.split(jax.random.key(0), layers + 1)
    stack = [cell(3 if i == 0 else 5, 5, key=key) for i, key in enumerate(keys)]
    model = eg.Model(stack[0] if layers == 1 else eg.Stack(*stack), eg.Linear(5, 2, key=first))
    tensors = {f"{head}{name}": a for name, a in to_layout(model.cell).items()}
    tensors |= {f"{tail}weight": np.asarray(model.readout.weight).T, f"{tail}bias": np.asarray(model.readout.bias)}
    tensors |= {name: np.ones((2, 2)) for name in more}
    return model, {name: np.ascontiguousarray(a, np.float32) for name, a in tensors.items()}


@pytest.mark.parametrize(
    ("head", "tail", "layers", "cell"),
    [
        ("lstm.", "fc.", 1, eg.LSTM),
        ("rnn.", "readout.", 1, eg.GRU),
        ("model.encoder.rnn.", "model.head.0.", 1, eg.RNN),
        ("module.lstm.", "module.fc.", 3, eg.LSTM),
        ("", "decoder.", 2, eg.GRU),
    ],
)
def test_a_whole_model_under_names_of_its_own(head, tail, layers, cell, tmp_path):
    model, tensors = whole_model(head, tail, layers, cell)
    save_file(tensors, tmp_path / "m.safetensors")
    back = import_safetensors(tmp_path / "m.safetensors")
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_cell_module_without_a_number(tmp_path):
    model, tensors = whole_model("cell.", "fc.")
    save_file({name.replace("_l0", ""): a for name, a in tensors.items()}, tmp_path / "m.safetensors")
    back = import_safetensors(tmp_path / "m.safetensors")
    np.testing.assert_allclose(back.cell.weight, model.cell.weight, rtol=1e-6)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (["embedding.weight"], r"has embedding.weight, fc.bias, fc.weight beside its recurrent module"),
        (["norm.bias"], "has norm.bias beside its recurrent module"),
        (["gru.weight_ih_l0"], r"has 2 recurrent modules \(gru\., lstm\.\)"),
    ],
)
def test_what_would_be_left_out_is_named(more, match, tmp_path):
    _, tensors = whole_model("lstm.", "fc.", more=more)
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(eg.InputError, match=match):
        import_safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize("ending", ["pt", "pth"])
def test_a_pickle_gets_the_line_that_turns_it_into_safetensors(ending, tmp_path):
    with pytest.raises(eg.InputError, match=r"save_file\(torch.load\(.*weights_only=True\), .*m.safetensors'\)"):
        read_model(tmp_path / f"m.{ending}")
