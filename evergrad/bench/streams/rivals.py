"""What the stream learners are compared with, all as objects with `predict_one` and `learn_one`."""

from collections.abc import Callable
from typing import Any, cast

from river import forest, linear_model, multiclass, preprocessing, time_series, tree

import evergrad as eg
from evergrad.bench.streams.sets import Stream
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor

WINDOW = 16
OURS = "evergrad"
NOISY = "evergrad LSTM, OK(4, window 16)"
TRUNCATED = "evergrad LSTM, TBPTT, same window"
LEARNERS = OURS, NOISY, TRUNCATED
TREE = "river Hoeffding tree"
FOREST = "river adaptive random forest"


class Persistence:
    """The last target that is known; None before the first."""

    def __init__(self, first: Any):
        self.last = first

    def predict_one(self, x):
        return self.last

    def learn_one(self, x, y):
        self.last = y


class Forecast:
    """A river forecaster of the feature that the target is a later value of."""

    def __init__(self, model: time_series.base.Forecaster, own: str, horizon: int):
        self.model, self.own, self.horizon = model, own, horizon

    def predict_one(self, x):
        self.model.learn_one(x[self.own])
        try:
            return self.model.forecast(self.horizon)[-1]
        except (TypeError, ValueError, IndexError):  # Holt-Winters has no level before its first season is over
            return x[self.own]

    def learn_one(self, x, y):
        """Its targets are features that come later."""


def ours(stream: Stream, seed: int, estimator: eg.Estimator | None = None, **settings: Any) -> Any:
    kind = OnlineRNNClassifier if stream.classes else OnlineRNNRegressor
    return kind(seed=seed, estimator=estimator, **settings)


def seeded(stream: Stream) -> dict[str, Callable[[int], Any]]:
    """Models that draw random numbers."""
    return {
        OURS: lambda seed: ours(stream, seed),
        NOISY: lambda seed: ours(stream, seed, cell="lstm", units=32),
        TRUNCATED: lambda seed: ours(stream, seed, eg.TBPTT(horizon=WINDOW, stride=1), cell="lstm", units=32),
        TREE: lambda seed: (
            tree.HoeffdingAdaptiveTreeClassifier(seed=seed)
            if stream.classes
            else _scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=seed))
        ),
        FOREST: lambda seed: (
            forest.ARFClassifier(seed=seed) if stream.classes else _scaled(forest.ARFRegressor(seed=seed))
        ),
    }


def fixed(stream: Stream) -> dict[str, Callable[[], Any]]:
    """Models that do not."""
    if stream.classes:
        return {
            "persistence": lambda: Persistence(stream.targets[0]),
            "river linear": lambda: preprocessing.StandardScaler() | _logistic(stream),
        }
    alone = {"units": 1, "learning_rate": 1e-12}  # the network's part stays at nothing
    found = {
        "persistence": lambda: Persistence(0.0),
        "river linear": lambda: _scaled(linear_model.LinearRegression()),
        "river Bayesian linear": lambda: _scaled(linear_model.BayesianLinearRegression()),
        "evergrad, linear part alone": lambda: ours(stream, 0, eg.TBPTT(horizon=1, stride=1), **alone),
    }
    own = stream.own
    if own is not None:
        horizon = max(stream.delay, 1)

        def linear():
            return preprocessing.StandardScaler() | linear_model.LinearRegression()

        def arima():
            return time_series.SNARIMAX(p=8, d=1, q=0, regressor=linear())

        found["river SNARIMAX(8, 1, 0)"] = lambda: Forecast(arima(), own, horizon)
        found["river Holt-Winters"] = lambda: Forecast(time_series.HoltWinters(0.9, 0.1), own, horizon)
    return found


def _scaled(regressor):
    """Features and target standardised: trees have linear models in their leaves, which diverge without."""
    return preprocessing.TargetStandardScaler(regressor=cast(Any, preprocessing.StandardScaler() | regressor))


def _logistic(stream):
    """One class against the rest where there are more than two."""
    model = linear_model.LogisticRegression()
    return model if len({*stream.targets}) == 2 else multiclass.OneVsRestClassifier(model)
