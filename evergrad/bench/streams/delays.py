"""How the regressor fares beside persistence when targets come late: every series, every delay.

A series with values of its own (`Stream.own`) is forecast so many samples ahead as the delay says, and a target is known when its
time has come; 0 is one ahead, learned at once. One without (TrumpApproval) has its target known so many samples late.
Persistence is the last target known.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from evergrad._core.files import written_whole
from evergrad.bench.streams import sets
from evergrad.river import OnlineRNNRegressor

DELAYS = tuple(range(61))
ALLOWED = 1.01  # of persistence's error
SERIES = ("WaterFlow", "AirlinePassengers", "TrumpApproval", "respiratory", "ETTh1", "exchange", "price", "demand")


@dataclass(frozen=True)
class Row:
    """Mean absolute errors over all samples but the first that nothing could be known of."""

    series: str
    delay: int
    seed: int
    ours: float
    persistence: float

    @property
    def ratio(self) -> float:
        return self.ours / self.persistence


def names(data: Path | None) -> list[str]:
    return [name for name in SERIES if data is not None or name in sets.BUNDLED]


def rows(data: Path | None, only: list[str], delays: list[int], seeds: int, **settings: Any) -> Iterator[Row]:
    for name in only or names(data):
        stream = next(iter(sets.streams(data, [name])))
        for delay in delays:
            X, y = problem(stream, delay)
            for seed in range(seeds):
                yield run(name, X, y, delay, seed, settings)


def problem(stream: sets.Stream, delay: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets, a row a sample."""
    features = sorted({name for x in stream.features for name in x}, key=repr)
    X = np.array([[_number(x[name]) for name in features] for x in stream.features])
    y = np.array(stream.targets, float)
    if stream.own is None:
        return X, y
    ahead, own = max(delay, 1), X[:, features.index(stream.own)]
    return X[:-ahead], own[ahead:]


def run(name: str, X: np.ndarray, y: np.ndarray, delay: int, seed: int, settings: dict[str, Any]) -> Row:
    first = max(delay, 1)
    said = OnlineRNNRegressor(seed=seed, **settings).run(X, y, delay=delay)
    ours, persistence = (float(np.abs(y[first:] - p).mean()) for p in (said[first:], y[:-first]))
    return Row(name, delay, seed, ours, persistence)


def worst(found: list[Row]) -> dict[str, tuple[Row, float, float]]:
    """Of each series: the worst row, the mean ratio over all delays, and the best one."""
    groups = {name: [row for row in found if row.series == name] for name in dict.fromkeys(r.series for r in found)}
    return {
        name: (max(rows, key=_ratio), float(np.mean([r.ratio for r in rows])), min(r.ratio for r in rows))
        for name, rows in groups.items()
    }


def table(found: list[Row]) -> Table:
    shown = Table(title="Error / persistence's error, over all delays")
    for name in ("series", "worst", "at delay", "mean", "best"):
        shown.add_column(name, justify="left" if name == "series" else "right")
    for name, (row, mean, best) in worst(found).items():
        style = "bold red" if row.ratio > ALLOWED else None
        shown.add_row(name, f"{row.ratio:.4f}", str(row.delay), f"{mean:.4f}", f"{best:.4f}", style=style)
    return shown


def write_csv(found: list[Row], path: Path) -> None:
    with written_whole(path) as beside, beside.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "delay", "seed", "ours", "persistence", "ratio"])
        for r in found:
            writer.writerow([r.series, r.delay, r.seed, f"{r.ours:.6g}", f"{r.persistence:.6g}", f"{r.ratio:.5f}"])


def _ratio(row: Row) -> float:
    return row.ratio


def _number(value: Any) -> float:
    return value.toordinal() if hasattr(value, "toordinal") else float(value)
