from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

from evergrad.river import arrays
from evergrad.river.change import ChangeLearner, check_numbers


class OnlineRNNRegressor(ChangeLearner, base.Regressor):
    """Recurrent network that learns a numeric target from every sample as it comes.

    Features are numbers, strings (categories) or None (missing); they may appear and vanish. All are standardised
    online, together with the last target and its newest changes. What is learned is the change since the last known
    target: by recursive least squares, robustly, and by the network on what that leaves over.

    Time goes on once a sample. `predict_one` shows the sample to the network, `learn_one` with the same features, at
    once or many samples later, teaches that step.

    Parameters
    ----------
    units
        Size of the hidden state.
    cell
        "lstm", "gru", "rnn" or "rhn".
    estimator
        Of the gradient, such as `eg.RTRL()`; None is `eg.OK(rank=4, window=16)`.
    optimiser
        "adam", "sgd" or "rmsprop".
    learning_rate
        Of the optimiser. Everything is standardised, so that the default serves most streams.
    clip
        Largest norm of the recurrent gradient.
    seed
        For weights and estimator; None is another one every time.
    layers
        Cells on top of each other.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = OnlineRNNRegressor(seed=0)
    >>> evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())  # doctest: +SKIP
    """

    def learn_one(self, x: dict[Hashable, Any], y: float) -> None:
        self._learn_one(x, y)

    def predict_one(self, x: dict[Hashable, Any]) -> float:
        return self._predict_one(x)

    def learn_many(self, X: Any, y: Any) -> None:
        """One step of parallel streams: row b of X (frame or array) and y[b] are lane b's. NaN in y is missing."""
        self._learn_rows(arrays.row_columns(X), check_numbers(y))

    def predict_many(self, X: Any) -> Any:
        """One prediction a lane: a series with the frame's index, or an array."""
        columns = arrays.row_columns(X)
        return arrays.like(X, self._predict_rows(columns, len(X)))

    def partial_fit(self, X: Any, y: Any) -> "OnlineRNNRegressor":
        """Learns a whole series, [T, d] (or [T, lanes, d]), in one compiled loop, as if sample by sample."""
        self.run(X, y)
        return self

    def run(self, X: Any, y: Any) -> np.ndarray:
        """`partial_fit`, and the predictions made before learning from each target: progressive validation."""
        y = check_numbers(y)
        columns = arrays.series_columns(X, self._lanes)
        return self._run(columns, y.reshape(len(y), y[:1].size)).reshape(y.shape)

    def predict(self, X: Any) -> np.ndarray:
        """The next samples in a row, from the targets known now. Leaves the model as it is."""
        columns = arrays.series_columns(X, self._lanes)
        shape = arrays.series_shape(X)
        return self._ask(columns, *shape).reshape(shape if np.ndim(X) == 3 else shape[:1])
