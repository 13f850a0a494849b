"""Equinox and Flax cells: the sum of the online gradients is the gradient that JAX finds of the unrolled loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import evergrad as eg
from tests.helpers import cast, crossed

INPUTS, UNITS, STEPS, STREAMS = 2, 3, 6, 2


def equinox_lstm(key):
    return eg.from_equinox(eqx.nn.LSTMCell(INPUTS, UNITS, key=key))


def equinox_gru(key):
    return eg.from_equinox(eqx.nn.GRUCell(INPUTS, UNITS, key=key))


def flax_lstm(key):
    return eg.from_flax(nnx.LSTMCell(INPUTS, UNITS, rngs=nnx.Rngs(0)))


def flax_optimised_lstm(key):
    return eg.from_flax(nnx.OptimizedLSTMCell(INPUTS, UNITS, rngs=nnx.Rngs(0)))


def flax_gru(key):
    return eg.from_flax(nnx.GRUCell(INPUTS, UNITS, rngs=nnx.Rngs(0)))


CELLS = [equinox_lstm, equinox_gru, flax_lstm, flax_optimised_lstm, flax_gru]


@pytest.fixture(params=crossed(CELLS, lambda make: make in (equinox_lstm, flax_gru), lambda make: make.__name__))
def model(request):
    model = eg.Model(request.param(jax.random.key(0)), eg.Linear(UNITS, 2, key=jax.random.key(1), initial="fan_in"))
    return cast(model, jnp.float64)


@pytest.fixture
def data():
    x, y = jax.random.split(jax.random.key(2))
    return jax.random.normal(x, (STEPS, STREAMS, INPUTS)), jax.random.normal(y, (STEPS, STREAMS, 2))


def reference(model, xs, ys):
    """d/dθ of the sum over the steps of the mean loss over the streams."""
    return eqx.filter_jit(eqx.filter_grad(lambda model: model.losses(xs, ys).mean(1).sum()))(model)


def assert_close(got, wanted, tolerance):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(np.asarray(b)).max())


@pytest.mark.parametrize("estimator", [eg.RTRL(), eg.RTRL(window=2), eg.TBPTT(horizon=STEPS, stride=STEPS)], ids=repr)
def test_exact_estimators_give_the_gradient_of_the_unrolled_loss(model, data, estimator):
    _, gradients = eg.gradients(model, estimator, *data, key=jax.random.key(3))
    assert_close(jax.tree.map(lambda a: a.sum(0), gradients), reference(model, *data), 1e-10)


def test_uoro_is_right_in_the_mean(model, data):
    runs = 1500
    keys = jax.random.split(jax.random.key(4), runs)
    summed = jax.vmap(lambda key: jax.tree.map(lambda a: a.sum(0), eg.gradients(model, eg.UORO(), *data, key=key)[1]))
    sampled = jax.jit(summed)(keys)
    for a, b in zip(jax.tree.leaves(sampled), jax.tree.leaves(reference(model, *data)), strict=True):
        error = np.asarray(a.std(0)) / runs**0.5 + 1e-6
        z = (np.asarray(a.mean(0)) - np.asarray(b)) / error
        assert np.abs(z).max() < 5.5, "the largest of some 80 z-scores"


TAUGHT = [eg.RTRL(), eg.UORO(), eg.TBPTT(horizon=4, stride=1)]


@pytest.mark.parametrize("estimator", crossed(TAUGHT, lambda estimator: estimator != TAUGHT[2], repr))
def test_a_learner_trains_them(model, estimator):
    xs = jax.random.normal(jax.random.key(5), (1500, STREAMS, INPUTS))
    learner = eg.Learner(model, estimator, optax.adam(1e-2))
    state, out = learner.run(learner.init(batch=STREAMS, key=jax.random.key(6)), xs, jnp.tanh(xs))
    assert float(out.losses[-200:].mean()) < 0.4 * float(out.losses[:200].mean())
    before, after = (jax.tree.leaves(eqx.filter(m.cell, eqx.is_inexact_array)) for m in (model, state.model))
    assert all(bool(jnp.any(a != b)) for a, b in zip(before, after, strict=True))


def test_the_trained_flax_module_comes_back():
    module = nnx.GRUCell(INPUTS, UNITS, rngs=nnx.Rngs(0))
    cell = eg.from_flax(module)
    x, zero = jnp.ones(INPUTS, jnp.float32), jnp.zeros(UNITS, jnp.float32)
    carry, _ = module(zero, x)
    np.testing.assert_array_equal(cell.step(cell.initial(), x), carry)
    np.testing.assert_array_equal(cell.module(zero, x)[0], carry)


def test_what_is_no_cell_is_refused():
    with pytest.raises(eg.InputError, match="without `input_size`"):
        eg.from_equinox(eqx.nn.Linear(2, 3, key=jax.random.key(0)))
    with pytest.raises(eg.InputError, match="not a Flax NNX module"):
        eg.from_flax(eqx.nn.LSTMCell(2, 3, key=jax.random.key(0)))
    with pytest.raises(eg.InputError, match="without `in_features`"):
        eg.from_flax(nnx.Dropout(0.5))


@pytest.mark.parametrize(("make", "ours"), [(equinox_lstm, eg.LSTM), (equinox_gru, eg.GRU), (flax_lstm, eg.LSTM)])
def test_what_is_one_of_ours_becomes_one(make, ours):
    assert type(make(jax.random.key(0))) is ours


def test_what_became_one_of_ours_goes_back():
    key = jax.random.key(0)
    for module in (eqx.nn.LSTMCell(INPUTS, UNITS, key=key), eqx.nn.GRUCell(INPUTS, UNITS, key=key)):
        assert eqx.tree_equal(eg.to_equinox(eg.from_equinox(module)), module)
    module, x, zero = nnx.LSTMCell(INPUTS, UNITS, rngs=nnx.Rngs(0)), jnp.ones(INPUTS, jnp.float32), jnp.zeros(UNITS)
    zero = zero.astype(jnp.float32)
    back = eg.to_flax(eg.from_flax(module))
    np.testing.assert_allclose(back((zero, zero), x)[1], module((zero, zero), x)[1], rtol=1e-6)
    with pytest.raises(eg.InputError, match="Equinox has an LSTM and a GRU"):
        eg.to_equinox(eg.RNN(2, 3, key=key))
    with pytest.raises(eg.InputError, match="only the LSTM is one of Flax's"):
        eg.to_flax(eg.RNN(2, 3, key=key))


@pytest.mark.parametrize("make", [equinox_gru, flax_gru], ids=["converted", "as it is"])
def test_the_kronecker_family_trains_them(make, data):
    """With room for every step it is exact."""
    model = cast(eg.Model(make(jax.random.key(0)), eg.Linear(UNITS, 2, key=jax.random.key(1))), jnp.float64)
    _, gradients = eg.gradients(model, eg.OK(rank=2, window=STEPS), *data, key=jax.random.key(3))
    assert_close(jax.tree.map(lambda a: a.sum(0), gradients), reference(model, *data), 1e-10)
