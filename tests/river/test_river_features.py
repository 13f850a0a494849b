"""Features that appear and vanish, categories, missing values, lanes, and bad input that leaves the model as it was."""

import datetime as dt
import math
import pickle
import zoneinfo

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNClassifier, OnlineRNNForecaster, OnlineRNNRegressor, scaler
from evergrad.river.slots import CATEGORIES, Slots


def taught(kind=OnlineRNNRegressor, **settings):
    model = kind(**{"units": 3, "seed": 0, "estimator": eg.RTRL(), **settings})
    rng = np.random.default_rng(0)
    for t in range(40):
        x = {"a": float(rng.normal()), "c": "xyz"[t % 3]}
        if kind is OnlineRNNForecaster:
            model.learn_one(math.sin(t / 3), x)
            continue
        model.predict_one(x)
        model.learn_one(x, ["no", "yes"][t % 2] if kind is OnlineRNNClassifier else math.sin(t / 3))
    return model


def weights(model):
    return model._session.machine.inside(model._session.leaves).state.model.cell.weight


def test_a_feature_that_appears_leaves_the_predictions_without_it_as_they_were():
    model, same = taught(), taught()
    before = weights(model).shape
    for i in range(8):
        model.predict_one({"a": 0.3, "c": "x", f"new {i}": float(i)})
    assert weights(model).shape[0] > before[0]
    model._session.pending.samples.clear()
    model._session.hidden = None
    assert model.predict_one({"a": 0.3, "c": "x"}) == pytest.approx(same.predict_one({"a": 0.3, "c": "x"}), rel=1e-5)


def test_slots_come_in_powers_of_two():
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    sizes = set()
    for t in range(12):
        model.learn_one({f"f{i}": 1.0 * t for i in range(t)}, float(t))
        sizes.add(model._session.settings.slots)
    assert sizes == {4, 8, 16}


def test_new_features_are_learned_from():
    rng, model, errors = np.random.default_rng(0), OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()), []
    for t in range(900):
        x = {"useless": float(rng.normal())} | ({"telling": float(rng.normal())} if t > 300 else {})
        y = 3 * x.get("telling", float(rng.normal()))
        errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x, y)
    assert np.mean(errors[-200:]) < 0.2 * np.mean(errors[100:300])


def test_missing_is_missing_however_it_is_said():
    said = [
        {"a": None, "c": "x"},
        {"a": pd.NA, "c": "x"},
        {"a": math.nan, "c": "x"},
        {"a": np.float32("nan"), "c": "x"},
        {"c": "x"},
    ]
    assert len({taught().predict_one(x) for x in said}) == 1
    assert taught().predict_one({"a": 0.0, "c": "x"}) != taught().predict_one({"c": "x"})


