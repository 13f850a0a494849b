"""What every estimator promises on every cell; the registry is tests/helpers.py."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core import driver
from evergrad._core.linearize import initial_state, linearize
from evergrad._core.model import check_sequence
from evergrad._core.parameters import repeated
from evergrad._core.sources import Data, Sequence
from tests.helpers import BATCH, ESTIMATORS, PAIRS, cast, crossed, has_window, make_data, make_model, with_window

STEPS = 7


def among_the_first(name, cell):
    first = name in ("rtrl", "tbptt", "uoro", "kf", "ok", "ktp", "snap", "artbp", "dni") and cell == "rhn"
    return first or (name, cell) in (("rtrl", "reset-before-gru"), ("kernl", "rnn"))


def variants(cells):
    """Every estimator with these cells, and with a window of 2 on two that differ most."""
    for name, cell in PAIRS:
        if cell in cells or (name, cell) == ("kernl", "rnn"):
            marks = () if among_the_first(name, cell) else pytest.mark.slow
            yield pytest.param(ESTIMATORS[name], cell, id=f"{name}-{cell}", marks=marks)
        if has_window(ESTIMATORS[name]) and cell in ("lstm", "reset-before-gru"):
            marks = () if (name, cell) == ("ok", "lstm") else pytest.mark.slow
            yield pytest.param(with_window(ESTIMATORS[name], 2), cell, id=f"{name}-window-{cell}", marks=marks)


EVERY, TRAINED = crossed(PAIRS, among_the_first), list(variants(["rhn", "reset-before-gru"]))


@pytest.mark.parametrize(("name", "cell"), EVERY)
def test_gradient_is_the_contraction_of_the_influence(name, cell):
    estimator, cell = ESTIMATORS[name], make_model(cell).cell
    seeds = itertools.count()
    carried = jax.tree.map(
        lambda a: jax.random.normal(jax.random.key(next(seeds)), (BATCH, *a.shape)),
        jax.eval_shape(estimator.influence.init, cell),
    )
    delta = jax.random.normal(jax.random.key(99), (BATCH, initial_state(cell).size))

    @eqx.filter_jit
    def both(carried, delta):
        influence = jax.vmap(estimator.influence.materialise, (0, None), axis_size=BATCH)(carried, cell)
        contracted = jax.tree.map(lambda a: jnp.tensordot(delta, a, 2), influence)
        return estimator.influence.contract(carried, cell, delta), contracted

    for a, b in zip(*map(jax.tree.leaves, both(carried, delta)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(("name", "cell"), EVERY)
def test_structure_and_dtype_are_kept(name, cell):
    """In float32 with x64 on, where a stray float64 would show."""
    dtype = jnp.float32
    estimator, cell = ESTIMATORS[name], cast(make_model(cell).cell, dtype)
    carried = jax.eval_shape(estimator.influence.init, cell)
    state, x = initial_state(cell), jnp.zeros(cell.inputs, dtype)
    _, memory = jax.eval_shape(linearize, cell, state, x, jnp.zeros((), bool))
    key = jax.random.key(0)
    for k in (1, 3):
        memories = jax.tree.map(lambda a, k=k: jax.ShapeDtypeStruct((k, *a.shape), a.dtype), memory)
        assert jax.eval_shape(estimator.influence.absorb, carried, repeated(cell, k), memories, key) == carried
    assert all(a.dtype == dtype for a in jax.tree.leaves(carried))
    rows = jax.tree.leaves(jax.eval_shape(estimator.influence.materialise, carried, cell))
    assert all(a.shape[0] == state.size and a.dtype == dtype for a in rows)


@pytest.mark.parametrize(("estimator", "cell"), TRAINED)
def test_online_training(estimator, cell):
    """One learner shows: `run` twice traces once, `step` gives the same numbers, a reset cuts, a stream is alone."""
    model = make_model(cell, scale=1.5)
    xs, ys, resets = make_data(STEPS, resets=0.2)
    resets[4] = True
    traces = []

    def count(updates, params):
        traces.append(1)
        return jax.tree.map(lambda a: -0.01 * a, updates)

    learner = eg.Learner(model, estimator, optax.stateless(count), clip=1.0)
    traces.clear()  # an optimiser is tried when a learner is made
    state, out = learner.run(learner.init(batch=BATCH, key=jax.random.key(1)), xs, ys, resets)
    again, _ = learner.run(learner.init(batch=BATCH, key=jax.random.key(1)), xs, ys, resets)
    assert len(traces) == 1
    assert eqx.tree_equal(state, again)

    single = learner.init(batch=BATCH, key=jax.random.key(1))
    for t in range(STEPS):
        single, one = learner.step(single, xs[t], ys[t], resets[t])
        np.testing.assert_allclose(one.losses, out.losses[t], rtol=1e-12)
        np.testing.assert_allclose(one.predictions, out.predictions[t], rtol=1e-12)
    assert len(traces) == 2
    numbers = [jax.tree.leaves(eqx.filter(s, eqx.is_inexact_array)) for s in (single, state)]
    for a, b in zip(*numbers, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("estimator", "cell"), TRAINED)
def test_a_reset_cuts_and_streams_are_apart(estimator, cell):
    """What came before a reset, and what other streams are fed, changes no bit of the gradients after it."""
    model = make_model(cell, scale=1.5)
    xs, ys, resets = make_data(STEPS)
    resets[3] = True
    key = jax.random.key(1)
    weights = np.ones((STEPS, BATCH))
    weights[:, 1] = 0  # only stream 0 teaches
    one = eg.gradients(model, estimator, xs, ys, resets, weights=weights, key=key)
    other = xs.copy()
    other[:3] = (xs[:3] + 1) % 3  # another past for both streams
    other[3:, 1] = (xs[3:, 1] + 1) % 3  # and for stream 1 another future
    two = eg.gradients(model, estimator, other, ys, resets, weights=weights, key=key)
    late = 3 + estimator.past.delay  # a stride may still hold losses from before the reset
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a[late:], b[late:], rtol=1e-9, atol=1e-13)
    assert float(abs(one[0][:3] - two[0][:3]).max()) > 1e-6


@pytest.mark.parametrize("estimator", [eg.OK(rank=1, window=2, mix="signs"), eg.UORO(), eg.KTP(rank=2)], ids=repr)
def test_gradients_inside_jit_and_under_vmap(estimator):
    model = make_model("rhn", scale=1.5)
    xs, ys, resets = make_data(STEPS)
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.jit(jax.vmap(lambda k: eg.gradients(model, estimator, xs, ys, resets, key=k)[1].cell.weight))(keys)
    for key, weight in zip(keys, many, strict=True):
        one = eg.gradients(model, estimator, xs, ys, resets, key=key)[1].cell.weight
        np.testing.assert_allclose(weight, one, rtol=1e-9, atol=1e-12)
    assert float(abs(many[0] - many[1]).max()) > 0


def test_draws_depend_on_the_stream_alone():
    """Streams exchanged, with their keys, give the same influences exchanged."""
    model, estimator = make_model("rhn", scale=1.5), eg.UORO()
    source = Sequence(Data(*check_sequence(model, *make_data(STEPS), None)))
    swapped = jax.tree.map(lambda a: a[:, ::-1], source)

    def carried(state, source):
        first = jnp.zeros((), jnp.int32)

        def nothing(state, results, t, gradient, steps, target):
            return (state, results)

        def keep(out):
            return out.losses

        return driver.drive(estimator, state, source, first, STEPS, keep=keep, consume=nothing)[0].track.carried

    state = driver.start(model, estimator, BATCH, jax.random.key(0))
    mirrored = eqx.tree_at(lambda s: s.keys, state, state.keys[::-1])
    for a, b in zip(jax.tree.leaves(carried(state, source)), jax.tree.leaves(carried(mirrored, swapped)), strict=True):
        np.testing.assert_allclose(a, b[::-1], atol=1e-13)


def test_an_influence_starts_from_its_init(monkeypatch):
    kind, init = type(eg.KF().influence), type(eg.KF().influence).init

    def ones(self, cell):
        return jax.tree.map(jnp.ones_like, init(self, cell))

    monkeypatch.setattr(kind, "init", ones)
    model = make_model("rhn")
    carried = driver.begun(eg.KF(), model, 3).carried
    for ours, one in zip(jax.tree.leaves(carried), jax.tree.leaves(ones(eg.KF().influence, model.cell)), strict=True):
        assert ours.shape == (3, *one.shape)
        assert (ours == 1).all()
