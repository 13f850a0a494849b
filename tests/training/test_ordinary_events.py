"""No NaN, in float32, from what every long run meets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from tests.helpers import ESTIMATORS, cast, crossed, has_window, make_data, make_model, with_window

KEY = jax.random.key(0)
MANY = {name: e for name, e in ESTIMATORS.items() if has_window(e) and name != "kernl"}  # which has no gated cells


def finite(tree):
    return all(bool(jnp.isfinite(a).all()) for a in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def trained(model, estimator, data, rate=1e-3, **settings):
    learner = eg.Learner(cast(model, jnp.float32), estimator, optax.adam(rate), **settings)
    state, out = learner.run(learner.init(batch=data[0].shape[1], key=KEY), *data)
    return finite((state, out))


def is_plain(name):
    """Not a variant of another."""
    return name not in ("kf-avg", "kf-approx", "ok-signs", "b-ok")


@pytest.mark.parametrize("window", crossed([0, 2], lambda window: window > 0))
@pytest.mark.parametrize("name", crossed(MANY, is_plain))
def test_resets_at_every_other_step_and_all_at_once(name, window):
    xs, ys, resets = make_data(60, resets=0.5)
    resets[10:15] = True
    assert trained(make_model("lstm"), with_window(MANY[name], window), (xs, ys, resets))


@pytest.mark.parametrize("name", crossed(MANY, is_plain))
def test_a_stream_of_identical_symbols(name):
    zeros = np.zeros((5000, 2), int)
    estimator = with_window(MANY[name], 4) if name in ("ok", "ok-signs", "b-ok", "rtrl") else MANY[name]
    assert trained(make_model("rhn"), estimator, (zeros, zeros, None))


@pytest.mark.parametrize("mix", crossed(["signs", "sampling", "truncate"], lambda mix: mix != "truncate"))
@pytest.mark.parametrize("window", [0, 3])
def test_more_rank_than_steps_and_identical_regressors(mix, window):
    zeros = np.zeros((12, 2), int)
    assert trained(make_model("rnn", units=16), eg.OK(rank=15, window=window, mix=mix), (zeros, zeros, None))


def all_on_one_and_one_on_all(name, cell):
    return is_plain(name) and (cell == "rhn" or name == "ok")


@pytest.mark.parametrize(
    ("name", "cell"),
    crossed(
        [(n, c) for n in ("ok", "ok-signs", "kf", "ktp", "uoro") for c in ("rhn", "lstm", "gru")],
        all_on_one_and_one_on_all,
    ),
)
def test_saturated_gates(cell, name):
    model = make_model(cell, scale=1e4)
    assert trained(model, MANY[name], make_data(40, resets=0.1), clip=1.0)


def test_a_cell_that_has_learned_nothing_from_zero_weights():
    model = jax.tree.map(lambda a: jnp.zeros_like(a) if eqx.is_inexact_array(a) else a, make_model("gru"))
    for estimator in (eg.RTRL(), eg.UORO(), eg.KF(diagonal_rank=2), eg.OK(rank=2, window=2), eg.KTP(rank=2)):
        assert trained(model, estimator, make_data(12))
