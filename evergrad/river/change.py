"""Learning a number: what regressor and forecaster have in common."""

import decimal
import math
import numbers
from collections.abc import Hashable, Mapping
from typing import Any, cast

import numpy as np

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.not_none import not_none
from evergrad.river import arrays, history
from evergrad.river.base import StreamLearner, check_shapes, row_key, waiting_of
from evergrad.river.pending import Sample
from evergrad.river.scaler import LARGEST

TOO_LARGE = "take a larger unit, or leave it out if it is an error"


class ChangeLearner(StreamLearner):
    """Learns the change of the target since the last one known: a linear part, and a network on what that leaves."""

    _known: np.ndarray | None  # the newest targets, [B, …]
    _without_target = (
        "A sample without target is shown to predict_one only; what has a label to predict is for OnlineRNNClassifier."
    )

    def _begin(self) -> None:
        self._slots = self._slots.with_room(dict.fromkeys((history.LAST, *history.CHANGE), math.nan))
        self._known = None

    def _usual_rate(self, exact: bool) -> float:
        return 2e-3 if exact else 1e-3

    def _classes(self) -> int:
        return 0

    def _targets_known(self, lanes: int) -> np.ndarray:
        return history.empty(lanes) if self._known is None else self._known

    def _learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        y = check_number(y, self._without_target)
        found = self._check_features(x)
        known, key = self._targets_known(1), frozenset(found.items())
        if self._session is not None and known[0, -1] == y and self._session.repeated(key, _change_of(y)):
            return

        def encode():
            return self._encode_one(found, history.past_one(known))

        self._learn(self._step_of(key, known[:, -1], encode), np.array([y]))

    def _predict_one(self, x: Mapping[Hashable, Any]) -> float:
        last, out = self._predicted_one(x)  # as `prediction` has it, in plain numbers: every sample comes this way
        return (0.0 if math.isnan(last[0]) else last.item()) + out[0, 0].item()

    def _levels_one(self, x: Mapping[Hashable, Any]) -> tuple[float, np.ndarray]:
        """The last target known, 0 before the first, and the changes from it at all levels of `bands.LEVELS`."""
        last, out = self._predicted_one(x)
        return float(np.nan_to_num(last[0])), out[0, 1:]

    def _predicted_one(self, x):
        found = self._check_features(x)
        known, key = self._targets_known(1), frozenset(found.items())

        def encode():
            return self._encode_one(found, history.past_one(known))

        return known[:, -1], self._predict_step(key, known[:, -1], encode)

    def _learn(self, sample: Sample, y: np.ndarray) -> None:
        """Targets y [B] of one step, NaN where missing."""
        change = y - sample.last
        there = ~np.isnan(change)
        not_none(self._session).learn(sample, np.where(there, change, 0), there)
        self._known = history.push(self._targets_known(len(y)), y)

    def _learn_rows(self, columns: dict[Hashable, np.ndarray], y: np.ndarray) -> None:
        columns = self._check_columns(columns, y[None])
        known, key = self._targets_known(len(y)), row_key(columns)

        def encode():
            return self._encode_columns(columns, history.past_row(known))[0]

        self._learn(self._step_of(key, known[:, -1], encode), y)

    def _predict_rows(self, columns: dict[Hashable, np.ndarray], lanes: int) -> np.ndarray:
        self._check_lanes(lanes)
        columns = self._slots.check_columns(columns)
        known, key = self._targets_known(lanes), row_key(columns)

        def encode():
            return self._encode_columns(columns, history.past_row(known))[0]

        return prediction(known[:, -1], self._predict_step(key, known[:, -1], encode))

    def _run(self, columns: dict[Hashable, np.ndarray], y: np.ndarray, delay: int = 0) -> np.ndarray:
        """A whole series, [T, B]: the predictions made before learning from each target."""
        columns, waiting = self._check_columns(columns, y), waiting_of(delay)
        known = self._targets_known(y.shape[1])
        past = history.past_columns(known, history.as_known(y, waiting, np.nan))
        raws = self._encode_columns(columns, past)
        last = past[history.LAST]
        change = y - last
        there = ~np.isnan(change)
        out = not_none(self._session).series(raws, np.where(there, change, 0), there, waiting)
        self._known = history.after(known, y)
        return prediction(last, out)

    def _ask(self, columns: dict[Hashable, np.ndarray], steps: int, lanes: int) -> np.ndarray:
        """The next samples in a row, [T, B], from the targets known now, leaving everything as it is."""
        columns = self._slots.check_columns(columns)
        if self._session is None:
            return np.zeros((steps, lanes))
        self._check_lanes(lanes)
        known, hidden = self._targets_known(lanes), None
        raws = self._encode_known(columns, history.past_row(known, steps))
        outs = []
        for raw in raws:
            out, hidden = self._session.ask(raw, hidden)
            outs.append(prediction(known[:, -1], out))
        return np.stack(outs)

    def _check_columns(self, columns, y):
        check_shapes(columns, y.shape)
        self._check_lanes(y.shape[1])
        return self._slots.check_columns(columns)


def _change_of(y):
    """What a sample learns of the target y: its change, 0 from no target."""
    return lambda sample: np.nan_to_num(np.array([y]) - sample.last)


def check_number(y: Any, otherwise: str) -> float:
    """A target that can be learned; `otherwise` says what to do without one."""
    y = float(y) if isinstance(y, decimal.Decimal) else y
    if not isinstance(y, numbers.Real | np.bool_) or not abs(cast(Any, y)) < math.inf:
        raise InputError(f"y is {y!r}: a target is a finite number. {otherwise}")
    if abs(cast(Any, y)) > LARGEST:
        raise InputError(f"y is beyond {LARGEST:g} in size: {TOO_LARGE}.")
    return float(y)


def check_numbers(y: Any) -> np.ndarray:
    """Targets as float64, NaN where missing."""
    y = np.asarray(y)
    arrays.check_rows(y)
    if y.dtype == object:
        y = np.array([np.nan if arrays.is_missing(v) else v for v in y.ravel().tolist()]).reshape(y.shape)
    refuse_unless(y.dtype.kind in "fiub", f"y has entries of type {y.dtype}: targets are numbers, NaN where missing.")
    y = y.astype(np.float64)
    refuse_unless(not np.isinf(y).any(), "y has infinite entries: clip them, or put NaN for a missing target.")
    refuse_unless(not (np.abs(y) > LARGEST).any(), f"y has entries beyond {LARGEST:g} in size: {TOO_LARGE}.")
    return y


def prediction(last, out):
    """0 before the first target, as river's regressors say."""
    return np.where(np.isnan(last), 0.0, last) + out[..., 0]
