import math
import numbers
from collections.abc import Hashable
from typing import Any, cast

import numpy as np
from river import base

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.not_none import not_none
from evergrad.river import arrays, history, whole
from evergrad.river.base import StreamLearner, check_shapes, row_key, waiting_of
from evergrad.river.learner import power_of_two
from evergrad.river.pending import Sample

Label = bool | int | float | str


class OnlineRNNClassifier(StreamLearner, base.Classifier):
    """Recurrent network that learns a label from every sample as it comes.

    Features are numbers, strings (categories) or None (missing); they may appear and vanish, and so may classes appear.
    Features are standardised online; the last known label is one more of them. Probabilities are a mixture, by how likely
    each made the labels that came, of the classes' frequencies, of logistic regression and of the network.

    Time goes on once a sample. `predict_one` shows the sample to the network, `learn_one` with the same features, at
    once or many samples later, teaches that step.

    Parameters
    ----------
    learning_rate
        Of the optimiser. Everything is standardised, so that the default serves most streams. None is 1e-2.
    units, cell, estimator, optimiser, clip, seed, layers, lanes, restart
        As for `OnlineRNNRegressor`.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNClassifier
    >>> model = OnlineRNNClassifier(units=4, seed=0)
    >>> for now in range(20):
    ...     model.learn_one({"reading": now % 2}, "high" if now % 2 else "low")
    >>> sorted(model.predict_proba_one({"reading": 0}))
    ['high', 'low']
    """

    def _begin(self) -> None:
        self._labels: list[Label] = []  # their places are the ids of the classes
        self._last: np.ndarray | None = None  # [B] the id of the last class known, −1 for none

    def _usual_rate(self, exact: bool) -> float:
        return 1e-2

    def _classes(self) -> int:
        return power_of_two(max(2, len(self._labels), self._room[1]))

    @property
    def _multiclass(self) -> bool:
        return True

    @whole.changes
    def learn_one(self, x: dict[Hashable, Any], y: Label) -> None:
        label = self._check_label(y)
        found = self._check_features(x)
        key, last = frozenset(found.items()), self._last_known(1)
        target = self._ids([label])
        if self._session is not None and self._session.repeated(key, lambda sample: target):
            return
        self._learn(self._step_of(key, last, lambda: self._encode_one(found, self._past_one(last))), target)

    @whole.changes
    def predict_proba_one(self, x: dict[Hashable, Any]) -> dict[Label, float]:
        found = self._check_features(x)
        key, last = frozenset(found.items()), self._last_known(1)
        out = self._predict_step(key, last, lambda: self._encode_one(found, self._past_one(last)))
        # as `_shares` has it, in plain numbers: every sample comes this way
        shares = out[0, : len(self._labels)].tolist()
        total = sum(shares) or 1.0
        return {label: share / total for label, share in zip(self._labels, shares, strict=True)}

    @whole.changes
    def learn_many(self, X: Any, y: Any) -> None:
        """Samples in a row, as many as X (frame or array) has; with several lanes one of each. None in y is missing."""
        if self._streams == 1:
            self._run(X, y)
            return
        labels = [self._check_label(v, missing=True) for v in arrays.labels(y).tolist()]
        self._check_one_kind(labels)
        columns = self._check_series(arrays.row_columns(X), (1, len(labels)))
        key, last = row_key(columns), self._last_known(len(labels))
        target = self._ids(labels)
        self._learn(self._step_of(key, last, lambda: self._encode_columns(columns, self._past_row(last))[0]), target)

    @whole.changes
    def predict_proba_many(self, X: Any) -> Any:
        """Of samples in a row, or of one a lane: a frame, classes for columns, with the frame's index.

        With one lane this changes nothing; with several they wait for their labels.
        """
        import pandas as pd

        if self._streams == 1:
            found = self.predict_proba(X) if self._labels else np.zeros((len(X), 0))
            return pd.DataFrame(found, columns=self._labels, index=getattr(X, "index", None))
        columns = self._check_series(arrays.row_columns(X), (1, len(X)))
        key, last = row_key(columns), self._last_known(len(X))
        out = self._predict_step(key, last, lambda: self._encode_columns(columns, self._past_row(last))[0])
        return pd.DataFrame(self._shares(out), columns=self._labels, index=getattr(X, "index", None))

    def predict_many(self, X: Any) -> Any:
        """The likeliest label of every lane: a series with the frame's index, or an array; empty before the first."""
        shares = self.predict_proba_many(X)
        best = shares.idxmax(axis="columns") if len(shares.columns) else shares.iloc[:, :0].sum(axis="columns")[:0]
        return best if hasattr(X, "columns") else best.to_numpy()

    def partial_fit(self, X: Any, y: Any, classes: Any = None, delay: int = 0) -> "OnlineRNNClassifier":
        """Learns a whole series, [T, d] (or [T, lanes, d]), in one compiled loop, as if sample by sample.

        `classes` may name labels that are to come.
        """
        self._run(X, y, [] if classes is None else classes, delay)
        return self

    def run(self, X: Any, y: Any, delay: int = 0) -> np.ndarray:
        """`partial_fit`, and the labels that were predicted before learning from each: progressive validation.

        As `predict_one` says, None before the first label is known. With a `delay` of k a label is known k samples later, just
        before that one is predicted (so 0 and 1 are the same); the last ones are learned at the end.
        """
        shares = self._run(X, y, delay=delay)
        if not self._labels:
            return np.full(np.shape(y), None)
        labels, unknown = self.classes_[shares.argmax(-1)], ~shares.any(-1)
        return (np.where(unknown, cast(Any, None), labels) if unknown.any() else labels).reshape(np.shape(y))

    @whole.reads
    def predict_proba(self, X: Any) -> np.ndarray:
        """Of the next samples in a row, from the labels known now, in the order of `classes_`. Changes nothing."""
        shape = arrays.series_shape(X)
        columns = self._check_series(arrays.series_columns(X, self._lanes), shape)
        refuse_unless(
            self._session is not None and bool(self._labels),
            "predict was called before partial_fit or learn_one: there are no classes yet.",
        )
        past: dict[Hashable, Any] = {
            history.LAST_CLASS: np.repeat(self._past_row(self._last_known(shape[1]))[history.LAST_CLASS], shape[0], 0)
        }
        outs, hidden = [], None
        for raw in self._encode_known(columns, past):
            out, hidden = not_none(self._session).ask(raw, hidden)
            outs.append(self._shares(out))
        return np.stack(outs) if np.ndim(X) == 3 else np.stack(outs)[:, 0]

    @whole.reads
    def predict(self, X: Any) -> np.ndarray:
        """The likeliest labels of the next samples in a row. Changes nothing."""
        return self.classes_[self.predict_proba(X).argmax(-1)]

    @property
    def classes_(self) -> np.ndarray:
        return np.array(self._labels)

    @whole.changes
    def _run(self, X, y, to_come=(), delay=0):
        y = arrays.labels(y)
        labels = [self._check_label(v, missing=True) for v in y.ravel().tolist()]
        to_come = [self._check_label(v) for v in to_come]
        self._check_one_kind([*to_come, *labels])
        shape = (len(y), y[:1].size)
        columns = self._check_series(arrays.series_columns(X, self._lanes), shape)
        self._ids(to_come)
        known, ids = len(self._labels), self._ids(labels).reshape(shape)
        waiting, last = waiting_of(delay), self._last_known(shape[1])
        then_known = history.as_known(ids, waiting, -1)
        names, _ = history.last_class_columns(last, then_known)
        _, self._last = history.last_class_columns(last, ids)
        raws = self._encode_columns(columns, {history.LAST_CLASS: names})
        out = not_none(self._session).series(raws, np.maximum(ids, 0), ids >= 0, waiting)
        return self._shares(out, history.classes_before(known, then_known))

    def _learn(self, sample: Sample, ids: np.ndarray) -> None:
        there = ids >= 0
        not_none(self._session).learn(sample, np.maximum(ids, 0), there)
        self._last = np.where(there, ids, self._last_known(len(ids)))

    def _last_known(self, lanes: int) -> np.ndarray:
        return np.full(lanes, -1, np.int32) if self._last is None else self._last

    def _past_one(self, last: np.ndarray) -> dict[Hashable, str]:
        return {history.LAST_CLASS: str(last[0])} if last[0] >= 0 else {}

    def _past_row(self, last: np.ndarray, steps: int = 1) -> dict[Hashable, np.ndarray]:
        return {history.LAST_CLASS: history.last_class_columns(last, np.full((steps, len(last)), -1, np.int32))[0]}

    def _shares(self, out: np.ndarray, seen: np.ndarray | None = None) -> np.ndarray:
        """Probabilities of the labels seen so far: all, or the first `seen` [T] of them; 0 throughout where none is."""
        shares = out[..., : len(self._labels)].astype(np.float64)
        if seen is not None:
            shares = np.where(np.arange(len(self._labels)) < seen[:, None, None], shares, 0)
        total = shares.sum(-1, keepdims=True)
        return shares / np.where(total > 0, total, 1)

    def _check_series(self, columns, shape):
        check_shapes(columns, shape)
        self._check_lanes(shape[1])
        return self._slots.check_columns(columns)

    def _ids(self, labels: list[Label | None]) -> np.ndarray:
        """Ids, −1 for None; labels that are new get the next ones, and the network room for them."""
        for label in labels:
            if label is not None and label not in self._labels:
                self._labels = [*self._labels, label]
        if self._session is not None:
            self._ready(self._session.settings.lanes)
        return np.array([-1 if label is None else self._labels.index(label) for label in labels], np.int32)

    def _check_label(self, y: Any, missing: bool = False) -> Label | None:
        y = y.item() if isinstance(y, np.generic) else y
        if missing and arrays.is_missing(y):
            return None
        refuse_unless(
            isinstance(y, str | numbers.Real) and (isinstance(y, str) or abs(cast(Any, y)) < math.inf),
            f"y is {y!r}: a label is a string, a bool or a finite number. A sample without label is shown to "
            "predict_one only.",
        )
        y = cast(Label, y)
        if self._labels:
            self._check_one_kind([self._labels[0], y])
        return y

    def _check_one_kind(self, labels: list[Label | None]) -> None:
        kinds = {_kind(label): label for label in labels if label is not None}
        if len(kinds) > 1:
            (was, first), (now, label), *_ = kinds.items()
            raise InputError(
                f"y is {label!r}, {now}, and labels were {was} before (such as {first!r}): convert one of them."
            )


def _kind(label):
    return "a string" if isinstance(label, str) else "a bool" if isinstance(label, bool) else "a number"
