"""Time goes on once a sample, whoever comes first: predict, learn, both, late, or not at all."""

import itertools

import numpy as np
import pandas as pd
import pytest
from river import evaluate, metrics, preprocessing

import evergrad as eg
from evergrad.river import OnlineRNNClassifier, OnlineRNNForecaster, OnlineRNNRegressor
from evergrad.river.pending import KEPT

SERIES = (np.sin(np.arange(200) / 5) + 0.1 * np.random.default_rng(0).normal(size=200)).tolist()


def regressor(**settings):
    return OnlineRNNRegressor(**{"units": 3, "seed": 0, "estimator": eg.RTRL(), **settings})


def steps(model):
    session = model._session
    return int(session.machine.inside(session.leaves).state.time)


def hidden(model):
    return np.asarray(model._session.machine.inside(model._session.leaves).state.hidden)


def test_predicting_or_asking_twice_changes_nothing_of_what_is_learned():
    plain, asked, many = regressor(), regressor(), regressor()
    for a, b in itertools.pairwise(SERIES[:41]):
        x = {"v": a}
        asked.predict_one(x)
        assert many.predict_one(x) == many.predict_one(x)
        for model in (plain, asked, many):
            model.learn_one(x, b)
    assert steps(plain) == steps(asked) == steps(many) == 40
    np.testing.assert_array_equal(hidden(plain), hidden(asked))
    np.testing.assert_array_equal(hidden(plain), hidden(many))


def test_late_targets_teach_the_step_that_was_predicted():
    """With targets k late, the network has taken the same steps, on the same inputs, as its own delayed replay."""
    late = regressor()
    for t in range(30):
        if t >= 4:
            late.learn_one({"v": SERIES[t - 4]}, SERIES[t])
        late.predict_one({"v": SERIES[t]})
    assert steps(late) == 26
    assert len(late._session.pending) == 4
    newest = late._session.pending.samples[-1]
    assert newest.last == SERIES[29], "the last target known when the newest sample was predicted"
    assert late._session.hidden is not None


def test_late_targets_are_learned_as_well_as_can_be():
    """Five ahead: far better than the last known target, which is what an untaught model says."""
    data = [({"v": a}, b) for a, b in zip((SERIES * 5)[:-5], (SERIES * 5)[5:], strict=True)]
    score = evaluate.progressive_val_score(iter(data), regressor(), metrics.MAE(), delay=5).get()
    persistence = np.mean([abs(x["v"] - y) for x, y in data])
    assert score < 0.6 * persistence


def waits(model):
    return len(model._session.pending)


@pytest.mark.parametrize("seen_before", [0, 50])
def test_late_targets_behind_a_scaler_that_moves_teach_the_samples_they_are_for(seen_before):
    """A fresh scaler makes the first samples look alike; a moving one makes targets come with other features."""
    late, scaler, model = 5, preprocessing.StandardScaler(), regressor()
    for v in SERIES[:seen_before]:
        scaler.learn_one({"v": v})
    pipeline, bare = scaler | model, regressor()
    for t in range(60):
        for one in (pipeline, bare):
            if t >= late:
                one.learn_one({"v": SERIES[t - late]}, SERIES[t])
            one.predict_one({"v": SERIES[t]})
    assert steps(model) == steps(bare) == 60 - late
    assert waits(model) == waits(bare) == late
    for ours, theirs in zip(model._session.pending.samples, bare._session.pending.samples, strict=True):
        assert ours.last == theirs.last


def test_late_targets_behind_a_scaler_are_learned_as_well_as_without():
    data = [({"v": a}, b) for a, b in zip((SERIES * 3)[:-5], (SERIES * 3)[5:], strict=True)]
    behind, bare = (
        evaluate.progressive_val_score(iter(data), model, metrics.MAE(), delay=5).get()
        for model in (preprocessing.StandardScaler() | regressor(), regressor())
    )
    assert behind < 1.1 * bare


