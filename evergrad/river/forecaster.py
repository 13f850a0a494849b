from collections.abc import Hashable
from typing import Any

import numpy as np
from river.time_series.base import Forecaster

from evergrad._core.checks import refuse_unless, whole_number
from evergrad.river import history, whole
from evergrad.river.change import ChangeLearner


class OnlineRNNForecaster(ChangeLearner, Forecaster):
    """Recurrent network that forecasts a series, learning from every value as it comes.

    One step is predicted as `OnlineRNNRegressor` does, from the exogenous features of that step, if there are any, and
    from past values; further steps take predictions for the values that are not there yet.

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
        Of the optimiser. None is 1e-3.
    clip
        Largest norm of the recurrent gradient.
    seed
        For weights and estimator; None is another one every time.
    layers
        Cells on top of each other.
    restart
        Whether to begin anew, with a warning, should the network's numbers become non-finite, instead of raising.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNForecaster
    >>> model = OnlineRNNForecaster(units=4, seed=0)
    >>> for now in range(20):
    ...     model.learn_one(now % 4)
    >>> len(model.forecast(horizon=3))
    3
    """

    _without_target = "For a value that is missing, leave the step out, or pass what forecast(1) says."

    @whole.changes
    def learn_one(self, y: float, x: dict[Hashable, Any] | None = None) -> None:
        self._learn_one({} if x is None else x, y)

    @whole.reads
    def forecast(self, horizon: int, xs: list[dict[Hashable, Any]] | None = None) -> list[float]:
        """The next `horizon` values. Leaves the model as it is."""
        whole_number(horizon, 1, f"forecast(horizon={horizon})", "horizon", "the number of steps ahead")
        refuse_unless(
            xs is None or len(xs) == horizon,
            f"forecast(horizon={horizon}) was given xs for {len(xs or [])} steps: one dict a step, or None.",
        )
        found = [self._check_features(x) for x in xs or [{}] * horizon]
        if self._session is None:
            return [0.0] * horizon
        known, hidden, values = self._targets_known(1), None, []
        for x in found:
            columns = {
                name: np.array([[value]], object if isinstance(value, str) else float) for name, value in x.items()
            }
            raw = self._encode_known(columns, history.past_row(known))[0]
            out, hidden = self._session.ask(raw, hidden)
            values.append(float(known[0, -1] + out[0, 0]))
            known = history.push(known, known[:, -1] + out[:, 0])
        return values
