"""river's own checks, pipelines and progressive validation."""

import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing, time_series

import evergrad as eg
from evergrad.river import OnlineRNNClassifier, OnlineRNNForecaster, OnlineRNNRegressor

MODELS = {
    kind.__name__: kind(units=3, estimator=eg.RTRL())
    for kind in (OnlineRNNRegressor, OnlineRNNClassifier, OnlineRNNForecaster)
}


def all_checks():
    """Of the data sets that a check is made with, the first in `make test`."""
    for name, model in MODELS.items():
        found = list(checks.yield_checks(model))
        names = [check.__name__ for check in found]
        for i, check in enumerate(found):
            marks = pytest.mark.slow if names[i] in names[:i] else ()
            yield pytest.param(name, check, marks=marks, id=f"{name}-{names[i]}")


@pytest.mark.parametrize(("name", "check"), list(all_checks()))
def test_rivers_checks_pass(name, check):
    assert not MODELS[name]._unit_test_skips(), "nothing is left out"
    check(MODELS[name].clone())


def steps(model):
    session = model._session
    return int(session.machine.inside(session.leaves).state.time)


def test_time_goes_on_once_a_sample_in_a_pipeline_whose_scaler_moves_between_predicting_and_learning():
    model = preprocessing.StandardScaler() | OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    metric = evaluate.progressive_val_score(datasets.TrumpApproval().take(300), model, metrics.MAE())
    assert steps(model["OnlineRNNRegressor"]) == 300
    assert metric.get() < 1


def test_classification_in_a_pipeline():
    classifier = OnlineRNNClassifier(units=3, seed=0, estimator=eg.RTRL(), learning_rate=1e-2)
    model = compose.SelectType(int, float) | classifier
    metric = evaluate.progressive_val_score(datasets.Phishing().take(300), model, metrics.Accuracy())
    assert metric.get() > 0.7


def test_rivers_forecasting_evaluation():
    """There a forecast is asked for before the newest value is told, so that persistence is off by two steps."""
    model, rival = OnlineRNNForecaster(units=3, seed=0, estimator=eg.RTRL()), time_series.HoltWinters(alpha=0.1)
    ours, theirs = (
        evaluate.evaluate(datasets.AirlinePassengers(), m, metrics.MAE(), horizon=3).get() for m in (model, rival)
    )
    assert len(ours) == 3
    assert ours[0] < 1.05 * theirs[0]
