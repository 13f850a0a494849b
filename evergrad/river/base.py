"""What regressor, classifier and forecaster have in common."""

import abc
import hashlib
import numbers
import pickle
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless, whole_number
from evergrad._core.not_none import not_none
from evergrad.river import history, reporting, saving, whole
from evergrad.river.machine import CELLS, OPTIMISERS, Settings
from evergrad.river.pending import KEPT, Sample
from evergrad.river.session import Session
from evergrad.river.slots import Slots

SEEDS = 2**62  # a key is made of 64 bits, one of them a sign, and later ones are counted on from it
Columns = Mapping[Hashable, np.ndarray]


class StreamLearner(abc.ABC):
    """A recurrent network that learns from every sample as it comes. What a subclass adds is the target.

    B lanes are parallel streams that share the network; with dicts there is one.
    """

    units: int
    cell: str | None
    estimator: eg.Estimator | None
    optimiser: str
    learning_rate: float | None
    clip: float
    seed: int | None
    layers: int
    lanes: int
    restart: bool

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
        lanes: int = 1,
        restart: bool = False,
    ):
        name = type(self).__name__
        whole_number(units, 1, f"{name}(units={units})", "units", "the size of the hidden state")
        whole_number(layers, 1, f"{name}(layers={layers})", "layers", "the cells on top of each other")
        whole_number(lanes, 1, f"{name}(lanes={lanes})", "lanes", "the parallel streams")
        for given, known, what in (
            ("lstm" if cell is None else cell, CELLS, "cell"),
            (optimiser, OPTIMISERS, "optimiser"),
        ):
            refuse_unless(given in known, f'{name}({what}="{given}"): choose one of {", ".join(known)}.')
        refuse_unless(
            estimator is None or isinstance(estimator, eg.Estimator),
            f"{name}(estimator={estimator!r}) needs an estimator such as eg.OK(rank=4, window=16), or None for the usual one.",
        )
        for given, what in ((1.0 if learning_rate is None else learning_rate, "learning_rate"), (clip, "clip")):
            refuse_unless(
                isinstance(given, numbers.Real) and bool(0 < given < np.inf),
                f"{name}({what}={given}) must be a number above 0.",
            )
        if seed is not None:
            large = isinstance(seed, numbers.Integral) and int(seed) >= SEEDS
            refuse_unless(not large, f"{name}(seed={seed}) is too large: choose one below 2**62.")
            whole_number(seed, 0, f"{name}(seed={seed})", "seed", "or None for another one every time")
        self.units, self.cell, self.estimator, self.optimiser = units, cell, estimator, optimiser
        self.learning_rate, self.clip, self.seed, self.layers = learning_rate, clip, seed, layers
        self.lanes, self.restart = lanes, restart
        self._room = 0, 0  # features and classes that are to come
        self.notes: dict[str, Any] = {}  # the user's own, kept in the file with the model: a log's offset, say
        self._peeking = False  # the next prediction is asked for to be looked at, and is no sample
        self._guard = whole.Guard()
        self._slots = Slots()
        self._session: Session | None = None
        self._begin()

    def _draft(self) -> "StreamLearner":
        """For a call to change: nothing that is reached from here is changed, only replaced."""
        draft = whole.like(self)
        draft._session = None if self._session is None else self._session.draft()
        return draft

    @abc.abstractmethod
    def _begin(self) -> None:
        """What else there is at the start."""

    @abc.abstractmethod
    def _usual_rate(self, exact: bool) -> float:
        """Of learning, unless another is given: with an exact gradient, and with a noisy one."""

    @abc.abstractmethod
    def _classes(self) -> int:
        """Room for classes, 0 for a regression."""

    @property
    def _usual_cell(self) -> str:
        """One with a cheap exact gradient; in a stack, or for an estimator of somebody's choice, one that all of them can do with."""
        return "elstm" if self.estimator is None and self.layers == 1 else "lstm"

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

    @whole.reads
    def save(self, path: str | Path) -> None:
        """Everything, into one safetensors file, from which `load` goes on exactly."""
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "StreamLearner":
        return saving.load(cls, path)

    @whole.changes
    def warmup(self, features: Any = 0, classes: int = 0) -> None:
        """Compiles all that samples one by one will need, so that none of them has to wait.

        `features` is their number, a sample to count, or their names; each category of a string counts as one. Room is
        made for so many, and for so many classes; more than these compile once more. What is known stays known.
        """
        number = features if isinstance(features, numbers.Integral) else len(features)
        for given, what in ((number, "features"), (classes, "classes")):
            whole_number(given, 0, f"warmup({what}={given})", what, "how many there will be")
        own = sum(isinstance(name, tuple) and name[:1] == (history.OWN,) for name in self._slots.kinds)
        self._room = own + int(number) + int(classes), int(classes)
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

    @property
    def _raw_memory_usage(self) -> int:
        """Bytes, those of the arrays included."""
        return len(pickle.dumps(self))

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
        slots, classes = power_of_two(max(4, len(self._slots), self._room[0])), self._classes()
        if self._session is None:
            seed = int(cast(int, np.random.SeedSequence().entropy) % 2**31) if self.seed is None else int(self.seed)
            cell = self._usual_cell if self.cell is None else self.cell
            exact = issubclass(CELLS[cell], eg.UnitCell)
            usual = eg.RTRL() if exact else eg.OK(rank=4, window=16)
            estimator = usual if self.estimator is None else self.estimator
            rate = self._usual_rate(exact) if self.learning_rate is None else self.learning_rate
            rates = float(rate), float(self.clip)
            sizes: dict[str, Any] = {"lanes": lanes, "slots": slots, "classes": classes, "layers": int(self.layers)}
            settings = Settings(cell, int(self.units), estimator, self.optimiser, **sizes)
            self._session = Session(settings, rates, seed)
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


def power_of_two(number: int) -> int:
    """The next one, so that what is compiled for a size serves many."""
    return 1 << (number - 1).bit_length()


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