def test_asking_twice_behind_a_scaler_is_one_step():
    scaler, model = preprocessing.StandardScaler(), regressor()
    pipeline = scaler | model
    for a, b in itertools.pairwise(SERIES[:20]):
        pipeline.predict_one({"v": a})
        pipeline.predict_one({"v": a})
        pipeline.learn_one({"v": a}, b)
        assert waits(model) == 0
    assert steps(model) == 19


def test_asking_twice_leaves_nothing_behind_once_the_target_has_come():
    model = regressor()
    for _ in range(10):
        model.predict_one({"k": "a"})
        model.predict_one({"k": "a"})
        model.learn_one({"k": "a"}, 1.0)
    assert not model._session.pending.passed
    model.predict_one({"k": "b"})
    model.predict_one({"k": "c"})
    model.learn_one({"k": "a"}, 1.0)
    assert waits(model) == 1, "features that were not predicted are taken for the oldest"


def test_equal_samples_with_a_target_each_are_learned_each():
    model = regressor()
    for day in range(3):
        for _ in range(4):
            model.predict_one({"k": "a"})
        for hour in range(4):
            model.learn_one({"k": "a"}, float(hour))
        assert steps(model) == 4 * (day + 1)


def test_equal_samples_in_a_row_are_samples_each():
    model = regressor()
    for t in range(20):
        if t >= 3:
            model.learn_one({"v": 1.0}, float(t))
        model.predict_one({"v": 1.0})
    assert steps(model) == 17, "one a target"
    assert len(model._session.pending) == 3


def test_samples_without_target_go_by_and_are_bounded():
    model = regressor()
    for t in range(KEPT + 10):
        model.predict_one({"v": SERIES[t]})
    assert len(model._session.pending) == KEPT
    assert steps(model) == 10
    before = model._session.machine.inside(model._session.leaves).head.part.count
    assert float(before[0]) == 0, "nothing was learned from them"
    model.learn_one({"v": SERIES[KEPT + 5]}, 1.0)
    assert len(model._session.pending) == 4, "a target settles all before it"
    assert steps(model) == KEPT + 6


def play(model, late):
    for t in range(2 * late + 10):
        if t >= late:
            model.learn_one({"v": SERIES[t - late]}, SERIES[t])
        model.predict_one({"v": SERIES[t]})


@pytest.mark.parametrize("scaled", [False, True])
def test_targets_that_come_too_late_are_warned_of_once(scaled):
    model = preprocessing.StandardScaler() | regressor() if scaled else regressor()
    with pytest.warns(UserWarning, match="64 samples wait at most") as warned:
        play(model, KEPT + 1)
    assert len(warned) == 1


def test_a_target_that_comes_after_a_later_one_is_learned_too():
    model = regressor()
    for t in range(6):
        model.predict_one({"v": SERIES[t]})
    model.learn_one({"v": SERIES[3]}, 1.0)
    assert len(model._session.pending) == 2
    model.learn_one({"v": SERIES[1]}, 2.0)
    assert len(model._session.pending) == 2, "the ones that wait are left alone"
    assert steps(model) == 5


