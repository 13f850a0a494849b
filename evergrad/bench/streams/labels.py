"""The classifier beside river's logistic regression, behind a StandardScaler: errors and log loss of every stream of labels."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from evergrad.bench.streams import sets
from evergrad.bench.streams.rivals import fixed
from evergrad.river import OnlineRNNClassifier

STREAMS = ("Phishing", "Bananas", "ImageSegments", "SEA", "Elec2")
LEAST = 1e-6  # of a probability
OURS, THEIRS = "evergrad", "river logistic regression"


@dataclass(frozen=True)
class Row:
    stream: str
    model: str
    seed: int
    wrong: float  # share
    log_loss: float


def rows(data: Path | None, only: list[str], seeds: int, length: int) -> Iterator[Row]:
    for name in only or [name for name in STREAMS if data is not None or name in sets.BUNDLED]:
        stream = next(iter(sets.streams(data, [name])))
        features, labels = stream.features[:length], stream.targets[:length]
        yield Row(name, THEIRS, 0, *one_by_one(fixed(stream)["river linear"](), features, labels))
        for seed in range(seeds):
            yield Row(name, OURS, seed, *at_once(OnlineRNNClassifier(seed=seed), features, labels))


def one_by_one(model: Any, features: list[dict], labels: list) -> tuple[float, float]:
    classes, wrong, lost = len({*labels}), 0, 0.0
    for x, y in zip(features, labels, strict=True):
        said = model.predict_proba_one(x)
        wrong += model.predict_one(x) != y
        lost -= math.log(max(said.get(y, 0.0) if said else 1 / classes, LEAST))
        model.learn_one(x, y)
    return wrong / len(labels), lost / len(labels)


def at_once(model: OnlineRNNClassifier, features: list[dict], labels: list) -> tuple[float, float]:
    """A label that never came before was given no probability, by either model; before the first all have the same."""
    names = sorted({name for x in features for name in x}, key=repr)
    shares = model._run(np.array([[float(x[name]) for name in names] for x in features]), labels)[:, 0]
    ids = np.array([model._labels.index(y) for y in labels])
    unknown = ~shares.any(axis=1)
    given = np.where(unknown, 1 / shares.shape[1], shares[np.arange(len(ids)), ids])
    wrong = (shares.argmax(axis=1) != ids) | unknown
    return float(wrong.mean()), float(-np.log(np.maximum(given, LEAST)).mean())


def table(found: list[Row]) -> Table:
    shown = Table(title="Predicting before learning: share of wrong labels and log loss")
    for name in ("stream", "model", "seeds", "wrong", "± over seeds", "log loss"):
        shown.add_column(name, justify="left" if name in ("stream", "model") else "right")
    for stream, model in dict.fromkeys((row.stream, row.model) for row in found):
        here = [row for row in found if (row.stream, row.model) == (stream, model)]
        wrong, lost = [row.wrong for row in here], float(np.mean([row.log_loss for row in here]))
        figures = f"{np.mean(wrong):.4f}", f"{np.std(wrong):.4f}", f"{lost:.4f}"
        shown.add_row(stream, model, str(len(here)), *figures, style="bold" if model == OURS else None)
    return shown
