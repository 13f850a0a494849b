"""The tasks as a run sees them: where streams come from, what is reported, and what is held against the model."""

import abc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Integer

from evergrad import _registry as registry
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import Model
from evergrad._core.names import refuse_unknown
from evergrad._core.not_none import not_none
from evergrad._core.readouts import Linear, Readout, Softmax
from evergrad._core.sources import Source
from evergrad._tasks.add import Add
from evergrad._tasks.anbn import AnBn
from evergrad._tasks.chain import Chain
from evergrad._tasks.chaos import Chaos
from evergrad._tasks.copy import SYMBOLS, Copy
from evergrad._tasks.cue import CUES, INPUTS, Cue, unasked
from evergrad._tasks.generated import Generated, unscored
from evergrad._tasks.reading import Text, encode, fingerprint, read_parts, symbols_of
from evergrad._tasks.rotation import Rotation
from evergrad._tasks.series import FARTHEST, Scale, Series, scale_after, scored_anew
from evergrad._tasks.table import read_columns
from evergrad._tasks.text import CharacterText, bits_per_symbol
from evergrad._tasks.trace import Trace
from evergrad._training.settings import Settings, split_names


class Task(abc.ABC):
    """Made from settings; refuses data that cannot be used. `fingerprints` has the hash of every text or file."""

    source: Source
    position: Any = None  # where an opened run was in it
    inputs: int
    fingerprints: dict[str, str]
    symbols: str | None = None
    steps: int | None = None  # as many as there are, where there is an end
    unit: ClassVar[str] = "bits/symbol"
    scale: ClassVar[float] = 1 / math.log(2)  # from the readout's loss to that unit
    figure: ClassVar[str]  # the name in a report of what the run is about
    explosive: (
        float  # a loss that no sane model has: ten times that of knowing nothing, or the most that saying 0 can cost
    )

    @abc.abstractmethod
    def readout(self, units: int, key: jax.Array, initial: str = "normal") -> Readout: ...

    @abc.abstractmethod
    def start(self, model: Model, *, batch: int, key: jax.Array) -> Any: ...

    @abc.abstractmethod
    def figures(self, position: Any, loss: float, steps: int) -> dict[str, float]:
        """What a report says; `loss` is the mean over `steps` steps and all streams, as the readout measures it."""

    @abc.abstractmethod
    def headline(self, row: dict[str, Any]) -> str:
        """The figure of a report, for people; nothing where it was not measured."""

    def reported(self, position: Any) -> Any:
        """The position to go on with after a report."""
        return position

    @abc.abstractmethod
    def standstill(self, row: dict[str, Any]) -> str | None:
        """Why a report looks as if nothing had been learned, in words; None if it does not."""

    def validate(self, model: Model) -> dict[str, float]:
        """Figures that cost time, measured now and then."""
        return {}


class CopyTask(Task):
    source: Copy
    figure = "length"

    def __init__(self, settings: Settings, symbols: str | None = None):
        options = {name: getattr(settings, name) for name in ("length", "threshold", "jitter", "longest")}
        self.source = Copy(**options)
        self.inputs, self.fingerprints, self.explosive = SYMBOLS, {}, 10 * math.log2(SYMBOLS)

    def readout(self, units, key, initial="normal"):
        return Softmax(units=units, classes=SYMBOLS, key=key, initial=initial)

    def start(self, model, *, batch, key):
        return self.source.start(batch=batch, key=key)

    def figures(self, position, loss, steps):
        return {"loss": self.scale * loss, "length": int(position.length), "running_bits": float(position.bits)}

    def headline(self, row):
        return f"length {row['length']}"

    def standstill(self, row):
        first = self.source.length
        return f"the strings still have the first length, {first}" if row["length"] == first else None


class CueTask(Task):
    source: Cue
    figure, unit = "wrong", "bits/question"

    def __init__(self, settings: Settings, symbols: str | None = None):
        self.source = Cue(
            gap=not_none(settings.gap), gap_to=not_none(settings.gap_to), resets=not_none(settings.resets)
        )
        self.inputs, self.fingerprints, self.explosive = INPUTS, {}, 10 * math.log2(CUES)
        self.batch = settings.batch

    def readout(self, units, key, initial="normal"):
        return Softmax(units=units, classes=CUES, key=key, initial=initial)

    def start(self, model, *, batch, key):
        return self.source.start(batch=batch, key=key)

    def figures(self, position, loss, steps):
        """Per question, over those since the last report."""
        asked, wrong = int(position.asked), int(position.wrong)
        if not asked:
            return {"loss": None, "wrong": None, "asked": 0}
        every = steps * self.batch / asked  # so many losses of streams have one question among them
        return {"loss": self.scale * loss * every, "wrong": wrong / asked, "asked": asked}

    def reported(self, position):
        return unasked(position)

    def headline(self, row):
        if row["wrong"] is None:
            return "no question yet"
        return f"{100 * row['wrong']:.1f} % of {row['asked']} answers wrong"

    def standstill(self, row):
        if row["wrong"] is None or row["wrong"] < 0.4:
            return None
        return f"{100 * row['wrong']:.0f} % of the answers are wrong, about as many as by guessing (50 %)"


