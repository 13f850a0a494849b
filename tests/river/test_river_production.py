"""Intervals that hold, reports, warming up, ensembles, odd numbers: what running one for long asks for."""

import datetime as dt
import decimal
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from river import ensemble

import evergrad as eg
from evergrad.river import AnomalyDetector, OnlineRNNClassifier, OnlineRNNRegressor, bands, label
from evergrad.river.slots import Slots

SETTINGS = {"units": 3, "seed": 0, "estimator": eg.RTRL()}
SERIES = (np.sin(np.arange(300) / 5) + 0.1 * np.random.default_rng(0).normal(size=300)).tolist()


def steps(model):
    return int(model._session.machine.inside(model._session.leaves).state.time)


@pytest.fixture(scope="module")
def taught():
    model = OnlineRNNRegressor(**SETTINGS)
    model.partial_fit(np.array(SERIES[:-1])[:, None], SERIES[1:])
    return model


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_intervals_cover_what_they_promise_while_the_noise_changes(coverage):
    rng, t = np.random.default_rng(0), np.arange(4000)
    missed = rng.standard_t(4, size=4000) * np.exp(2 * np.sin(t / 300)) + np.where(t > 2000, 0.5, 0)
    _, offsets = jax.lax.scan(lambda b, m: (bands.learn(b, m), bands.offsets(b)), bands.start(), jnp.asarray(missed))
    low, high = (bands.at(level, np.asarray(offsets)) for level in ((1 - coverage) / 2, (1 + coverage) / 2))
    covered = (low <= missed) & (missed <= high)
    assert abs(covered[100:].mean() - coverage) < 0.02


def test_a_models_intervals_hold_on_a_series_that_drifts():
    """The level walks off, the period grows, the noise becomes five times as large and small again."""
    rng, t = np.random.default_rng(0), np.arange(2500)
    noise = rng.normal(size=2500) * np.where((t > 800) & (t < 1600), 0.5, 0.1)
    y = 0.002 * t + np.sin(np.cumsum(1 / (5 + t / 500))) + noise
    model, covered = OnlineRNNRegressor(**SETTINGS), []
    for now, after in itertools.pairwise(y.tolist()):
        low, high = model.predict_interval_one({0: now}, coverage=0.9)
        covered.append(low <= after <= high)
        model.learn_one({0: now}, after)
    assert abs(np.mean(covered[100:]) - 0.9) < 0.02
    assert model.report()["coverage of the interval of 90 %"] == pytest.approx(np.mean(covered[-1000:]), abs=0.03)


def test_levels_and_offsets_are_each_others_inverse():
    offsets = np.array([-9.0, -5, -3, -2, -1, 0, 1, 2, 3, 5, 9])
    for level in (0.001, 0.3, 0.5, 0.99, 0.9999):
        assert bands.level_of(bands.at(level, offsets), offsets) == pytest.approx(level)


def test_an_interval_and_its_quantiles(taught):
    x = {0: SERIES[-1]}
    low, high = taught.predict_interval_one(x)
    middle = taught.predict_one(x)
    assert low < middle < high
    assert taught.predict_interval_one(x, 0.5)[0] > low
    assert list(taught.predict_quantiles_one(x, [0.05, 0.95]).values()) == pytest.approx([low, high])
    assert len(taught._session.pending) == 1, "one sample, asked for often"
    with pytest.raises(eg.InputError, match="coverage=90 is no probability"):
        taught.predict_interval_one(x, 90)


def test_an_anomaly_scores_high():
    detector, scores = AnomalyDetector(OnlineRNNRegressor(**SETTINGS)), []
    for a, b in itertools.pairwise(SERIES):
        scores.append(detector.score_one({"v": a}, b))
        detector.learn_one({"v": a}, b)
    assert detector.score_one({"v": SERIES[-1]}, 9.0) > 0.999
    assert 0.02 < np.mean(np.array(scores[50:]) > 0.9) < 0.2
    with pytest.raises(eg.InputError, match="needs an OnlineRNNRegressor"):
        AnomalyDetector("regressor")


def test_a_report(taught):
    assert OnlineRNNRegressor(**SETTINGS).report() == {"samples": 0, "waiting": 0}
    found = taught.report()
    assert found["samples"] == 299
    assert found["error against persistence"] == pytest.approx(found["error"] / found["error of persistence"])
    assert found["error against persistence"] < 1
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["scales"][0]["mean"] == pytest.approx(np.mean(SERIES), abs=0.2)
    assert 0 <= found["clipped"] <= 1
    classifier = OnlineRNNClassifier(**SETTINGS, lanes=2)
    classifier.learn_many(np.ones((2, 1)), ["a", "b"])
    assert len(classifier.report()["log loss"]) == 2


