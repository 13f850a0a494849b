"""Forecasts of an hourly series a day ahead, made anew every few hours and scored at every step of the day.

Ours beside the seasonal naive forecast of a day and of a week, persistence, and river's Holt–Winters and SNARIMAX with a daily season.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.table import Table
from river import linear_model, preprocessing, time_series

from evergrad.bench.streams import sets
from evergrad.river import OnlineRNNForecaster

DAY, WEEK = 24, 168
HORIZON = DAY
EVERY = 6  # hours from one judged forecast to the next; all learn from every value


class Naive:
    """What was so many steps before."""

    def __init__(self, period: int):
        self.period = period
        self.values: deque[float] = deque(maxlen=period)

    def learn_one(self, y: float) -> None:
        self.values.append(y)

    def forecast(self, horizon: int) -> list[float]:
        if len(self.values) < self.period:
            return [self.values[-1]] * horizon
        return [self.values[i % self.period] for i in range(horizon)]


@dataclass(frozen=True)
class Row:
    """Mean absolute errors over all steps of the day, and at its last one."""

    model: str
    seed: int
    all_steps: float
    last_step: float


def models() -> dict[str, Callable[[int], Any]]:
    def linear():
        return preprocessing.StandardScaler() | linear_model.LinearRegression()

    return {
        "persistence": lambda seed: Naive(1),
        "seasonal naive, a day": lambda seed: Naive(DAY),
        "seasonal naive, a week": lambda seed: Naive(WEEK),
        "river Holt-Winters, level": lambda seed: time_series.HoltWinters(alpha=0.9),
        "river Holt-Winters, a day": lambda seed: time_series.HoltWinters(0.3, 0.01, 0.3, seasonality=DAY),
        "river SNARIMAX, a day": lambda seed: time_series.SNARIMAX(
            p=3, d=1, q=0, m=DAY, sp=2, sd=0, regressor=cast(Any, linear())
        ),
        "evergrad, fed back": lambda seed: OnlineRNNForecaster(seed=seed),
        "evergrad, season=(24, 168)": lambda seed: OnlineRNNForecaster(seed=seed, season=(DAY, WEEK)),
    }


def rows(data: Path | None, seeds: int, length: int) -> Iterator[Row]:
    stream = next(iter(sets.streams(data, ["ETTh1"])))
    values = np.array([x["OT"] for x in stream.features])[:length]
    for name, make in models().items():
        for seed in range(seeds if name.startswith("evergrad") else 1):
            yield Row(name, seed, *score(make(seed), values))


def score(model: Any, values: np.ndarray) -> tuple[float, float]:
    """From the second week on. A model that cannot forecast yet, or says what is no number, is judged as persistence."""
    misses = []
    for t, y in enumerate(values[:-HORIZON].tolist()):
        model.learn_one(y)
        if t >= WEEK and t % EVERY == 0:
            said = _forecast(model, y)
            misses.append(np.abs(said - values[t + 1 : t + 1 + HORIZON]))
    each = np.mean(misses, axis=0)
    return float(each.mean()), float(each[-1])


def _forecast(model, last):
    try:
        said = np.array(model.forecast(horizon=HORIZON), float)
    except (TypeError, ValueError, IndexError, OverflowError):
        return np.full(HORIZON, last)
    return np.where(np.isfinite(said), said, last)


def table(found: list[Row]) -> Table:
    shown = Table(title="ETTh1, oil temperature, up to 24 hours ahead: mean absolute error")
    for name in ("model", "seeds", "all steps", "24 ahead"):
        shown.add_column(name, justify="left" if name == "model" else "right")
    for name in dict.fromkeys(row.model for row in found):
        here = [row for row in found if row.model == name]
        means = np.mean([[row.all_steps, row.last_step] for row in here], axis=0)
        shown.add_row(name, str(len(here)), *(f"{mean:.4f}" for mean in means))
    return shown