def test_categories_matter_and_are_bounded():
    model, errors = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()), []
    for t in range(600):
        name = "abc"[(t * 7 + t // 5) % 3]
        errors.append(abs(model.predict_one({"c": name}) - ord(name)))
        model.learn_one({"c": name}, float(ord(name)))
    assert np.mean(errors[-100:]) < 0.1
    for t in range(100):
        model.learn_one({"c": f"user {t}"}, 0.0)
    assert len(model._slots.categories["c"]) == CATEGORIES + 1


def test_large_offsets_keep_their_differences():
    """Seconds since 1970 in float32 would be steps of 128."""
    near, far = (OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()) for _ in range(2))
    start = dt.datetime(2026, 1, 1)
    for t in range(50):
        near.learn_one({"t": float(t)}, math.sin(t))
        far.learn_one({"t": start + dt.timedelta(seconds=t)}, math.sin(t))
    assert near.predict_one({"t": 50.0}) == far.predict_one({"t": start + dt.timedelta(seconds=50)})


def told(values, known=None):
    """The scaler after values of one feature."""
    known = scaler.start(1) if known is None else known
    for value in values:
        known = UPDATE(known, jnp.full(1, value))
    return known


UPDATE = jax.jit(scaler.update)


@pytest.mark.parametrize("wild", [100.0, -1e4, 1e18])
@pytest.mark.parametrize("before", [40, 1500])
def test_one_wild_value_moves_the_scale_little(wild, before):
    values = np.random.default_rng(0).normal(size=before)
    usual = told(values)
    after = told([wild], usual)
    assert after.variance[0] < 2.1 * usual.variance[0] if before < 100 else after.variance[0] < 1.3 * usual.variance[0]
    assert abs(after.mean[0] - usual.mean[0]) < 0.2


def test_a_new_level_is_followed():
    rng = np.random.default_rng(0)
    usual = told(rng.normal(size=1500))
    after = told(1000 + rng.normal(size=10), usual)
    assert after.variance[0] > 5, "the jump is in it"
    after = told(1000 + rng.normal(size=50), after)
    assert after.mean[0] == pytest.approx(1000, abs=1), "30 values that are so close begin a scale of their own"
    assert 0.5 < after.variance[0] < 2


def test_what_was_constant_may_change():
    assert told([1.0], told([0.0] * 100)).variance[0] > 0.005


def test_a_feature_is_of_use_again_after_one_wild_value():
    X, errors = np.random.default_rng(0).normal(size=700), []
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    for t, value in enumerate(X.tolist()):
        x = {"a": 1e6 if t == 400 else value}
        errors.append(abs(model.predict_one(x) - 3 * value))
        model.learn_one(x, 3 * value)
    assert np.mean(errors[550:]) < 2 * np.mean(errors[250:400])


def test_one_wild_target_is_forgotten_soon():
    model, errors = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()), []
    series = np.sin(np.arange(700) / 6)
    for t in range(699):
        errors.append(abs(model.predict_one({"v": series[t]}) - series[t + 1]))
        model.learn_one({"v": series[t]}, 1e5 if t == 400 else series[t + 1])
    assert np.mean(errors[500:]) < 0.5 * np.mean(np.abs(np.diff(series)))


def test_dates_with_a_time_zone_are_instants():
    zurich, check = zoneinfo.ZoneInfo("Europe/Zurich"), lambda date: Slots().check({"t": date})["t"]
    before, after = (dt.datetime(2024, 10, 27, 2, 30, tzinfo=zurich, fold=fold) for fold in (0, 1))
    assert check(after) - check(before) == 3600, "the hour that comes twice"
    before, after = (dt.datetime.fromisoformat(f"2024-03-31T{t}") for t in ("01:59:59+01:00", "03:00:00+02:00"))
    assert check(after) - check(before) == 1, "the hour that is left out"
    frame = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=2, tz=zurich)})
    assert Slots().check_columns({"t": frame["t"].to_numpy()})["t"][0] == check(dt.datetime(2023, 12, 31, 23))


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_dates_are_the_same_in_every_unit_and_in_dicts(unit):
    dates = pd.to_datetime(["2024-01-01T00:00:00", "2024-01-02T03:04:05", None]).as_unit(unit).to_numpy()
    first, second, missing = Slots().check_columns({"t": dates[:, None]})["t"][:, 0].tolist()
    assert Slots().check({"t": dt.datetime(2024, 1, 1)}) == Slots().check({"t": dates[0]}) == {"t": first}
    assert Slots().check({"t": dt.datetime(2024, 1, 2, 3, 4, 5)}) == {"t": second}
    assert math.isnan(missing)
    assert Slots().check({"t": dates[2], "u": pd.NaT}) == {}


def test_no_features_at_all():
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    for t in range(30):
        assert math.isfinite(model.predict_one({}))
        model.learn_one({}, float(t))
    assert model.predict_one({}) == pytest.approx(30, abs=3)