class TextTask(Task):
    source: CharacterText
    figure = "valid_bpc"

    def __init__(self, settings: Settings, symbols: str | None = None):
        parts = read_parts(settings.data, settings.valid, settings.test, as_bytes=not_none(settings.bytes))
        self.symbols = symbols_of(parts[0]) if symbols is None else symbols
        train, self.valid, self.test = (self._encoded(part) for part in parts)
        self.inputs = 256 if self.symbols is None else len(self.symbols)
        self.unigram = _entropy(train)
        refuse_unless(
            self.inputs > 1, f"{parts[0].place} has only the symbol {self.symbols!r}: there is nothing to predict."
        )
        self.explosive = 10 * math.log2(self.inputs)
        self.source = CharacterText(
            train, reset_probability=not_none(settings.reset_probability), reset_every=settings.reset_every
        )
        refuse_unless(
            settings.batch < len(train),
            f"{parts[0].place} has {len(train)} training symbols, too few for {settings.batch} streams: use a smaller "
            "--batch.",
        )
        names = ("train", "valid", "test")
        self.fingerprints = {f"{n}: {p.place}": fingerprint(p) for n, p in zip(names, parts, strict=True)}

    def _encoded(self, text: Text) -> Integer[np.ndarray, " N"]:
        refuse_unless(len(text.content) >= 2, f"{text.place} has one symbol: there is no next one to predict.")
        return encode(text, self.symbols)

    def readout(self, units, key, initial="normal"):
        return Softmax(units=units, classes=self.inputs, key=key, initial=initial)

    def start(self, model, *, batch, key):
        return self.source.start(batch=batch, key=key)

    def figures(self, position, loss, steps):
        return {"loss": self.scale * loss}

    def validate(self, model):
        return {"valid_bpc": bits_per_symbol(model, self.valid)}

    def headline(self, row):
        return "" if row.get("valid_bpc") is None else f"valid {row['valid_bpc']:.3f}"

    def standstill(self, row):
        if row["loss"] < 0.98 * self.unigram:
            return None
        return (
            f"the loss, {row['loss']:.3f} bits a symbol, is still that of knowing only how often each symbol occurs "
            f"({self.unigram:.3f})"
        )


