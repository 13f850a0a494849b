import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from river.time_series.base import Forecaster

import evergrad as eg
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.not_none import not_none
from evergrad.river import history, seasons, whole
from evergrad.river.base import StreamLearner
from evergrad.river.change import ChangeLearner, check_number
from evergrad.river.pending import KEPT


class OnlineRNNForecaster(ChangeLearner, Forecaster):
    """Recurrent network that forecasts a series, learning from every value as it comes.

    One step is predicted as `OnlineRNNRegressor` does, from the exogenous features of that step, if there are any, and
    from past values; further steps take predictions for the values that are not there yet.

    With a `horizon` or a `season` every step up to the horizon has a linear part, a mixture and a state of its own and is predicted
    directly, from what is known now, by one network for all of them. Exogenous features are then those of the newest value.

    Parameters
    ----------
    units
        Size of the hidden state.
    cell, estimator, optimiser, learning_rate, clip, seed, layers, restart
        As for `OnlineRNNRegressor`.
    horizon
        The most steps ahead that are forecast directly, 64 at most. None is the first season, or no direct forecast.
    season
        Lengths of seasons, in steps, such as (24, 168) for hours: each adds the value one season before the step that is
        forecast, and sines and cosines of where that step is in it.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNForecaster
    >>> model = OnlineRNNForecaster(units=4, seed=0)
    >>> for now in range(20):
    ...     model.learn_one(now % 4)
    >>> len(model.forecast(horizon=3))
    3
    """

    horizon: int | None
    season: tuple[int, ...] | None

    _without_target = "For a value that is missing, leave the step out, or pass what forecast(1) says."

    def __init__(
        self,
        units: int = 48,
        cell: str | None = None,
        estimator: eg.Estimator | None = None,
        optimiser: str = "adam",
        learning_rate: float | None = None,
        clip: float = 1.0,
        seed: int | None = None,
        layers: int = 1,
        restart: bool = False,
        horizon: int | None = None,
        season: Sequence[int] | None = None,
    ):
        self.season, self.horizon = _check_season(season), horizon
        if horizon is not None:
            call = f"OnlineRNNForecaster(horizon={horizon})"
            whole_number(horizon, 1, call, "horizon", "the number of steps ahead")
            refuse_unless(horizon <= KEPT, f"{call}: no more than {KEPT} steps ahead are forecast directly.")
        lanes = self._ahead or 1
        StreamLearner.__init__(
            self, units, cell, estimator, optimiser, learning_rate, clip, seed, layers, lanes, restart
        )

    def _begin(self) -> None:
        ChangeLearner._begin(self)
        self._slots = self._slots.with_room(dict.fromkeys(seasons.names(self._seasons), math.nan))
        self._values, self._time, self._said = np.zeros(0), 0, np.zeros(0)

    @property
    def _seasons(self) -> tuple[int, ...]:
        return self.season or ()

    @property
    def _ahead(self) -> int:
        """Steps that are forecast directly, 0 if none is."""
        if self.horizon is None:
            return min(self._seasons[0], KEPT) if self.season else 0
        return int(self.horizon)

    @whole.changes
    def learn_one(self, y: float, x: dict[Hashable, Any] | None = None) -> None:
        if self._ahead:
            self._learn_direct({} if x is None else x, check_number(y, self._without_target))
        else:
            self._learn_one({} if x is None else x, y)

    def _learn_direct(self, x: Mapping[Hashable, Any], y: float) -> None:
        """The sample of `horizon` steps ago has all of its targets now; this value begins the next one."""
        found, ahead, now = self._slots.check(x), self._ahead, self._time
        self._values = np.append(self._values, y)[-seasons.kept(self._seasons, ahead) :]
        if now >= ahead:
            sample = not_none(not_none(self._session).take(now - ahead))
            not_none(self._session).learn(sample, self._values[-ahead:] - sample.last, np.ones(ahead, bool))
        newest = np.concatenate([np.full(history.CHANGES + 1, np.nan), self._values])[-history.CHANGES - 1 :]
        same = {
            name: np.full((1, ahead), value, object if isinstance(value, str) else float)
            for name, value in found.items()
        }
        columns = same | seasons.columns(self._values, now, self._seasons, ahead)
        raw = self._encode_columns(columns, history.past_row(np.tile(newest, (ahead, 1))))[0]
        out = not_none(self._session).predict(now, raw, np.full(ahead, y))
        self._time, self._said = now + 1, y + out[:, 0].astype(float)

    @whole.reads
    def forecast(self, horizon: int, xs: list[dict[Hashable, Any]] | None = None) -> list[float]:
        """The next `horizon` values. Leaves the model as it is."""
        whole_number(horizon, 1, f"forecast(horizon={horizon})", "horizon", "the number of steps ahead")
        refuse_unless(
            xs is None or len(xs) == horizon,
            f"forecast(horizon={horizon}) was given xs for {len(xs or [])} steps: one dict a step, or None.",
        )
        if self._ahead:
            refuse_unless(
                horizon <= self._ahead and xs is None,
                f"forecast(horizon={horizon}) of a forecaster of {self._ahead} steps directly: ask for no more, without xs, or "
                "build one with a larger horizon.",
            )
            return self._said[:horizon].tolist() if self._time else [0.0] * horizon
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


def _check_season(given: Sequence[int] | None) -> tuple[int, ...] | None:
    """As a tuple, the shortest first; None of none, since river cannot clone an empty tuple."""
    for length in given or ():
        whole_number(length, 2, f"OnlineRNNForecaster(season={given})", "season", "the number of steps in one")
    return tuple(sorted(int(length) for length in given)) if given else None