def test_lanes_are_streams_of_their_own_that_share_a_network():
    rng, model, errors = np.random.default_rng(0), OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL(), lanes=3), []
    levels = np.array([0.0, 1000.0, -50.0])
    for t in range(400):
        X = pd.DataFrame({"a": rng.normal(size=3)}, index=["p", "q", "r"])
        y = levels + 2 * X["a"].to_numpy()
        predicted = model.predict_many(X)
        assert list(predicted.index) == ["p", "q", "r"]
        errors.append(np.abs(predicted.to_numpy() - y))
        model.learn_many(X, pd.Series(np.where(np.arange(3) == t % 7, np.nan, y), index=X.index))
    assert np.mean(errors[-100:], axis=0).max() < 0.3
    assert weights(model).ndim == 2, "one network"
    assert np.asarray(model.predict_many(np.zeros((3, 1)))).shape == (3,)
    assert model.predict(np.zeros((5, 3, 1))).shape == (5, 3)
    with pytest.raises(eg.InputError, match="was given 2 lanes and had 3"):
        model.learn_many(np.zeros((2, 1)), np.zeros(2))


def test_lanes_of_labels():
    model = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL(), lanes=2)
    X = np.random.default_rng(0).normal(size=(500, 2, 1))
    for rows in X:
        model.learn_many(rows, np.where(rows[:, 0] > 0, "up", "down"))
    shares = model.predict_proba_many(pd.DataFrame({0: [2.0, -2.0]}))
    assert shares.idxmax(axis=1).tolist() == ["up", "down"]
    assert model.predict_many(np.array([[2.0], [-2.0]])).tolist() == ["up", "down"]


def test_missing_labels_and_targets_of_pandas_are_missing():
    X = pd.DataFrame({"a": [1.0, 2.0]})
    classifier = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL(), lanes=2)
    classifier.learn_many(X, pd.Series(["x", pd.NA], dtype=object))
    assert classifier.classes_.tolist() == ["x"]
    regressor = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL(), lanes=2)
    regressor.learn_many(X, pd.Series([1.0, pd.NA], dtype=object))
    assert regressor.predict_many(X).tolist() == [1.0, 0.0]


def test_nested_lists_are_arrays():
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    X = np.random.default_rng(0).normal(size=(5, 2, 1))
    model.partial_fit(X.tolist(), X[..., 0].tolist())
    assert model.predict(X.tolist()).tolist() == model.predict(X).tolist()


def test_settings_of_numpys_types_are_settings():
    model = OnlineRNNRegressor(units=np.int32(3), seed=np.uint64(0), learning_rate=np.float32(1e-3), clip=np.int64(1))
    model.learn_one({"a": 1.0}, 1.0)
    assert model.predict_one({"a": 1.0}) == pytest.approx(1)


def test_scikit_learn_habits():
    X = np.random.default_rng(0).normal(size=(400, 2))
    regressor = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL()).partial_fit(X, X[:, 0] * 2)
    assert np.abs(regressor.predict(X[:20]) - 2 * X[:20, 0]).mean() < 0.5
    before = pickle.dumps(regressor)
    regressor.predict(X)
    assert pickle.dumps(regressor) == before
    classifier = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL(), learning_rate=1e-2)
    classifier.partial_fit(X, X[:, 0] > 0, classes=[False, True])
    assert (classifier.predict(X[:50]) == (X[:50, 0] > 0)).mean() > 0.8
    np.testing.assert_allclose(classifier.predict_proba(X[:5]).sum(1), 1)