class SeriesTask(Task):
    source: Series
    figure, unit, scale = "error", "squared error", 1.0

    def __init__(self, settings: Settings, symbols: str | None = None, columns: Sequence[str] | None = None):
        """`columns` are those of a run that is looked at again, in the order in which its model reads them."""
        if settings.data is None:
            raise InputError("a series needs a file: --data FILE.csv (or .parquet).")
        path = Path(settings.data)
        read = read_columns(
            path,
            columns or split_names(settings.columns),
            settings.time,
            missing=settings.missing == "skip",
            header=settings.header,
            fixed=columns is not None,
        )
        self.columns = read.names
        self.names = split_names(settings.targets) or list(read.names)
        for name in self.names:
            refuse_unknown("column of --targets", name, read.names, f"those read from {path} are")
        targets = [read.names.index(name) for name in self.names]
        self.values, self.targets = read.values, targets
        self.source = Series(
            read.values, targets, batch=settings.batch, ahead=not_none(settings.ahead), period=settings.period
        )
        self.inputs, self.steps = len(read.names), self.source.length
        self.explosive = 10 * len(targets) * FARTHEST**2
        self.seasonal, self.weight = settings.period is not None, np.asarray(self.source.weight)
        refuse_unless(
            settings.steps is None or settings.steps <= self.steps,
            f"--steps {settings.steps}: {path} has {self.steps} rows for each of {settings.batch} streams, and a "
            "second pass would forecast what was already seen. Leave --steps out to use them all.",
        )
        self.fingerprints = {str(path): read.digest}

    def scaling(self, settings: Settings, steps: int) -> Scale:
        """Of the model after so many steps."""
        ahead = not_none(settings.ahead)
        return scale_after(self.values, self.targets, batch=settings.batch, ahead=ahead, steps=steps)

    def readout(self, units, key, initial="normal"):
        return Linear(units=units, outputs=len(self.names), key=key, initial=initial)

    def start(self, model, *, batch, key):
        return self.source.start(model=model)

    def figures(self, position, loss, steps):
        """Mean absolute errors over the forecasts that fell due since the last report, in the columns' own units."""
        counted, sums = np.asarray(position.counted, np.float64), np.asarray(position.errors, np.float64)
        means = sums / np.maximum(counted, 1)
        ours, persistence, seasonal = (float(each) for each in means.mean(axis=1))
        now = int(position.time)
        taught = float(self.weight[now - steps : now].mean())
        figures = {"loss": loss / taught if taught else None, "error": ours, "persistence_error": persistence}
        if self.seasonal:
            figures["seasonal_error"] = seasonal
        with_one = means[1] > 0
        ratio = float((means[0][with_one] / means[1][with_one]).mean()) if with_one.any() else None
        return figures | {"relative_error": ratio, "scored": int(counted.sum())}

    def reported(self, position):
        return scored_anew(position)

    def headline(self, row):
        if row["relative_error"] is None:
            return "no forecast due yet"
        return f"error {row['error']:.4g}, {row['relative_error']:.3f} of persistence"

    def standstill(self, row):
        if row["relative_error"] is None or row["relative_error"] < 1:
            return None
        return f"the forecasts are no better than persistence ({row['relative_error']:.3f} of its error)"


class KnownTask(Task):
    """A task of which the best prediction is known: reports how far the loss is above it, as a share of how far the loss
    of knowing nothing is."""

    figure, unit, scale = "excess", "nats or squared error", 1.0
    source: Generated

    def __init__(self, settings: Settings, symbols: str | None = None):
        kind, options = _KNOWN[settings.task]
        self.source = kind(**{name: getattr(settings, name) for name in options})
        self.inputs, self.fingerprints, self.batch = self.source.inputs, {}, settings.batch
        self.explosive = 10 * math.log(self.source.classes) if self.source.classes else 1000.0 * self.source.outputs

    def readout(self, units, key, initial="normal"):
        if self.source.classes:
            return Softmax(units=units, classes=self.source.classes, key=key, initial=initial)
        return Linear(units=units, outputs=self.source.outputs, key=key, initial=initial)

    def start(self, model, *, batch, key):
        return self.source.start(batch=batch, key=key)

    def figures(self, position, loss, steps):
        """Per scored step, over those since the last report."""
        scored, least, most = int(position.scored), self.source.optimum(), self.source.ignorance()
        if not scored:
            return {"loss": None, "optimum": least, "excess": None, "scored": 0}
        loss = loss * steps * self.batch / scored
        return {"loss": loss, "optimum": least, "excess": (loss - least) / (most - least), "scored": scored}

    def reported(self, position):
        return unscored(position)

    def headline(self, row):
        if row["excess"] is None:
            return "nothing scored yet"
        return f"optimum {row['optimum']:.4f}, excess {100 * row['excess']:.1f} % of that of knowing nothing"

    def standstill(self, row):
        if row["excess"] is None or row["excess"] < 0.98:
            return None
        return f"the loss, {row['loss']:.4f}, is still that of knowing nothing ({self.source.ignorance():.4f})"


def _entropy(ids: Integer[np.ndarray, " N"]) -> float:
    """Of a symbol drawn from the text, in bits: the loss of a model that knows how often each occurs, and no more."""
    shares = np.bincount(ids) / len(ids)
    return float(-(shares * np.log2(shares, where=shares > 0, out=np.zeros_like(shares))).sum())


_KNOWN = {  # the source, and the settings that it is made from
    "add": (Add, ("t1", "t2")),
    "trace": (Trace, ("isi", "isi_to", "iti", "iti_to", "discount", "seed")),
    "rotation": (Rotation, ("dimensions", "episode", "seed")),
    "anbn": (AnBn, ("largest",)),
    "chain": (Chain, ("lag",)),
    "chaos": (Chaos, ("system", "delay", "every", "batch", "seed")),
}


def make_task(settings: Settings, symbols: str | None = None) -> Task:
    """The task of a run; `symbols` of a text, where they are known already, keep their numbers whatever the file has."""
    return registry.TASKS[settings.task].load()(settings, symbols)
