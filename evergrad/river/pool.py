import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from river import base

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless, whole_number
from evergrad._core.not_none import not_none
from evergrad.river import arrays, bands, history, reporting, turns, whole
from evergrad.river.change import check_number, check_numbers, prediction
from evergrad.river.keyed import Keyed
from evergrad.river.learner import OnlineLearner, power_of_two
from evergrad.river.machine import CELLS
from evergrad.river.regressor import check_level
from evergrad.river.store import Bounds


class OnlineRNNPool(OnlineLearner, base.Regressor):
    """One recurrent network for thousands of series, told apart by their keys, that learns from every sample as it comes.

    The weights are shared, and trained on the samples of all keys. Each key has its own scales, last targets, linear part, mixture,
    intervals, recurrent state and exact influence: some kilobytes (`bytes_a_key`), in arrays with a row a key. What is predicted
    and learned for one key is what `OnlineRNNRegressor` does for one stream, but for the time: `predict_one` changes nothing, and a
    key's time goes on when `learn_one` is called for it. A target that is None or NaN is missing: time goes on, nothing is learned.

    A key begins with its first sample learned. It is forgotten by `forget(key)`, or to make room (`keys`, `idle`); should it come
    back, it begins anew, with what the network knows.

    Parameters
    ----------
    units
        Size of the hidden state of every key.
    cell
        "elstm" (None), or another whose units do not see each other ("mingru", "minlstm", "rglru", "lru", "rtu", "indrnn", "columnar"),
        so that an exact influence has no more numbers than the network has weights, or two or three times as many.
    optimiser
        "adam", "sgd" or "rmsprop".
    learning_rate
        Of the optimiser. None is 2e-3.
    clip
        Largest norm of the recurrent gradient.
    seed
        For the weights; None is another one every time.
    keys
        How many are kept at most. For a new one the key whose last sample is the longest ago is forgotten. None is no bound.
    idle
        For how many samples of other keys a key is kept that has none itself. Then it is as forgotten, and its memory is used
        for the next new key. None is for ever.
    restart
        Whether to begin anew, all keys too, with a warning, should the network's numbers become non-finite, instead of raising.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNPool
    >>> model = OnlineRNNPool(units=4, seed=0, keys=1000)
    >>> for now in range(20):
    ...     for key in ("north", "south"):
    ...         x, y = {"reading": now % 4}, (now + 1) % 4
    ...         predicted = model.predict_one(x, key=key)
    ...         model.learn_one(x, y, key=key)
    >>> model.report()["keys"], "north" in model, "west" in model
    (2, True, False)
    """

    keyed: ClassVar[bool] = True  # for who serves it: samples come with a key
    keys: int | None
    idle: int | None
    _session: Keyed | None

    def __init__(
        self,
        units: int = 32,
        cell: str | None = None,
        optimiser: str = "adam",
        learning_rate: float | None = None,
        clip: float = 1.0,
        seed: int | None = None,
        keys: int | None = None,
        idle: int | None = None,
        restart: bool = False,
    ):
        local = [name for name, kind in CELLS.items() if issubclass(kind, eg.UnitCell)]
        refuse_unless(
            cell is None or cell in local,
            f'OnlineRNNPool(cell="{cell}"): a pool keeps an exact gradient for every key, which is small for cells whose units do '
            f"not see each other. Choose one of {', '.join(local)}.",
        )
        for given, what, which in (
            (keys, "keys", "that are kept"),
            (idle, "idle", "samples that a key is kept without one"),
        ):
            if given is not None:
                whole_number(given, 1, f"OnlineRNNPool({what}={given})", what, f"{which}, or None for no bound")
        self.keys, self.idle = keys, idle
        OnlineLearner.__init__(self, units, cell, None, optimiser, learning_rate, clip, seed, restart=restart)

    def _draft(self) -> "OnlineRNNPool":
        draft = whole.like(self)
        draft._session = None if self._session is None else self._session.draft()
        return draft

    def _begin(self) -> None:
        self._slots = self._slots.with_room(dict.fromkeys((history.LAST, *history.CHANGE), math.nan))

    def _usual_rate(self, exact: bool) -> float:
        return 2e-3

    def _classes(self) -> int:
        return 0

    @whole.changes
    def learn_one(self, x: dict[Hashable, Any], y: float, key: Hashable = None) -> None:
        """The next sample of a key. y is None or NaN where it is missing."""
        _check_key(key, "learn_one(x, y, key=…)")
        target = math.nan if arrays.is_missing(y) else check_number(y, "None or NaN is a missing one.")
        found = self._checked(x)
        self._slots = self._slots.with_room(found)
        values = np.full((1, self._ready()), np.nan)
        self._slots.write(found, values[0], absolute=True)
        self._learn([key], values, np.array([target]))

    @whole.changes
    def learn_many(self, X: Any, y: Any, keys: Any = None) -> None:
        """The same as `run`, without what was predicted."""
        self._run(X, y, keys, "learn_many(X, y, keys=…)")

    @whole.changes
    def run(self, X: Any, y: Any, keys: Any = None) -> np.ndarray:
        """Samples of arbitrary keys, one a row of X (frame or array), in the order of time: the predictions made before learning.

        Rows of different keys are learned together, by one update with the mean of their gradients. Where a key has several rows,
        its second is in a second update, and sees the state after its first; and so on. So how samples are put into batches
        changes when the weights change, and nothing else: states and scales of a key depend on its own samples.
        """
        return self._run(X, y, keys, "run(X, y, keys=…)")

    def _run(self, X, y, keys, call):
        columns = self._slots.check_columns(arrays.row_columns(X))
        y, keys = check_numbers(y), _check_keys(keys, len(X), call)
        refuse_unless(
            y.shape == (len(X),), f"{call}: y has shape {list(y.shape)} and X {len(X)} rows: pass one target a row."
        )
        if not len(X):
            return np.zeros(0)
        self._slots = self._slots.with_room_for_columns(columns)
        values = np.full((1, len(X), self._ready()), np.nan)
        self._slots.write_columns(columns, values, absolute=True)
        return self._learn(keys, values[0], y)

    def _learn(self, keys, values, y):
        different = len(set(keys)) if self.keys is not None else 0
        refuse_unless(
            different <= (self.keys or 0),
            f"a batch with {different} different keys for OnlineRNNPool(keys={self.keys}), which keeps no more than that: make "
            "the batch smaller, or the bound larger.",
        )
        last, said = not_none(self._session).learn(keys, values, self._put_past, y, Bounds(self.keys, self.idle))
        return prediction(last, said[:, None])

    def predict_one(self, x: dict[Hashable, Any], key: Hashable = None) -> float:
        """The target of a key's next sample. Changes nothing. Of a key that is not known: 0 at first, as river's regressors say."""
        last, out = self._predicted_one(x, key, "predict_one(x, key=…)")
        return float(prediction(last, out)[0])

    def predict_interval_one(
        self, x: dict[Hashable, Any], coverage: float = 0.9, key: Hashable = None
    ) -> tuple[float, float]:
        """Between which two numbers the target will be, so often as `coverage` says, by what was missed by for this key so far."""
        check_level(coverage, "coverage")
        last, out = self._predicted_one(x, key, "predict_interval_one(x, coverage, key=…)")
        low, high = (
            float(np.nan_to_num(last[0]) + bands.at(p, out[0, 1:])) for p in ((1 - coverage) / 2, (1 + coverage) / 2)
        )
        return low, high

    def predict_many(self, X: Any, keys: Any = None) -> Any:
        """Of one sample a row, each as the next of its key: a series with the frame's index, or an array. Changes nothing."""
        columns = self._slots.check_columns(arrays.row_columns(X))
        keys = _check_keys(keys, len(X), "predict_many(X, keys=…)")

        def write(view, values):
            known = {name: column for name, column in columns.items() if name in view._slots.kinds}
            view._slots.write_columns(known, values[None], absolute=True)

        return arrays.like(X, prediction(*self._predicted(keys, write)) if keys else np.zeros(0))

    def _predicted_one(self, x, key, call):
        _check_key(key, call)
        found = self._checked(x)

        def write(view, values):
            known = {name: value for name, value in found.items() if name in view._slots.kinds}
            view._slots.write(known, values[0], absolute=True)

        return self._predicted([key], write)

    def _predicted(self, keys, write):
        """The last target known of every key, and the change that is predicted with its levels."""
        view, found = self._current(lambda session: session.found(keys, self.idle))
        if found is None:
            return np.full(len(keys), np.nan), np.zeros((len(keys), 1 + len(bands.LEVELS)))
        values = np.full((len(keys), not_none(view._session).settings.slots), np.nan)
        write(view, values)
        view._put_past(found["known"], values)
        return found["known"][:, -1], not_none(view._session).predict(found, values)

    def _current(self, take: Callable[[Keyed], Any]) -> tuple[Any, Any]:
        """The pool at one moment, and what `take` gives of its session then; None if it has none."""
        while True:
            view = whole.view(self)
            if view._session is None:
                return view, None
            taken = take(view._session)
            if taken is not None:
                return view, taken

    def _put_past(self, newest: np.ndarray, values: np.ndarray) -> None:
        for name, column in turns.past_rows(newest).items():
            values[:, self._slots.places[name]] = column

    def _checked(self, x):
        if not isinstance(x, Mapping):
            raise InputError(f"x is {x!r}: pass a dict of features, or arrays to learn_many, run and predict_many.")
        return self._slots.check(x)

    def _ready(self) -> int:
        slots = self._slots_needed()
        if self._session is None:
            self._session = Keyed(*self._chosen(1, slots, 0))
        elif slots != self._session.settings.slots:
            self._session.grow(slots)
        return slots

    @whole.changes
    def forget(self, key: Hashable) -> bool:
        """All that is known of a key, but for what the weights have learned from it. Whether it was known."""
        _check_key(key, "forget(key)")
        known = self._session is not None and key in self._session.store.places
        if known:
            not_none(self._session).store.forget(key)
        return known

    def __contains__(self, key: Hashable) -> bool:
        """Whether a key is known, and not out of date."""
        _, rows = self._current(lambda session: session.store.current(lambda: session.store.rows([key], self.idle)))
        return rows is not None and bool(rows[0] >= 0)

    @property
    def bytes_a_key(self) -> int:
        """What a key takes in the pool's arrays, with as many features as there are now. Its name, and where it is, come to that."""
        session = Keyed(*self._chosen(1, self._slots_needed(), 0)) if self._session is None else self._session
        return session.bytes_a_key

    @whole.changes
    def warmup(self, features: Any = 0, batch: int = 1) -> None:
        """Compiles all that batches of so many different keys, and smaller ones, will need.

        `features` is their number, a sample to count, or their names; each category of a string counts as one.
        """
        whole_number(batch, 1, f"warmup(batch={batch})", "batch", "how many keys are learned at once")
        self._make_room(features, 0)
        self._ready()
        not_none(self._session).warmup(power_of_two(int(batch)))

    def report(self, key: Hashable = None) -> dict[str, Any]:
        """How it goes, for a log or a dashboard: of all keys, or of one.

        Of all: how many there are and were forgotten, what one takes, and how the keys' errors against persistence are spread: of a
        quarter of the keys that have ten samples or more it is below the lower quartile. Of one: as `OnlineRNNRegressor.report`.
        """
        view = self._whole()
        if key is None:
            return reporting.report_pool(view._session)
        refuse_unless(key in view, f"report(key={key!r}): the pool knows no such key.")
        return reporting.report_key(view._session, view._slots, view._session.store.places[key])

    def save(self, path: Any) -> None:
        """Everything, into one safetensors file, from which `load` goes on exactly."""
        OnlineLearner.save(self._whole(), path)

    def _whole(self):
        view, view._session = self._current(Keyed.snapshot)
        return view

    def __getstate__(self) -> dict[str, Any]:
        return dict(self._whole().__dict__)


def _check_keys(keys: Any, rows: int, call: str) -> list[Hashable]:
    """One a row."""
    refuse_unless(keys is not None, f"{call}: whose samples are they? Pass keys, one a row of X.")
    found = keys.tolist() if hasattr(keys, "tolist") else list(keys)
    refuse_unless(len(found) == rows, f"{call} was given {len(found)} keys and {rows} rows: pass one key a row.")
    for key in found:
        _check_key(key, call)
    return found


def _check_key(key: Any, call: str) -> None:
    if key is None or key != key:
        raise InputError(f"{call}: whose sample is it? Pass a key, such as a string or a number; {key!r} is none.")
    try:
        hash(key)
    except TypeError:
        raise InputError(f"{call}: the key {key!r} cannot be looked up: pass a string, a number, or a tuple.") from None