HUGE = (1e19, -1e39, 10**400, -(10**5000))
BAD = [
    (lambda m: m.learn_one({"a": math.inf}, 1.0), "infinite value has no place"),
    (lambda m: m.predict_one({"a": -math.inf}), "infinite value has no place"),
    *((lambda m, v=v: m.learn_one({"a": v}, 1.0), "no place on a scale, nor has one beyond") for v in HUGE),
    *((lambda m, v=v: m.predict_one({"new": v}), "no place on a scale, nor has one beyond") for v in HUGE),
    *((lambda m, v=v: m.learn_one({"a": 1.0}, v), "y is beyond 4e[+]18 in size") for v in HUGE),
    (lambda m: m.partial_fit([[1e19]], [1.0]), "no place on a scale, nor has one beyond"),
    (lambda m: m.partial_fit([[1.0]], [-1e19]), "y has entries beyond 4e[+]18 in size"),
    (lambda m: m.learn_one({"a": "text"}, 1.0), "a string, and was a number before"),
    (lambda m: m.learn_one({"c": 3.0}, 1.0), "a number, and was a string"),
    (lambda m: m.learn_one({"a": [1, 2]}, 1.0), "features are numbers, strings"),
    (lambda m: m.learn_one({"a": np.ones(2)}, 1.0), "features are numbers, strings"),
    (lambda m: m.learn_one({"b": 1.0, "a": 1j}, 1.0), "features are numbers, strings"),
    (lambda m: m.learn_one([1.0], 1.0), "pass a dict of features"),
    (lambda m: m.learn_one({"a": 1.0}, math.nan), "a target is a finite number"),
    (lambda m: m.learn_one({"new": 1.0}, math.inf), "a target is a finite number"),
    (lambda m: m.learn_one({"new": 1.0}, "text"), "a target is a finite number"),
    (lambda m: m.learn_one({"a": 1.0}, None), "a target is a finite number"),
    (lambda m: m.partial_fit([[1.0], [2.0]], [1.0]), "they must agree"),
    (lambda m: m.partial_fit([[math.inf]], [1.0]), "infinite value has no place"),
    (lambda m: m.partial_fit([[1.0]], [math.inf]), "y has infinite entries"),
    (lambda m: m.partial_fit([[1.0]], ["a"]), "targets are numbers"),
    (lambda m: m.partial_fit(np.zeros((0, 1)), []), "there are no rows"),
    (lambda m: m.run([[1.0]], 3.0), "y is 3.0, a single value: pass a list"),
    (lambda m: m.predict_many(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])), "X has columns of one name"),
    (lambda m: m.run(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), [1.0]), "X has columns of one name"),
    (lambda m: m.partial_fit(pd.DataFrame({"a": ["text"]}), [1.0]), "a string, and was a number before"),
]


def test_the_largest_numbers_can_be_squared_in_float32():
    known = scaler.start(1)
    known = jax.tree.map(lambda a: a.astype(jnp.float32), known)
    for sign in (1, -1, 1, -1):
        known = scaler.update(known, jnp.full(1, sign * 2 * scaler.LARGEST, jnp.float32))
        assert np.isfinite(known.variance).all()


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused_and_the_model_is_as_it_was(call, message):
    model = taught()
    before = pickle.dumps(model)
    with pytest.raises(eg.InputError, match=message):
        call(model)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (3, "a number, and labels were a string"),
        (True, "a bool, and labels were a string"),
        (None, "a label is a string"),
    ],
)
def test_labels_of_another_type_are_refused(label, message):
    model = taught(OnlineRNNClassifier)
    before = pickle.dumps(model)
    with pytest.raises(eg.InputError, match=message):
        model.learn_one({"a": 1.0}, label)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.partial_fit(np.zeros((1, 2, 1)), [["a", "b"]]), "was given 2 lanes and had 1"),
        (lambda m: m.learn_many(np.array([[math.inf]]), ["new"]), "infinite value has no place"),
        (lambda m: m.partial_fit([[1.0], [2.0]], ["new", 3]), "a number, and labels were a string"),
        (lambda m: m.partial_fit([[math.inf]], ["yes"], classes=["new"]), "infinite value has no place"),
        (lambda m: m.partial_fit([[1.0]], ["yes"], classes=[3]), "a number, and labels were a string"),
        (lambda m: m.partial_fit([[1.0], [2.0]], ["new"]), "they must agree"),
        (lambda m: m.run([[1.0]], "yes"), "y is 'yes', a single value: pass a list"),
    ],
)
def test_bad_series_of_labels_are_refused_and_the_model_is_as_it_was(call, message):
    model = taught(OnlineRNNClassifier)
    before = pickle.dumps(model)
    with pytest.raises(eg.InputError, match=message):
        call(model)
    assert pickle.dumps(model) == before


