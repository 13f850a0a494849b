"""What all learners of evergrad.river have in common."""

import abc
import numbers
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np

import evergrad as eg
from evergrad._core.checks import refuse_unless, whole_number
from evergrad.river import history, saving, whole
from evergrad.river.machine import CELLS, OPTIMISERS, Settings
from evergrad.river.slots import Slots

SEEDS = 2**62  # a key is made of 64 bits, one of them a sign, and later ones are counted on from it


class OnlineLearner(abc.ABC):
    """A recurrent network that learns from every sample as it comes: its settings, its features, and a file of it."""

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
    _session: Any  # the network and what it knows, once there was a sample

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
        self._guard = whole.Guard()
        self._slots = Slots()
        self._session = None
        self._begin()

    @abc.abstractmethod
    def _draft(self) -> "OnlineLearner":
        """For a call to change: nothing that is reached from here is changed, only replaced."""

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

    @whole.reads
    def save(self, path: str | Path) -> None:
        """Everything, into one safetensors file, from which `load` goes on exactly."""
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "OnlineLearner":
        return saving.load(cls, path)

    @property
    def _raw_memory_usage(self) -> int:
        """Bytes, those of the arrays included."""
        return len(pickle.dumps(self))

    def _chosen(self, lanes: int, slots: int, classes: int) -> tuple[Settings, tuple[float, float], int]:
        """What a new network is like, its learning rate and clip, and its seed."""
        seed = int(cast(int, np.random.SeedSequence().entropy) % 2**31) if self.seed is None else int(self.seed)
        cell = self._usual_cell if self.cell is None else self.cell
        exact = issubclass(CELLS[cell], eg.UnitCell)
        usual = eg.RTRL() if exact else eg.OK(rank=4, window=16)
        estimator = usual if self.estimator is None else self.estimator
        rate = self._usual_rate(exact) if self.learning_rate is None else self.learning_rate
        sizes: dict[str, Any] = {"lanes": lanes, "slots": slots, "classes": classes, "layers": int(self.layers)}
        settings = Settings(cell, int(self.units), estimator, self.optimiser, **sizes)
        return settings, (float(rate), float(self.clip)), seed

    def _slots_needed(self) -> int:
        """Room for all features. It comes in powers of two, to compile seldom."""
        return power_of_two(max(4, len(self._slots), self._room[0]))

    def _make_room(self, features: Any, classes: int) -> None:
        """For so many features, their number or a sample to count, and classes, beside those made here."""
        number = features if isinstance(features, numbers.Integral) else len(features)
        for given, what in ((number, "features"), (classes, "classes")):
            whole_number(given, 0, f"warmup({what}={given})", what, "how many there will be")
        own = sum(isinstance(name, tuple) and name[:1] == (history.OWN,) for name in self._slots.kinds)
        self._room = own + int(number) + int(classes), int(classes)


def power_of_two(number: int) -> int:
    """The next one, so that what is compiled for a size serves many."""
    return 1 << (number - 1).bit_length()
