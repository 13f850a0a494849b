"""Bad input: the message says what was given, why it cannot be, and what to do."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._tasks import Copy
from tests.helpers import SYMBOLS, UNITS, ResetBeforeGRU, make_data, make_model

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_a_user():
    """Without the run-time type checks that the tests switch on, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def refused(match):
    return pytest.raises(eg.InputError, match=match)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: eg.OK(rank=0), r"OK\(rank=0.*rank must be a whole number >= 1"),
        (lambda: eg.OK(rank=2.5), "rank must be a whole number"),
        (lambda: eg.OK(rank=True), "rank must be a whole number"),
        (lambda: eg.OK(window=-1), r"window must be a whole number >= 0"),
        (lambda: eg.OK(mix="sign"), r'mix "sign" is unknown: choose one of signs, sampling, truncate'),
        (lambda: eg.RTRL(window=-1), "window must be"),
        (lambda: eg.UORO(window=-3), "window must be"),
        (lambda: eg.KF(copies=0), "copies must be a whole number >= 1"),
        (lambda: eg.KF(diagonal_rank=0), "diagonal_rank must be"),
        (lambda: eg.KF(window=-1), "window must be"),
        (lambda: eg.KTP(rank=0), "rank must be"),
        (lambda: eg.KTP(window=-1), "window must be"),
        (lambda: eg.TBPTT(horizon=0), "horizon must be a whole number >= 1"),
        (lambda: eg.TBPTT(stride=0), "stride must be a whole number >= 1"),
        (lambda: eg.TBPTT(horizon=5, stride=25), r"beyond the horizon.*TBPTT\(horizon=5, stride=5\)"),
        (lambda: eg.RNN(0, 3, key=KEY), r"RNN\(inputs=0, units=3\).*inputs must be"),
        (lambda: eg.LSTM(3, 0, key=KEY), "units must be a whole number >= 1"),
        (lambda: eg.RHN(3, 3), r"RHN\(inputs=3, units=3\).*no key.*jax.random.key\(0\)"),
        (lambda: eg.RHN(3, 3, key=7), "key=7 is not a JAX key"),
        (lambda: eg.RHN(3, 3, key=KEY, squash="relu"), r'squash="relu".*"sigmoid".*"tanh"'),
        (lambda: eg.RNN(3, 3, key=KEY, initial="zeros"), r'initial="zeros" is unknown'),
        (lambda: eg.Softmax(3, 1, key=KEY), "classes must be a whole number >= 2"),
        (lambda: eg.Softmax(3, 4), "no key"),
        (lambda: eg.Linear(3, 0, key=KEY), "outputs must be"),
        (lambda: eg.Linear(0, 3, key=KEY), "units must be"),
        (lambda: eg.Model(eg.RNN(3, 4, key=KEY), eg.Softmax(5, 3, key=KEY)), "units=4 and the readout units=5"),
        (lambda: eg.Model(3, eg.Softmax(5, 3, key=KEY)), "not a cell"),
        (lambda: eg.Model(eg.RNN(3, 4, key=KEY), 3), r"eg.Softmax or eg.Linear"),
        (lambda: eg.optimal_low_rank(jnp.eye(3), 0, key=KEY), "rank must be"),
        (lambda: eg.optimal_low_rank(jnp.eye(3), 1), "no key"),
        (lambda: eg.optimal_low_rank(jnp.eye(3), 1, key=KEY, method="truncate"), 'choose "signs" or "sampling"'),
        (lambda: eg.optimal_low_rank(jnp.zeros((2, 3, 3)), 1, key=KEY), "one m x n matrix"),
        (lambda: eg.optimal_variance(jnp.eye(3), 0), "rank must be"),
        (lambda: Copy(length=0), "length must be"),
        (lambda: Copy(threshold=2.0), "threshold is in bits"),
        (lambda: Copy(longest=3, length=4), "longest must be"),
        (lambda: Copy().start(batch=2), "no key"),
    ],
)
def test_at_construction(make, match):
    with refused(match):
        make()


def test_positional_settings_are_refused():
    with pytest.raises(TypeError):
        eg.OK(8)


def learner(model=None, estimator=None, optimiser=None, **settings):
    return eg.Learner(model or make_model("rhn"), estimator or eg.RTRL(), optimiser or optax.sgd(0.1), **settings)


@pytest.mark.parametrize(
    ("estimator", "cell", "match"),
    [
        (eg.OK(rank=9), "rhn", r"OK\(rank=9\).*3 units, 7 regressors.*RTRL\(\).*below 7"),
        (eg.KTP(rank=4), "rhn", "rank 3 at most"),
        (eg.KF(diagonal_rank=3), "rhn", "nothing is approximated"),
    ],
)
def test_an_estimator_refuses_a_cell(estimator, cell, match):
    with refused(match):
        learner(make_model(cell), estimator)
    with refused(match):
        eg.gradients(make_model(cell), estimator, *make_data(3), key=KEY)


