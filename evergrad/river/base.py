"""What regressor, classifier and forecaster have in common."""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from evergrad._core.checks import InputError, refuse_unless, whole_number
from evergrad._core.not_none import not_none
from evergrad.river import history, reporting, whole
from evergrad.river.learner import OnlineLearner
from evergrad.river.pending import KEPT, Sample
from evergrad.river.session import Session

Columns = Mapping[Hashable, np.ndarray]


class StreamLearner(OnlineLearner):
    """Of one stream, or of B lanes: parallel streams that share the network. What a subclass adds is the target."""

    _session: Session | None
    _peeking = False  # the next prediction is asked for to be looked at, and is no sample

    def _draft(self) -> "StreamLearner":
        """For a call to change: nothing that is reached from here is changed, only replaced."""
        draft = whole.like(self)
        draft._session = None if self._session is None else self._session.draft()
        return draft

    @property
    def _lanes(self) -> int | None:
        return None if self._session is None else self._session.settings.lanes

    @property
    def _streams(self) -> int:
        """Those that there are, or will be."""
        return int(self.lanes) if self._session is None else self._session.settings.lanes

    def _check_lanes(self, lanes: int) -> None:
        if lanes > 0 and self._lanes in (None, lanes):
            return  # every sample comes this way, so no message is made in advance
        name = type(self).__name__
        refuse_unless(lanes > 0, f"{name} was given no rows: pass one row a lane.")
        raise InputError(
            f"{name} was given {lanes} lanes and had {self._lanes} before: the number of parallel streams cannot "
            "change under way. Use a clone() for another number."
        )

    def _check_features(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float | str]:
        """Of one lane, those that are not missing. Changes nothing."""
        if not isinstance(x, Mapping):
            raise InputError(f"x is {x!r}: pass a dict of features, or arrays to partial_fit, predict and run.")
        self._check_lanes(1)
        return self._slots.check(x)

    def _encode_one(self, found: dict[Hashable, float | str], past: Mapping[Hashable, Any]) -> np.ndarray:
        """[1, d]."""
        found = {**found, **past}
        self._slots = self._slots.with_room(found)
        raw = np.full((1, self._ready(1)), np.nan)
        self._slots.write(found, raw[0])
        return raw

    def _encode_columns(
        self, columns: Mapping[Hashable, np.ndarray], past: Mapping[Hashable, np.ndarray]
    ) -> np.ndarray:
        """[T, B, d] of columns [T, B] that were checked."""
        columns = {**columns, **past}
        self._slots = self._slots.with_room_for_columns(columns)
        shape = next(iter(columns.values())).shape
        raws = np.full((*shape, self._ready(shape[1])), np.nan)
        self._slots.write_columns(columns, raws)
        return raws

    def _encode_known(self, columns: Columns, past: Columns) -> np.ndarray:
        """The same of features that were seen before; others are left out and nothing changes."""
        columns = {name: column for name, column in {**columns, **past}.items() if name in self._slots.kinds}
        shape = next(iter(columns.values())).shape
        raws = np.full((*shape, not_none(self._session).settings.slots), np.nan)
        self._slots.write_columns(columns, raws)
        return raws

    @whole.changes
    def warmup(self, features: Any = 0, classes: int = 0) -> None:
        """Compiles all that samples one by one will need, so that none of them has to wait.

        `features` is their number, a sample to count, or their names; each category of a string counts as one. Room is
        made for so many, and for so many classes; more than these compile once more. What is known stays known.
        """
        self._make_room(features, classes)
        self._ready(self._streams)
        not_none(self._session).warmup()

    @whole.reads
    def report(self) -> dict[str, Any]:
        """How it goes, for a log or a dashboard: numbers, or a list of them where there are several lanes.

        Errors, losses and shares are running means with a memory of 1,000 samples, of all that was predicted and learned.
        """
        if self._session is None:
            return {"samples": 0, "waiting": 0}
        return reporting.report(self._session, self._slots)

    @whole.changes
    def debug_one(self, x: Mapping[Hashable, Any]) -> str:
        """For river's `Pipeline.debug_one`, which asks for a prediction next: that one is not taken for a sample."""
        self._check_features(x)
        self._peeking = True
        return f"{type(self).__name__} after {0 if self._session is None else self._session.taken} samples"

    def _step_of(self, key: Hashable, last: np.ndarray, encode: Callable[[], np.ndarray]) -> Sample:
        """The step that a target is for: the one that was predicted, or else one that is taken now."""
        sample = None if self._session is None else self._session.take(key)
        if sample is None:
            raw = encode()
            sample = not_none(self._session).look(key, raw, last)
        return sample

    def _predict_step(self, key: Hashable, last: np.ndarray, encode: Callable[[], np.ndarray]) -> np.ndarray:
        if self._peeking:
            self._peeking, raw = False, encode()
            return not_none(self._session).ask(raw)[0]
        out = None if self._session is None else self._session.predict_again(key)
        if out is None:
            raw = encode()
            out = not_none(self._session).predict(key, raw, last)
        return out

    def _ready(self, lanes: int) -> int:
        """A session with room for all features and classes. Both come in powers of two, to compile seldom."""
        slots, classes = self._slots_needed(), self._classes()
        if self._session is None:
            self._session = Session(*self._chosen(lanes, slots, classes))
        elif (slots, classes) != (self._session.settings.slots, self._session.settings.classes):
            self._session.grow(slots=slots, classes=classes)
        if classes:
            self._session.mark(tuple(self._slots.categories.get(history.LAST_CLASS, {}).values()))
        return slots


def waiting_of(delay: int) -> int:
    """How many samples wait for a target that is known `delay` samples late: none if it is known before the next one."""
    whole_number(delay, 0, f"run(delay={delay})", "delay", "how many samples late a target is known")
    refuse_unless(delay <= KEPT, f"run(delay={delay}): no more than {KEPT} samples can wait for their targets.")
    return max(int(delay) - 1, 0)


def check_shapes(columns: Columns, shape: tuple[int, int]) -> None:
    refuse_unless(shape[0] > 0, "there are no rows: nothing to learn from, nothing to predict.")
    for name, column in columns.items():
        refuse_unless(
            column.shape == shape,
            f"feature {name!r} has {column.shape[0]} steps of {column.shape[1]} lanes and y {shape[0]} of {shape[1]}: "
            "they must agree.",
        )


def row_key(columns: Columns) -> str:
    """One for equal features of all lanes."""
    content = sorted((repr(name), column.tolist()) for name, column in columns.items())
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()