def test_after_warming_up_no_sample_compiles_anything():
    settings = {"units": 4, "seed": 0, "estimator": eg.OK(rank=2, window=3)}
    model = OnlineRNNRegressor(**settings)
    model.warmup(features=6)
    functions = model._session.machine.look, model._session.machine.learn
    counts = [f._cache_size() for f in functions]
    other = OnlineRNNRegressor(**settings, learning_rate=0.5, clip=3.0)
    other.warmup({f"f{i}": 0.0 for i in range(6)})
    for t in range(12):
        x = {f"f{i}": float(t) for i in range(1 + t // 2)}
        for each in (model, other):
            each.predict_one(x)
            each.learn_one(x, float(t % 3))
    assert other._session.machine is model._session.machine, "rates are numbers, not programs"
    assert [f._cache_size() for f in functions] == counts
    assert model.predict_one({}) != other.predict_one({}), "and yet they count"


def test_ensembles_that_teach_a_sample_several_times_do_not_make_time_run():
    model = OnlineRNNRegressor(**SETTINGS)
    for a, b in itertools.pairwise(SERIES[:20]):
        model.predict_one({"v": a})
        for _ in range(3):
            model.learn_one({"v": a}, b)
    assert steps(model) == 19
    bagging = ensemble.BaggingRegressor(OnlineRNNRegressor(**SETTINGS), n_models=2, seed=1)
    for a, b in itertools.pairwise(SERIES[:20]):
        bagging.predict_one({"v": a})
        bagging.learn_one({"v": a}, b)
    assert all(steps(each) <= 19 for each in bagging)


def test_rows_of_one_stream_are_samples_in_a_row():
    one, many = OnlineRNNRegressor(**SETTINGS), OnlineRNNRegressor(**SETTINGS)
    X, y = np.array(SERIES[:30])[:, None], np.array(SERIES[1:31])
    one.partial_fit(X, y)
    for start in range(0, 30, 10):
        many.learn_many(X[start : start + 10], y[start : start + 10])
    assert steps(many) == 30
    np.testing.assert_allclose(many.predict_many(X[:3]), one.predict(X[:3]))


def test_debugging_leaves_no_sample_behind(taught):
    before = len(taught._session.pending)
    assert "after 299 samples" in taught.debug_one({0: 7.0})
    taught.predict_one({0: 7.0})
    assert len(taught._session.pending) == before


def test_the_memory_is_that_of_the_arrays(taught):
    assert taught._raw_memory_usage > sum(a.nbytes for a in taught._session.leaves)


def test_decimals_and_durations_are_numbers():
    found = Slots().check({"a": decimal.Decimal("1.5"), "b": dt.timedelta(minutes=1), "c": np.timedelta64(2, "s")})
    assert found == {"a": 1.5, "b": 60.0, "c": 2.0}
    columns = Slots().check_columns({"d": np.array([[1500]], "timedelta64[ms]")})
    assert columns["d"].tolist() == [[1.5]]
    with pytest.raises(eg.InputError, match="no place on a scale"):
        Slots().check({"a": decimal.Decimal("1e400")})


def test_a_diverged_model_begins_anew_if_told_to():
    model = OnlineRNNRegressor(**SETTINGS, restart=True)
    model.learn_one({"v": 1.0}, 1.0)
    session = model._session
    known = session.machine.pack(session.leaves)
    session.leaves = session.machine.unpack([a * a.dtype.type(np.nan) if a.dtype.kind == "f" else a for a in known])
    with pytest.warns(UserWarning, match="begins anew"):
        assert model.predict_one({"v": 1.0}) == 1.0
    model.learn_one({"v": 1.0}, 2.0)
    assert steps(model) == 1


def losses(X, y, classes):
    """Mean log loss of either linear part, predicting before learning."""
    head = label.start(X.shape[1], classes)

    def step(part, sample):
        z, y = sample
        lost = -jnp.log(label.say(part, z)[1:, y])
        return label.teach(part, z, y, jnp.ones(()), jnp.zeros(()))[1], lost

    _, lost = jax.lax.scan(step, head.part, (jnp.asarray(X), jnp.asarray(y, jnp.int32)))
    return np.asarray(lost)


def test_the_linear_part_of_labels_comes_near_the_truth_on_a_rare_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    p = 1 / (1 + np.exp(5 - 3 * X[:, 0]))
    y = rng.random(3000) < p
    truth = -np.where(y, np.log(p), np.log1p(-p)).mean()
    prior = -np.where(y, np.log(y.mean()), np.log1p(-y.mean())).mean()
    lost = losses(X, y, 2)[500:].mean(0).min()
    assert lost < truth + 0.25 * (prior - truth)