def test_a_kronecker_cell_with_other_parameters_is_refused():
    class Scaled(eg.KroneckerCell):
        scale: jax.Array

        def __init__(self, inputs, units, *, key):
            eg.KroneckerCell.__init__(self, inputs, units, key=key)
            self.scale = jnp.ones(())

        def activate(self, z, state):
            return (self.scale * jnp.tanh(z[0]),)

    model = eg.Model(Scaled(SYMBOLS, UNITS, key=KEY), eg.Softmax(UNITS, SYMBOLS, key=KEY))
    with refused("2 arrays of real numbers.*`weight` is all"):
        learner(model)


def test_learner_arguments():
    with refused("needs an eg.Model"):
        eg.Learner(3, eg.RTRL(), optax.sgd(0.1))
    with refused("needs an estimator"):
        eg.Learner(make_model("rnn"), "ok", optax.sgd(0.1))
    with refused("needs an Optax optimiser"):
        eg.Learner(make_model("rnn"), eg.RTRL(), 0.1)
    for clip in (0.0, math.inf):
        with refused("above 0 and finite; None does not clip"):
            learner(clip=clip)
    with refused("batch must be"):
        learner().init(batch=0, key=KEY)
    with refused("no key"):
        learner().init(batch=2)
    with refused("no key"):
        eg.gradients(make_model("rnn"), eg.RTRL(), *make_data(3))


def changed(position, value):
    def change(xs, ys, resets):
        data = [xs, ys, resets]
        data[position] = value(data[position])
        return data

    return change


def poke(value):
    def change(a):
        a = a.copy()
        a[1, 0] = value
        return a

    return change


@pytest.mark.parametrize(
    ("readout", "change", "match"),
    [
        ("softmax", changed(0, poke(SYMBOLS)), "x has ids from 0 to 3.*ids run from 0 to 2"),
        ("softmax", changed(0, poke(-1)), "x has ids from -1"),
        ("softmax", changed(1, poke(SYMBOLS)), "y has ids.*`classes` is 3"),
        ("softmax", changed(0, lambda x: x[..., None]), r"ids must have shape \[4, 2\]"),
        ("softmax", changed(0, lambda x: np.zeros((4, 2, 5))), r"inputs=3.*\[4, 2, 3\]"),
        ("softmax", changed(0, lambda x: np.zeros((4, 2, 3), complex)), "integer ids or floating-point"),
        ("softmax", changed(0, lambda x: np.full((4, 2, 3), np.nan)), "NaN or infinite entries, the first at index"),
        ("softmax", changed(1, lambda y: y * 1.0), "needs integer targets"),
        ("softmax", changed(1, lambda y: y[:-1]), r"integer targets of shape \[4, 2\]"),
        ("linear", changed(1, lambda y: y[..., :1]), r"outputs=2 needs floating-point targets of shape \[4, 2, 2\]"),
        ("linear", changed(1, poke(np.inf)), "y has 2 NaN or infinite"),
        ("softmax", changed(2, lambda r: r * 1), "bool array of shape"),
        ("softmax", changed(2, lambda r: r[:, :1]), "bool array of shape"),
    ],
)
def test_data(readout, change, match):
    model = make_model("rhn", readout=readout)
    xs, ys, resets = change(*make_data(4, readout=readout))
    trained = learner(model)
    with refused(match):
        trained.run(trained.init(batch=2, key=KEY), xs, ys, resets)
    with refused(match):
        eg.gradients(model, eg.RTRL(), xs, ys, resets, key=KEY)
    with refused(match):
        model.losses(xs, ys, resets)


@pytest.mark.parametrize(
    "weights", [np.ones((4, 1)), np.full((4, 2), -1.0), np.full((4, 2), np.nan), np.ones((4, 2), int)]
)
def test_weights(weights):
    with refused("weights"):
        make_model("rhn").losses(*make_data(4), weights=weights)


def test_a_batch_cannot_change_under_way():
    trained = learner()
    state = trained.init(batch=2, key=KEY)
    xs, ys, resets = make_data(4, batch=3)
    with refused(r"x has 3 streams.*batch=2"):
        trained.run(state, xs, ys, resets)
    with refused(r"x has 3 streams.*batch=2"):
        trained.step(state, xs[0], ys[0], resets[0])


def test_divergence_names_step_estimator_and_remedy():
    model = make_model("rhn", readout="linear")
    model = eqx.tree_at(lambda m: m.readout.weight, model, model.readout.weight.at[0, 0].set(jnp.inf))
    trained = learner(model, eg.OK(rank=2, window=2))
    with pytest.raises(eg.DivergedError, match=r"step 0 with OK\(rank=2.*lower learning rate") as error:
        trained.run(trained.init(batch=2, key=KEY), *make_data(4, readout="linear"))
    assert error.value.losses.shape == (4, 2)


def test_the_reset_before_gru_trains_with_what_is_left():
    model = eg.Model(ResetBeforeGRU(SYMBOLS, 8, key=KEY), eg.Softmax(8, SYMBOLS, key=KEY))
    xs = np.tile(np.arange(400)[:, None] % 3, (1, 4))
    for estimator in (eg.RTRL(window=2), eg.UORO(window=4), eg.TBPTT(horizon=4, stride=1)):
        trained = eg.Learner(model, estimator, optax.adam(1e-2), clip=1.0)
        _, out = trained.run(trained.init(batch=4, key=KEY), xs[:-1], xs[1:])
        assert float(out.losses[-20:].mean()) < 0.5 * float(out.losses[:20].mean())
