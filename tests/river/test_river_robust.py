"""Wild values at the start, units that change, sizes near the edge of float32: nothing spoils a scale for long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNRegressor, experts, robust, scaler

SWING = np.zeros(1001)
for t, noise in enumerate(np.random.default_rng(1).normal(size=1000)):
    SWING[t + 1] = -0.7 * SWING[t] + 0.4 * noise
SWING = np.cumsum(SWING) * 0.2 + 20


def errors(X, y, truth=None):
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    return np.abs(model.run(X, y) - (y if truth is None else truth))


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.6, 1.0])
def test_what_is_usual_is_the_median_or_that_of_the_others(zeros):
    """By counting who is smaller, against numpy's, with equal values among them; nothing of what is not there."""
    rng = np.random.default_rng(0)
    sizes = np.round(np.abs(rng.normal(size=(200, robust.KEPT))), 1) * (rng.random((200, robust.KEPT)) >= zeros)
    there = rng.random(sizes.shape) < rng.random((200, 1))

    def median(values):
        return np.median(values) if len(values) else 0.0

    for found, row, known in zip(np.asarray(robust.usual_size(sizes, there)), sizes, there, strict=True):
        assert found == pytest.approx(median(row[known]) or median(row[known & (row > 0)]), abs=1e-12)


@pytest.mark.parametrize("place", [1, 4, 20, 28])
def test_a_wild_target_among_the_first_is_taken_back(place):
    """-9999 for a missing value was not recovered from in 4,000 samples."""
    X, y = SWING[:-1, None], SWING[1:].copy()
    usual = errors(X, y)
    y[place] = -9999
    assert errors(X, y, SWING[1:])[60:].mean() < 1.1 * usual[60:].mean()


@pytest.mark.parametrize("place", [0, 3, 28])
def test_a_wild_feature_among_the_first_is_taken_back(place):
    X = np.random.default_rng(0).normal(size=(400, 1))
    y = 3 * X[:, 0]
    usual = errors(X, y)
    X[place] = -9999
    found = errors(X, y)
    assert found[60:].mean() < 1.5 * usual[60:].mean() + 0.02
    if place == 28:
        # soon after it, before the newest 30 values are without it too and the scale would begin anew by itself
        assert found[32:58].mean() < 1.5 * usual[32:58].mean() + 0.1


@pytest.mark.parametrize("place", [0, 3, 20])
def test_a_wild_value_among_the_first_does_not_make_the_others_look_equal(place):
    values = np.random.default_rng(0).normal(size=(30, 1))
    values[place] = -9999
    known, sizes = scaler.start(1), []
    update, standardise = jax.jit(scaler.update), jax.jit(scaler.standardise)
    for value in jnp.asarray(values):
        sizes.append(float(jnp.abs(standardise(known, value))[0]))
        known = update(known, value)
    assert 0.3 < np.mean(sizes[place + 5 :]) < 1.5, "in standard deviations"


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_a_change_of_unit_is_followed_within_a_hundred_samples(unit):
    """Downward it took 500 and more."""
    y = SWING * np.where(np.arange(1001) < 600, 1, unit)
    changed, usual = errors(y[:-1, None], y[1:]), errors(SWING[:-1, None], SWING[1:])
    assert changed[700:].mean() < 1.1 * unit * usual[700:].mean()


@pytest.mark.parametrize("unit", [1e-20, 1e-30, 1e12])
def test_sizes_do_not_matter(unit):
    """Squares of 1e-20 are below what float32 holds; these are float64, so that the scaler is asked in float32 itself."""
    values = jnp.asarray(unit * np.random.default_rng(0).normal(size=(100, 1)), jnp.float32)
    known = jax.tree.map(lambda a: a.astype(jnp.float32), scaler.start(1))
    for value in values:
        known = jax.jit(scaler.update)(known, value)
    assert float(known.spread[0]) == pytest.approx(float(jnp.std(values / unit) * unit), rel=0.1)
    big, small = errors(SWING[:300, None], SWING[1:301]), errors(unit * SWING[:300, None], unit * SWING[1:301])
    assert small.mean() == pytest.approx(unit * big.mean(), rel=0.02)


def test_the_first_values_robustly():
    values = np.random.default_rng(0).normal(size=30)
    count = jnp.asarray(30.0)
    centre, spread = robust.centre_and_spread(jnp.asarray(values), count)
    assert centre == pytest.approx(values.mean())
    assert spread == pytest.approx(values.std())
    values[3] = -9999
    centre, spread = robust.centre_and_spread(jnp.asarray(values), count)
    assert abs(centre) < 0.5
    assert 0.5 < spread < 2.5
    assert 0.5 < robust.mean_size(jnp.abs(jnp.asarray(values)), count) < 2
    rare = jnp.asarray([0.0] * 29 + [1.0])
    assert robust.centre_and_spread(rare, count)[0] == pytest.approx(1 / 30), "one in thirty is no wild value"


def test_what_trends_keeps_its_scale():
    known = scaler.start(1)
    update = jax.jit(scaler.update)
    for t in range(3000):
        known = update(known, jnp.full(1, float(t)))
    assert known.spread[0] > 300


def mixed(told, y):
    """What the mixture says before each target, and its last shares."""

    def step(mixture, sample):
        told, y = sample
        return experts.learn(mixture, told, y, jnp.ones(()), jnp.zeros(())), experts.combine(mixture, told)

    mixture, said = jax.lax.scan(step, experts.start(), (jnp.asarray(told), jnp.asarray(y)))
    return np.asarray(said), experts.shares(mixture)


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_mixture_loses_little_beside_the_best_expert(best):
    rng = np.random.default_rng(best)
    y = rng.normal(size=4000)
    told = np.stack([np.zeros(4000), *rng.normal(size=(2, 4000))], axis=1)
    told[:, best] = 0.5 * y if best else 0 * y
    said, shares = mixed(told, y)
    loss = np.abs(told - y[:, None]).mean(0)
    assert np.abs(said - y).mean() < 1.02 * loss[best]
    assert shares.argmax() == best


def test_the_mixture_follows_a_change_of_who_is_best_and_a_wild_target_changes_no_shares():
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    told = np.stack([np.zeros(4000), 0.6 * y, rng.normal(size=4000)], axis=1)
    told[2000:, 1:] = told[2000:, :0:-1]
    said, shares = mixed(told, y)
    assert np.abs(said - y)[-500:].mean() < 1.05 * np.abs(0.4 * y)[-500:].mean()
    y[-1] = 1e9
    np.testing.assert_allclose(mixed(told, y)[1], shares, atol=0.02)


def test_late_targets_of_what_cannot_be_foretold_cost_hardly_more_than_persistence():
    """A random walk, 24 samples ahead: the linear part and the network alone are worse than persistence."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=900))
    model, said = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()), []
    for t in range(876):
        if t >= 24:
            model.learn_one({"v": walk[t - 24]}, walk[t])
        said.append(model.predict_one({"v": walk[t]}))
    ours = np.abs(np.array(said) - walk[24:])[24:].mean()
    assert ours < 1.01 * np.abs(walk[:-24] - walk[24:])[24:].mean()
