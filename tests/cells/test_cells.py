"""Cells against an implementation that nobody here wrote, and what a cell promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import evergrad as eg
from tests.helpers import KRONECKER_CELLS, Leaky, cast, make_data

INPUTS, UNITS, STEPS, BATCH = 5, 7, 12, 3


def by_onnxruntime(operator, x, w, r, b, **attributes):
    """Y of ONNX's recurrent operator: [T, directions, B, n]."""
    tensors = {"X": x, "W": w, "R": r, "B": b}
    node = helper.make_node(operator, list(tensors), ["Y"], hidden_size=UNITS, **attributes)
    values = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in tensors.items()]
    result = helper.make_tensor_value_info("Y", TensorProto.FLOAT, (STEPS, 1, BATCH, UNITS))
    model = helper.make_model(
        helper.make_graph([node], "g", values, [result]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {k: v.astype(np.float32) for k, v in tensors.items()})[0]


def outputs(cell, xs):
    state, hs = jnp.stack([cell.initial()] * BATCH), []
    for x in xs:
        state = jax.vmap(cell.step)(state, jnp.asarray(x, jnp.float32))
        hs.append(state[:, 0])
    return np.stack(hs)


def blocks(cell):
    """W as [gates, n, p], split into the columns of x, h and 1."""
    gates = np.asarray(cell.weight).reshape(len(cell.weight), len(cell.gates), UNITS).transpose(1, 2, 0)
    return gates[:, :, :INPUTS], gates[:, :, INPUTS:-1], gates[:, :, -1]


def random_cell(kind):
    cell = cast(kind(INPUTS, UNITS, key=jax.random.key(0)), jnp.float32)
    xs = np.random.default_rng(0).normal(size=(STEPS, BATCH, INPUTS)).astype(np.float32)
    return eqx.tree_at(lambda c: c.weight, cell, 2 * cell.weight), xs


def test_rnn_is_onnxs():
    cell, xs = random_cell(eg.RNN)
    wx, wh, b = blocks(cell)
    expected = by_onnxruntime("RNN", xs, wx, wh, np.c_[b, np.zeros_like(b)])
    np.testing.assert_allclose(outputs(cell, xs), expected[:, 0], atol=1e-5)


def test_lstm_is_onnxs():
    cell, xs = random_cell(eg.LSTM)
    order = [0, 3, 1, 2]  # ONNX: i, o, f, c; ours: i, f, g, o
    wx, wh, b = (part[order].reshape(1, 4 * UNITS, *part.shape[2:]) for part in blocks(cell))
    expected = by_onnxruntime("LSTM", xs, wx, wh, np.concatenate([b, 0 * b], axis=1))
    np.testing.assert_allclose(outputs(cell, xs), expected[:, 0], atol=1e-5)


def test_gru_is_onnxs():
    cell, xs = random_cell(eg.GRU)
    wx, wh, b = blocks(cell)

    def rows(*parts):  # ONNX: z, r, candidate
        return np.concatenate(parts)[None]

    w, r = rows(wx[1], wx[0], wx[2]), rows(wh[1], wh[0], wh[3])
    both = np.concatenate([b[1], b[0], b[2], 0 * b[1], 0 * b[0], b[3]])[None]
    expected = by_onnxruntime("GRU", xs, w, r, both, linear_before_reset=1)
    np.testing.assert_allclose(outputs(cell, xs), expected[:, 0], atol=1e-5)


@pytest.mark.parametrize("squash", ["sigmoid", "tanh"])
def test_rhn_is_papers(squash):
    cell = eg.RHN(INPUTS, UNITS, key=jax.random.key(0), initial="fan_in", squash=squash)
    h, x = jnp.linspace(-1, 1, UNITS), jnp.linspace(0, 1, INPUTS)
    z = np.concatenate([x, h, [1.0]]) @ np.asarray(cell.weight)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    c = 2 * sigmoid(z[:UNITS]) - 1 if squash == "sigmoid" else np.tanh(z[:UNITS])
    f = sigmoid(z[UNITS:])
    np.testing.assert_allclose(cell.step(h[None], x)[0], f * h + (1 - f) * c, atol=1e-14)


@pytest.mark.parametrize("kind", KRONECKER_CELLS.values())
def test_initialisation(kind):
    cell = kind(200, 100, key=jax.random.key(0))
    exists = np.asarray(cell.weight)[cell.mask]
    assert (np.asarray(cell.weight)[~cell.mask] == 0).all()
    if kind is eg.RHN:  # the paper's
        assert exists.std() == pytest.approx(0.01, rel=0.02)
    else:
        assert np.abs(exists).max() == pytest.approx(0.1, rel=0.01)
    assert kind(200, 100, key=jax.random.key(0), initial="normal").weight.std() < 0.011


def test_masked_weights_stay_zero_in_training():
    import optax

    cell = eg.GRU(3, 4, key=jax.random.key(0))
    assert not cell.mask.all()
    model = eg.Model(cell, eg.Softmax(4, 3, key=jax.random.key(1)))
    learner = eg.Learner(model, eg.OK(rank=2, window=2), optax.adamw(1e-2))
    state, _ = learner.run(learner.init(batch=2, key=jax.random.key(2)), *make_data(20))
    trained = np.asarray(state.model.cell.weight)
    assert (trained[~cell.mask] == 0).all()
    assert (trained[cell.mask] != np.asarray(cell.weight)[cell.mask]).all()


def test_your_own_cell_trains_with_the_cheap_estimators():
    """`Leaky` (tests/helpers.py) is in no list; docs/extending-a-cell.md is about it."""
    import optax

    model = eg.Model(Leaky(3, 8, key=jax.random.key(0)), eg.Softmax(8, 3, key=jax.random.key(1)))
    learner = eg.Learner(model, eg.OK(rank=3, window=4), optax.adam(1e-2), clip=1.0)
    xs = np.tile(np.arange(300)[:, None] % 3, (1, 2))
    _, out = learner.run(learner.init(batch=2, key=jax.random.key(2)), xs[:-1], xs[1:])
    assert float(out.losses[-20:].mean()) < 0.5 * float(out.losses[:20].mean())
