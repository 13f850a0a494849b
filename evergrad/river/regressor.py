import numbers
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from river import base

from evergrad._core.checks import refuse_unless
from evergrad.river import arrays, bands, whole
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
        "elstm", or another whose units do not see each other ("mingru", "minlstm", "rglru", "lru", "rtu", "indrnn", "columnar"),
        of which the exact gradient is cheap; or "lstm", "gru", "rnn", "rhn", "leaky". None is "elstm", or "lstm" if an estimator
        or several layers are given.
    estimator
        Of the gradient, such as `eg.RTRL()`; None is `eg.RTRL()`, exact, where it is cheap, else `eg.OK(rank=4, window=16)`.
    optimiser
        "adam", "sgd" or "rmsprop".
    learning_rate
        Of the optimiser. Everything is standardised, so that the default serves most streams. None is 2e-3 with an exact gradient, else 1e-3.
    clip
        Largest norm of the recurrent gradient.
    seed
        For weights and estimator; None is another one every time.
    layers
        Cells on top of each other.
    lanes
        Parallel streams that share the network. With one, `learn_many` takes rows for samples in a row; with B, for one
        sample of each of B streams.
    restart
        Whether to begin anew, with a warning, should the network's numbers become non-finite, instead of raising.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNRegressor
    >>> model = OnlineRNNRegressor(units=4, seed=0)
    >>> for now in range(20):
    ...     x, y = {"reading": now % 4}, (now + 1) % 4
    ...     predicted = model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> low, high = model.predict_interval_one({"reading": 0}, coverage=0.8)
    >>> low <= high
    True
    """

    @whole.changes
    def learn_one(self, x: dict[Hashable, Any], y: float) -> None:
        self._learn_one(x, y)

    @whole.changes
    def predict_one(self, x: dict[Hashable, Any]) -> float:
        return self._predict_one(x)

    @whole.changes
    def predict_interval_one(self, x: dict[Hashable, Any], coverage: float = 0.9) -> tuple[float, float]:
        """Between which two numbers the target will be, so often as `coverage` says. Counts as `predict_one` does.

        The bounds are quantiles of what predictions missed by, followed online: they hold what they promise over time,
        whatever the stream does, and are as wide as it is uncertain of late. Before the first two targets they are equal.
        """
        check_level(coverage, "coverage")
        low, high = self._quantiles(x, ((1 - coverage) / 2, (1 + coverage) / 2))
        return low, high

    @whole.changes
    def predict_quantiles_one(self, x: dict[Hashable, Any], levels: Sequence[float]) -> dict[float, float]:
        """Below which number the target will be with each probability. Counts as `predict_one` does."""
        for level in levels:
            check_level(level, "level")
        return dict(zip(levels, self._quantiles(x, levels), strict=True))

    def _quantiles(self, x, levels):
        last, changes = self._levels_one(x)
        return [last + float(bands.at(level, changes)) for level in levels]

    @whole.changes
    def learn_many(self, X: Any, y: Any) -> None:
        """Samples in a row, as many as X (frame or array) has; with several lanes one of each. NaN in y is missing."""
        if self._streams == 1:
            self.run(X, y)
            return
        self._learn_rows(arrays.row_columns(X), check_numbers(y))

    @whole.changes
    def predict_many(self, X: Any) -> Any:
        """Of samples in a row, or of one a lane: a series with the frame's index, or an array.

        With one lane this changes nothing; with several they wait for their targets.
        """
        if self._streams == 1:
            return arrays.like(X, self.predict(X))
        columns = arrays.row_columns(X)
        return arrays.like(X, self._predict_rows(columns, len(X)))

    def partial_fit(self, X: Any, y: Any, delay: int = 0) -> "OnlineRNNRegressor":
        """Learns a whole series, [T, d] (or [T, lanes, d]), in one compiled loop, as if sample by sample."""
        self.run(X, y, delay)
        return self

    @whole.changes
    def run(self, X: Any, y: Any, delay: int = 0) -> np.ndarray:
        """`partial_fit`, and the predictions made before learning from each target: progressive validation.

        Row i of y is row i's target. With a `delay` of k it is known k samples later, just before that one is predicted (so 0
        and 1 are the same); the last ones are learned at the end.
        """
        y = check_numbers(y)
        columns = arrays.series_columns(X, self._lanes)
        return self._run(columns, y.reshape(len(y), y[:1].size), delay).reshape(y.shape)

    @whole.reads
    def predict(self, X: Any) -> np.ndarray:
        """The next samples in a row, from the targets known now. Leaves the model as it is."""
        columns = arrays.series_columns(X, self._lanes)
        shape = arrays.series_shape(X)
        return self._ask(columns, *shape).reshape(shape if np.ndim(X) == 3 else shape[:1])


def check_level(level: float, what: str) -> None:
    is_share = isinstance(level, numbers.Real) and bool(0 < level < 1)
    refuse_unless(is_share, f"{what}={level} is no probability between 0 and 1, such as 0.9.")
