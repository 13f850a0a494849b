"""A step, or a whole stride, without any target: the hidden state and the influence go on, and nothing is learned."""

import functools

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNRegressor
from tests.core.test_devices import assert_close, run
from tests.helpers import make_data, make_model

KEY = jax.random.key(0)
ESTIMATORS = {
    "rtrl": eg.RTRL(),
    "ok": eg.OK(rank=2, window=3),
    "tbptt-1": eg.TBPTT(horizon=3, stride=1),
    "tbptt-4": eg.TBPTT(horizon=4, stride=4),
}


def trained(state):
    return eqx.filter((state.model, state.optimiser), eqx.is_array)


@functools.cache
def learner_of(name):
    adam = optax.adam(optax.exponential_decay(0.01, 10, 0.5))
    return eg.Learner(make_model("rhn"), ESTIMATORS[name], adam, clip=1.0)


def taught(name):
    """A learner and its state after eight steps, so that Adam has a momentum."""
    learner = learner_of(name)
    xs, ys, resets = make_data(8)
    return learner, learner.run(learner.init(batch=2, key=KEY), xs, ys, resets)[0]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_is_learned_without_a_target(name):
    learner, state = taught(name)
    before, hidden = jax.device_get(trained(state)), np.asarray(state.hidden)
    xs, ys, resets = make_data(4, seed=1)
    state, out = learner.run(state, xs, ys, resets, weights=np.zeros((4, 2)))
    assert eqx.tree_equal(before, jax.device_get(trained(state)))  # the optimiser's count of steps too
    assert np.abs(np.asarray(state.hidden) - hidden).max() > 1e-3
    assert int(state.time) == 12
    assert not out.losses.any()
    state, _ = learner.run(state, xs, ys, resets)
    assert not eqx.tree_equal(before, jax.device_get(trained(state)))


@pytest.mark.parametrize("name", ["rtrl", "ok"])
def test_step_by_step_it_is_the_same(name):
    learner, state = taught(name)
    before = jax.device_get(trained(state))
    xs, ys, _ = make_data(4, seed=1)
    for x, y in zip(xs, ys, strict=True):
        state, _ = learner.step(state, x, y, weights=np.zeros(2))
    assert eqx.tree_equal(before, jax.device_get(trained(state)))


def test_the_steps_without_a_target_are_in_the_next_gradient():
    """The hidden state and the influence went on: RTRL's next gradient is that of the whole sequence."""
    model = make_model("rhn")
    xs, ys, _ = make_data(6)
    weights = np.zeros((6, 2))
    weights[-1] = 1
    learner = eg.Learner(model, eg.RTRL(), optax.sgd(1.0))
    state, _ = learner.run(learner.init(batch=2, key=KEY), xs, ys, weights=weights)
    loss = lambda cell: eqx.tree_at(lambda m: m.cell, model, cell).losses(xs, ys, weights=weights)[-1].mean()  # noqa: E731
    step = model.cell.weight - state.model.cell.weight
    np.testing.assert_allclose(step, jax.jit(jax.grad(loss))(model.cell).weight, atol=1e-12)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_stride_with_one_target_is_learned_from_wherever_it_is_and_however_it_is_cut(place, cut):
    xs, ys, resets = make_data(4, seed=1)
    weights = np.zeros((4, 2))
    weights[place, 1] = 1
    ends = []
    for parts in ([slice(0, 4)], [slice(0, cut), slice(cut, 4)]):
        learner, state = taught("tbptt-4")
        before = jax.device_get(trained(state))
        for part in parts:
            if len(xs[part]):
                state, _ = learner.run(state, xs[part], ys[part], resets[part], weights=weights[part])
        assert not eqx.tree_equal(before, jax.device_get(trained(state)))
        ends.append(jax.device_get(trained(state)))
    assert eqx.tree_equal(*ends)


def test_with_lanes_on_four_devices_too():
    """A target on one device is one for all, and none is none."""
    found = run(*(f"some_targets/{name}/{n}" for name in ("ok", "tbptt") for n in (1, 4)))
    for name, updates in (("ok", 30), ("tbptt", 12)):
        one, many = found[f"some_targets/{name}/1"], found[f"some_targets/{name}/4"]
        assert one[".optimiser[0].count"] == many[".optimiser[0].count"] == updates
        assert_close(many, one)


@pytest.mark.parametrize("estimator", [eg.OK(rank=2, window=2), eg.TBPTT(horizon=3, stride=3)], ids=repr)
def test_river_learns_nothing_from_samples_that_go_by(estimator):
    """Predicted, and passed over when the target of a later one comes."""
    model = OnlineRNNRegressor(units=3, seed=0, estimator=estimator)
    rng = np.random.default_rng(0)
    for _ in range(12):
        model.learn_one({"a": float(rng.normal())}, float(rng.normal()))
    inside = lambda session: jax.device_get(trained(session.machine.inside(session.leaves).state))  # noqa: E731
    before, steps = inside(model._session), model._session.taken
    for _ in range(3):
        x = {"a": float(rng.normal())}
        model.predict_one(x)
    session = model._session
    for sample in list(session.pending.samples):
        session._pass(sample)
    assert session.taken == steps + 3
    assert eqx.tree_equal(before, inside(session))
