"""RHNs in ONNX, which has no node for them: onnxruntime computes what the model here computes, whole or stepped."""

import jax
import numpy as np
import onnxruntime
import pytest

import evergrad as eg
from evergrad.export import export_onnx, export_safetensors

KEYS = jax.random.split(jax.random.key(0), 3)
CELLS = {
    "sigmoid": lambda: eg.RHN(3, 5, key=KEYS[0], initial="fan_in"),
    "tanh": lambda: eg.RHN(3, 5, key=KEYS[0], initial="fan_in", squash="tanh"),
    "deep": lambda: eg.RHN(3, 5, key=KEYS[0], initial="fan_in", depth=3),
    "sparse": lambda: eg.RHN(3, 5, key=KEYS[0], initial="fan_in", mask=0.5),
    "on an LSTM": lambda: eg.Stack(eg.LSTM(3, 4, key=KEYS[1]), eg.RHN(4, 5, key=KEYS[0], initial="fan_in")),
    "two": lambda: eg.Stack(*(eg.RHN(size, 5, key=KEYS[0], initial="fan_in") for size in (3, 5))),
}


@pytest.mark.parametrize("name", CELLS)
def test_onnxruntime_agrees_whole_and_stepped(name, tmp_path):
    model = eg.Model(CELLS[name](), eg.Softmax(5, 3, key=KEYS[2], initial="fan_in"))
    xs = np.random.default_rng(0).normal(size=(7, 4, 3)).astype(np.float32)
    _, wanted = model.run(xs)
    run = onnxruntime.InferenceSession(
        str(export_onnx(model, tmp_path / "model.onnx")), providers=["CPUExecutionProvider"]
    )
    begun = {i.name: np.zeros((1, 4, i.shape[-1]), np.float32) for i in run.get_inputs() if i.name != "x"}
    y, *_ = run.run(None, {"x": xs, **begun})
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5)
    state, stepped = begun, []
    for x in xs:
        y, *after = run.run(None, {"x": x[None], **state})
        state, stepped = dict(zip(state, after, strict=True)), [*stepped, y[0]]
    np.testing.assert_allclose(np.stack(stepped), wanted, rtol=0, atol=1e-5)


def test_pytorch_has_no_rhn(tmp_path):
    model = eg.Model(CELLS["sigmoid"](), eg.Linear(5, 2, key=KEYS[2]))
    with pytest.raises(eg.InputError, match=r"a RHN cannot be exported.*an RHN can go to ONNX"):
        export_safetensors(model, tmp_path / "model.safetensors")
