"""PyTorch loads what is exported, strictly, computes the same, and what it saves can be read. `make test-interop`."""

import jax
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad.export import export_onnx, export_safetensors, import_onnx, import_safetensors

torch = pytest.importorskip("torch", reason="`make test-interop` has an environment with torch")
from safetensors.torch import load_file, save_file  # noqa: E402

INPUTS, UNITS, OUTPUTS, STEPS, STREAMS = 3, 5, 2, 7, 4
CELLS = {"rnn": (eg.RNN, torch.nn.RNN), "lstm": (eg.LSTM, torch.nn.LSTM), "gru": (eg.GRU, torch.nn.GRU)}


@pytest.fixture(params=CELLS)
def pair(request):
    return CELLS[request.param]


@pytest.fixture
def xs():
    return np.random.default_rng(0).normal(size=(STEPS, STREAMS, INPUTS)).astype(np.float32)


def ours(model, xs):
    ys = np.zeros((*xs.shape[:2], OUTPUTS), np.float32)
    learner = eg.Learner(model, eg.TBPTT(horizon=1, stride=1), optax.sgd(0.0))
    return learner.run(learner.init(batch=xs.shape[1], key=jax.random.key(0)), xs, ys)[1].predictions


def theirs(cell, readout, xs):
    with torch.no_grad():
        return readout(cell(torch.from_numpy(xs))[0]).numpy()


def test_torch_loads_and_agrees(pair, xs, tmp_path):
    kind, module = pair
    model = eg.Model(
        kind(INPUTS, UNITS, key=jax.random.key(0)), eg.Linear(UNITS, OUTPUTS, key=jax.random.key(1), initial="fan_in")
    )
    file, readout_file = export_safetensors(model, tmp_path / "model.safetensors")
    cell, readout = module(INPUTS, UNITS), torch.nn.Linear(UNITS, OUTPUTS)
    cell.load_state_dict(load_file(file), strict=True)
    readout.load_state_dict(load_file(readout_file), strict=True)
    np.testing.assert_allclose(theirs(cell, readout, xs), ours(model, xs), rtol=0, atol=1e-5)


def test_torch_weights_are_read(pair, xs, tmp_path):
    _, module = pair
    torch.manual_seed(0)
    cell, readout = module(INPUTS, UNITS), torch.nn.Linear(UNITS, OUTPUTS)
    state = {**cell.state_dict(), **{f"readout.{name}": a for name, a in readout.state_dict().items()}}
    save_file(state, tmp_path / "torch.safetensors")
    model = import_safetensors(tmp_path / "torch.safetensors")
    np.testing.assert_allclose(ours(model, xs), theirs(cell, readout, xs), rtol=0, atol=1e-5)
    back = import_onnx(export_onnx(model, tmp_path / "model.onnx"))
    np.testing.assert_allclose(ours(back, xs), theirs(cell, readout, xs), rtol=0, atol=1e-5)
