"""Targets that come late: a whole series in one loop is what samples one by one are."""

import itertools

import numpy as np
import pytest

import evergrad as eg
from evergrad.bench.streams.validate import validate
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor
from tests.helpers import crossed

T = 60
WAVE = np.sin(np.arange(T + 8) / 3) + np.random.default_rng(0).normal(size=T + 8) / 5
ESTIMATORS = [eg.OK(rank=2, window=3), eg.TBPTT(horizon=4, stride=2)]


def settings(estimator):
    return {"units": 3, "cell": "lstm", "seed": 0, "estimator": estimator}


def one_by_one(model, targets, delay):
    """Predictions, and the model once it has learned the last targets too."""
    features = [{0: v} for v in WAVE[:T].tolist()]
    said, _ = validate(model, features, targets, delay)
    for t in range(T - delay, T) if delay else ():
        model.learn_one(features[t], targets[t])
    return said, model.predict(WAVE[T : T + 2, None])


def every_delay_once(delay, estimator):
    return isinstance(estimator, eg.TBPTT) == (delay == 1)


@pytest.mark.parametrize(
    ("delay", "estimator"),
    crossed(itertools.product([1, 2, 7], ESTIMATORS), every_delay_once, lambda delay, e: f"{delay}-{type(e).__name__}"),
)
def test_late_numbers_in_one_loop(delay, estimator):
    targets = WAVE[delay : T + delay]
    said, after = one_by_one(OnlineRNNRegressor(**settings(estimator)), targets.tolist(), delay)
    model = OnlineRNNRegressor(**settings(estimator))
    np.testing.assert_allclose(model.run(WAVE[:T, None], targets, delay=delay), said, atol=1e-9)
    np.testing.assert_allclose(model.predict(WAVE[T : T + 2, None]), after, atol=1e-9)


def test_late_labels_in_one_loop():
    targets = (WAVE[4 : T + 4] > 0).tolist()
    said, after = one_by_one(OnlineRNNClassifier(**settings(ESTIMATORS[0])), targets, 4)
    model = OnlineRNNClassifier(**settings(ESTIMATORS[0]))
    assert model.run(WAVE[:T, None], targets, delay=4).tolist() == said
    assert model.predict(WAVE[T : T + 2, None]).tolist() == after.tolist()


def test_nothing_of_a_target_is_known_before_its_time():
    targets, other = WAVE[5 : T + 5], WAVE[5 : T + 5].copy()
    other[30] = 99.0
    said = [OnlineRNNRegressor(**settings(ESTIMATORS[0])).run(WAVE[:T, None], y, delay=5) for y in (targets, other)]
    assert np.array_equal(said[0][:35], said[1][:35])
    assert said[0][35] != said[1][35]


def test_more_than_can_wait_are_refused():
    with pytest.raises(eg.InputError, match="no more than 64 samples can wait"):
        OnlineRNNRegressor().run(WAVE[:T, None], WAVE[:T], delay=65)