def test_a_whole_series_is_learned_as_if_sample_by_sample():
    X, y = np.array(SERIES[:-1])[:, None], np.array(SERIES[1:])
    settings = {"estimator": eg.OK(rank=2, window=4)}  # both ways of filling and folding a window
    one, whole = regressor(**settings), regressor(**settings)
    predictions = []
    for x, target in zip(X[:, 0].tolist(), y.tolist(), strict=True):
        predictions.append(one.predict_one({0: x}))
        one.learn_one({0: x}, target)
    first, rest = whole.run(X[:50], y[:50]), whole.run(X[50:], y[50:])
    np.testing.assert_allclose(np.concatenate([first, rest]), predictions, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(hidden(whole), hidden(one), atol=1e-4)


def test_nothing_is_known_before_its_time():
    """Predictions up to and at step 20 are the same whatever the targets from step 20 and the features after it."""
    X, y = np.array(SERIES[:40])[:, None], np.array(SERIES[1:41])
    other_X, other_y = X.copy(), y.copy()
    other_X[21:], other_y[20:] = 7 * X[21:] + 3, -5 * y[20:] + 9
    a, b = regressor().run(X, y), regressor().run(other_X, other_y)
    np.testing.assert_array_equal(a[:21], b[:21])
    assert (a[21:] != b[21:]).all()


def test_a_whole_series_of_labels_is_learned_as_if_sample_by_sample():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    one, whole = (OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL()) for _ in range(2))
    one.partial_fit(X[:3], y[:3])
    whole.partial_fit(X[:3], y[:3])
    predictions = []
    for x, label in zip(X[3:].tolist(), y[3:].tolist(), strict=True):
        predictions.append(one.predict_one(dict(enumerate(x))))
        one.learn_one(dict(enumerate(x)), label)
    assert whole.run(X[3:], y[3:]).tolist() == predictions
    np.testing.assert_allclose(hidden(whole), hidden(one), atol=1e-4)


def test_labels_to_come_are_not_predicted_before_their_time():
    X, y = np.random.default_rng(0).normal(size=(40, 1)), np.array(["a"] * 20 + ["b", "c", None, "d"] * 5, object)
    for seed in range(3, 6):
        said = OnlineRNNClassifier(units=3, seed=seed, estimator=eg.RTRL()).run(X, y)
        assert said[:21].tolist() == [None] + ["a"] * 20, "what one by one says while there is one label"
        assert not {"c", "d"} & set(said[:22])
    lanes = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL()).run(X.reshape(20, 2, 1), y.reshape(20, 2))
    assert lanes[:11].tolist() == [[None] * 2] + [["a"] * 2] * 10
    named = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL()).partial_fit(X[:1], [None], classes=["a", "b"])
    assert set(named.run(X, y)) <= {"a", "b", "c", "d"}, "those named before are known"


def test_labels_that_are_all_missing_teach_nothing():
    model = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL())
    assert model.run(np.ones((3, 1)), [None] * 3).tolist() == [None] * 3
    assert steps(model) == 3


def test_the_order_of_columns_does_not_matter():
    X, y = pd.DataFrame({"b": SERIES[:30], "a": SERIES[30:60]}), np.array(SERIES[1:31])
    one, said = regressor(), []
    for x, target in zip(X.to_dict("records"), y.tolist(), strict=True):
        said.append(one.predict_one(x))
        one.learn_one(x, target)
    np.testing.assert_allclose(regressor().run(X, y), said, rtol=1e-6)
    np.testing.assert_array_equal(regressor().run(X[["a", "b"]], y), regressor().run(X, y))


def test_a_forecast_changes_nothing_and_its_first_step_is_the_prediction():
    model = OnlineRNNForecaster(units=3, seed=0, estimator=eg.RTRL())
    assert model.forecast(2) == [0.0, 0.0]
    for y in SERIES[:100]:
        model.learn_one(y)
    before = steps(model)
    short, long = model.forecast(1), model.forecast(10)
    assert short[0] == long[0]
    assert model.forecast(10) == long
    assert steps(model) == before
    assert np.mean(np.abs(np.array(long) - SERIES[100:110])) < 0.8


def test_second_samples_compile_nothing():
    model = regressor()
    for a, b in itertools.pairwise(SERIES[:40]):
        model.predict_one({"v": a})
        model.learn_one({"v": a}, b)
    machine = model._session.machine
    counts = [f._cache_size() for f in (machine.look, machine.learn)]
    for a, b in itertools.pairwise(SERIES[40:100]):
        model.predict_one({"v": a})
        model.learn_one({"v": a}, b)
    assert [f._cache_size() for f in (machine.look, machine.learn)] == counts
    clone = model.clone()
    clone.learn_one({"v": 1.0}, 1.0)
    assert clone._session.machine is machine, "clones share what was compiled"
    assert [f._cache_size() for f in (machine.look, machine.learn)] == counts
