"""Influences that are kept in half the bytes, rounded at random."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core import rounded_influence, rounding
from evergrad._core.linearize import linearize
from evergrad._core.parameters import repeated
from evergrad._core.rounding import rounded_at_random
from evergrad._tasks.copy import Copy
from evergrad.lab.injected import Fold, _advanced, _at_fold
from evergrad.lab.noise import inner, start
from tests.helpers import cast, make_cell, make_data, make_model

DRAWS, CUT = 20_000, 5.0  # |z| above 5 in one of a few hundred numbers: one in some thousand tests by chance


def test_all_outcomes_of_a_rounding_have_the_number_for_their_mean(monkeypatch):
    """Every number of 16 digits once: what is added to the digits that are dropped."""
    given = jnp.asarray([1.0, 1.001, -3.14159, 2e-30, -1e30, 0.0, 1 / 3, 2**-126], jnp.float32)
    monkeypatch.setattr(rounding, "_random_bits", lambda shape, key: jnp.uint32(key))
    every = jnp.arange(1 << 16, dtype=jnp.uint32) << 16
    outcomes = jax.vmap(lambda noise: rounded_at_random(given, jnp.bfloat16, noise))(every)
    np.testing.assert_allclose(np.asarray(outcomes, np.float64).mean(0), np.asarray(given, np.float64), rtol=1e-12)
    assert all(len(np.unique(np.asarray(column, np.float32))) <= 2 for column in outcomes.T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_have_the_number_for_their_mean(dtype):
    given = jnp.asarray(np.random.default_rng(0).normal(size=50), dtype)
    draw = jax.jit(jax.vmap(lambda key: rounded_at_random(given, jnp.bfloat16, key)))
    draws = np.asarray(draw(jax.random.split(jax.random.key(0), DRAWS)), np.float64)
    error = draws.std(0) / np.sqrt(DRAWS)
    z = (draws.mean(0) - np.asarray(given, np.float64)) / error
    assert np.abs(z).max() < CUT
    # neighbours in an array are rounded each for itself
    parts = (draws - draws.mean(0)) / draws.std(0)
    assert np.abs(parts.T @ parts / DRAWS - np.eye(50)).max() < CUT / np.sqrt(DRAWS)


def test_what_is_not_finite_stays_and_what_fits_is_not_touched():
    given = jnp.asarray([np.inf, -np.inf, np.nan, 1.5, -0.0], jnp.float32)
    found = np.asarray(rounded_at_random(given, jnp.bfloat16, jax.random.key(0)), np.float32)
    np.testing.assert_array_equal(found, given)


def influences(estimator, cell, steps, draws):
    """The influence after some steps, for many draws, as rows; and the exact one."""
    xs = np.random.default_rng(1).normal(size=(steps, cell.inputs))

    def memories(cell):
        def see(state, x):
            return linearize(cell, state, x, jnp.zeros((), bool))

        state = jnp.zeros(jax.eval_shape(lambda: eg.RTRL().influence.init(cell)).weight.shape[0])
        return jax.lax.scan(see, state, jnp.asarray(xs, state.dtype))[1]

    block = max(1, estimator.window)

    def run(influence, key, block):
        found = jax.tree.map(lambda a: a.reshape(-1, block, *a.shape[1:]), memories(cell))

        def fold(carried, given):
            memory, key = given
            return influence.absorb(carried, repeated(cell, block), memory, key), None

        keys = jax.random.split(key, steps // block)
        carried = jax.lax.scan(fold, influence.init(cell), (found, keys))[0]
        return influence.materialise(carried, cell).weight.reshape(-1)

    exact = eqx.filter_jit(lambda: run(eg.RTRL().influence, jax.random.key(0), 1))()
    many = eqx.filter_jit(jax.vmap(lambda key: run(estimator.influence, key, block)))
    return np.asarray(many(jax.random.split(jax.random.key(2), draws))), np.asarray(exact)


@pytest.mark.parametrize(
    "estimator",
    [
        eg.RTRL(dtype=jnp.bfloat16),
        eg.OK(rank=2, window=2, dtype=jnp.bfloat16),
        pytest.param(eg.OK(rank=2, window=0, dtype=jnp.bfloat16), marks=pytest.mark.slow),
        pytest.param(eg.KF(copies=2, dtype=jnp.bfloat16), marks=pytest.mark.slow),
    ],
    ids=["rtrl", "ok-window", "ok", "kf"],
)
def test_the_influence_is_right_in_the_mean(estimator):
    draws, exact = influences(estimator, make_cell("lstm"), 6, DRAWS)
    spread = draws.std(0)
    z = (draws.mean(0) - exact)[spread > 0] / (spread[spread > 0] / np.sqrt(DRAWS))
    assert np.abs(z).max() < CUT
    np.testing.assert_allclose(draws.mean(0)[spread == 0], exact[spread == 0], atol=1e-12)


def slow_influence(monkeypatch, *, nearest):
    """Of a unit that forgets nothing: 4,000 times the same little more."""
    if nearest:
        monkeypatch.setattr(rounded_influence, "rounded_at_random", lambda x, dtype, key: x.astype(dtype))

    class Sum(eg.KroneckerCell):
        def activate(self, z, state):
            return (state[0] + 1e-3 * z[0],)

    cell = cast(Sum(1, 1, key=jax.random.key(0)), jnp.float32)
    cell = eqx.tree_at(lambda c: c.weight, cell, jnp.zeros_like(cell.weight))
    influence = eg.RTRL(dtype=jnp.bfloat16).influence

    @jax.jit
    def run(key):
        def step(carried, key):
            _, memory = linearize(cell, jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32), jnp.zeros((), bool))
            memories = jax.tree.map(lambda a: a[None], memory)
            return influence.absorb(carried, repeated(cell, 1), memories, key), None

        carried = jax.lax.scan(step, influence.init(cell), jax.random.split(key, 4000))[0]
        return influence.materialise(carried, cell).weight[0, 0, 0]

    return np.asarray(jax.vmap(run)(jax.random.split(jax.random.key(0), 200)), np.float64), 4.0


def test_what_comes_in_small_parts_is_not_lost(monkeypatch):
    draws, exact = slow_influence(monkeypatch, nearest=False)
    assert abs(draws.mean() - exact) < CUT * draws.std() / np.sqrt(len(draws))
    assert draws.std() / np.sqrt(len(draws)) < 0.01 * exact


def test_rounding_to_the_nearest_would_lose_it(monkeypatch):
    draws, exact = slow_influence(monkeypatch, nearest=True)
    assert draws.mean() < 0.2 * exact


@pytest.mark.parametrize(
    ("estimator", "wide"),
    [
        (eg.OK(rank=8, window=4, dtype=jnp.bfloat16), eg.OK(rank=8, window=4)),
        (eg.RTRL(window=4, dtype=jnp.bfloat16), eg.RTRL(window=4)),
    ],
    ids=["ok", "rtrl"],
)
def test_half_the_bytes(estimator, wide):
    def bytes_of(estimator):
        carried = jax.eval_shape(estimator.influence.init, cast(make_cell("rhn", units=64), jnp.float32))
        return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(carried))

    assert 0.49 < bytes_of(estimator) / bytes_of(wide) < 0.52


def test_the_planner_counts_them():
    cell = cast(make_cell("rhn", units=128), jnp.float32)
    narrow, wide = (
        eg._core.planner.predict(cell, eg.OK(rank=8, window=16, dtype=dtype), batch=32, outputs=3)
        for dtype in (jnp.bfloat16, None)
    )
    assert 0.45 < narrow.bytes / wide.bytes < 0.75


def test_some_streams_at_a_time_is_all_at_once(monkeypatch):
    """The same keys, the same numbers: how streams are put together changes nothing."""
    model = cast(make_model("lstm", units=6), jnp.float32)
    xs, ys, resets = make_data(9, batch=4, resets=0.1)
    learner = eg.Learner(model, eg.OK(rank=3, window=2, dtype=jnp.bfloat16), optax.adam(1e-2))

    def weights(small):
        monkeypatch.setattr("evergrad._core.streamwise.SMALL", small)
        state = eg.Learner(learner.model, learner.estimator, learner.optimiser).init(batch=4, key=jax.random.key(0))
        state, _ = learner.run(state, xs, ys, resets)
        return state.model.cell.weight

    np.testing.assert_allclose(weights(1 << 16), weights(1), rtol=1e-4)


def test_it_is_saved_and_read(tmp_path):
    model = cast(make_model("rhn"), jnp.float32)
    learner = eg.Learner(model, eg.OK(rank=2, window=2, dtype=jnp.bfloat16), optax.adam(1e-2))
    xs, ys, resets = make_data(7)
    state, _ = learner.run(learner.init(batch=2, key=jax.random.key(0)), xs, ys, resets)
    again = eg.load(eg.save(tmp_path / "state.npz", state), learner)
    for a, b in zip(jax.tree.leaves(state.track), jax.tree.leaves(again.track), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


def test_exactness_is_not_claimed_and_small_traces_are_left_as_they_are():
    narrow, dense, local = eg.RTRL(dtype="bfloat16"), make_cell("rnn"), eg.MinGRU(2, 3, key=jax.random.key(0))
    assert narrow.unbiased
    assert not narrow.exact_for(dense)
    assert narrow.exact_for(local)
    assert repr(eg.OK(rank=2)) == "OK(rank=2, window=16, mix='sampling')"
    assert eg.OK(dtype=jnp.bfloat16) == eg.OK(dtype="bfloat16")


@pytest.mark.parametrize("dtype", [jnp.float16, "int8", "narrow", jnp.float32])
def test_other_types_are_refused(dtype):
    with pytest.raises(eg.InputError, match=r"dtype=None\) or in jnp.bfloat16"):
        eg.OK(dtype=dtype)


def test_its_noise_is_small_beside_that_of_ok_on_a_trained_network():
    """What rounding adds to a fold, beside what the fold itself adds, for the same vectors of signs."""
    model, data = trained()
    cell, narrow = model.cell, eg.OK(rank=4, window=4, dtype=jnp.bfloat16)
    state = start(model, narrow, 1, jax.random.key(1))
    fold = Fold(narrow, cell, *_at_fold(narrow, model, _advanced(narrow, state, data), None))
    wide = Fold(eg.OK(rank=4, window=4), cell, narrow.influence._widened(fold.carried, cell), fold.memories)

    @jax.jit
    def squares(key):
        sign_key, key = jax.random.split(key)
        v = jax.random.rademacher(sign_key, (model.cell.units,), float)
        kept, exact = wide.after(v, jax.random.split(key)[0]), wide.before(v)
        rounding = jax.tree.map(jnp.subtract, fold.after(v, key), kept)
        return inner(rounding, rounding), inner(*2 * (jax.tree.map(jnp.subtract, kept, exact),))

    rounding, folding = jax.lax.map(squares, jax.random.split(jax.random.key(3), 256))
    assert 0 < rounding.mean() < 0.01 * folding.mean()


def trained():
    """On the copy task, until strings of some length are asked for; and the next steps of a stream of it."""
    key, task = jax.random.key(0), Copy(length=8)
    cell = eg.RHN(4, 24, key=key, initial="fan_in")
    model = eg.Model(cell, eg.Softmax(24, 4, key=key, initial="fan_in"))
    learner = eg.Learner(model, eg.TBPTT(horizon=20, stride=1), optax.adam(5e-3), clip=1.0)
    state = learner.init(batch=16, key=key)
    state, position, losses = learner.follow(state, task, task.start(batch=16, key=key), 3000)
    assert losses[-200:].mean() < 0.5 * losses[:200].mean()
    data, since = [], 0
    while len(data) < 40 or since < 14:  # then the fold is in the middle of a string
        each, position = task.emit(position)
        data.append(jax.tree.map(lambda a: a[:1], each))
        since = 0 if each.reset[0] else since + 1
    return state.model, jax.tree.map(lambda *a: jnp.stack(a), *data)