def test_classes_to_come_are_of_one_type():
    with pytest.raises(eg.InputError, match="a string, and labels were a number"):
        OnlineRNNClassifier(units=3, seed=0).partial_fit([[1.0]], [1], classes=[1, "a"])


def test_predicting_before_anything_was_learned():
    """river's conventions: 0 for a number, None for a label."""
    settings = {"units": 3, "seed": 0, "estimator": eg.RTRL()}
    assert OnlineRNNRegressor(**settings).predict_one({"a": 1.0}) == 0
    assert OnlineRNNRegressor(**settings).predict(np.ones((2, 1))).tolist() == [0, 0]
    assert OnlineRNNForecaster(**settings).forecast(2) == [0, 0]
    assert OnlineRNNClassifier(**settings).predict_one({"a": 1.0}) is None
    with pytest.raises(eg.InputError, match="there are no classes yet"):
        OnlineRNNClassifier(**settings).predict(np.ones((2, 1)))


@pytest.mark.parametrize("kind", [OnlineRNNClassifier, OnlineRNNForecaster], ids=lambda kind: kind.__name__)
def test_an_empty_feature_set_is_a_sample(kind):
    model = taught(kind)
    if kind is OnlineRNNForecaster:
        model.learn_one(1.0, {})
        assert math.isfinite(model.forecast(1, [{}])[0])
    else:
        model.learn_one({}, "yes")
        assert set(model.predict_proba_one({})) == {"no", "yes"}


def test_a_forecaster_refuses_what_it_cannot_use():
    model = taught(OnlineRNNForecaster)
    before = pickle.dumps(model)
    for call, message in (
        (lambda: model.forecast(0), "horizon must be a whole number"),
        (lambda: model.forecast(3, [{}]), "one dict a step"),
        (lambda: model.learn_one("text"), "a target is a finite number"),
        (lambda: model.learn_one(None), "a target is a finite number. For a value that is missing, leave the step out"),
        (lambda: model.forecast(1, [{"a": "text"}]), "a string, and was a number"),
    ):
        with pytest.raises(eg.InputError, match=message):
            call()
    assert pickle.dumps(model) == before


def test_labels_may_appear_at_any_time():
    model = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL())
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    for t in range(120):
        model.learn_one({"a": float(t % 5)}, f"class {t % 5}" if t > 20 else "class 0")
    shares = model.predict_proba_one({"a": 1.0})
    assert set(shares) == {f"class {i}" for i in range(5)}
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be a whole number"),
        ({"cell": "elman"}, "choose one of rnn, leaky, rhn, lstm, gru"),
        ({"optimiser": "lion"}, "choose one of adam, sgd, rmsprop"),
        ({"learning_rate": -1.0}, "must be a number above 0"),
        ({"estimator": "ok"}, "needs an estimator such as"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 2**70}, "choose one below 2[*][*]62"),
        ({"learning_rate": np.float32("nan")}, "must be a number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(eg.InputError, match=message):
        OnlineRNNRegressor(**settings)


def test_layers_on_top_of_each_other(tmp_path):
    """More features than at the start, and a file, included."""
    model = OnlineRNNRegressor(units=3, layers=2, seed=0)
    rng = np.random.default_rng(0)
    for t in range(40):
        x = {f"x{i}": float(rng.normal()) for i in range(2 if t < 20 else 6)}
        model.predict_one(x)
        model.learn_one(x, x["x0"])
    model.save(tmp_path / "m")
    again = OnlineRNNRegressor.load(tmp_path / "m")
    x = {f"x{i}": 0.5 for i in range(6)}
    assert again.layers == 2
    assert again.predict_one(x) == model.predict_one(x)
    with pytest.raises(eg.InputError, match="layers must be a whole number >= 1"):
        OnlineRNNRegressor(layers=0)
