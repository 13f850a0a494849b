"""What a series did a season before the time that is forecast, and where in the season that time is."""

from collections.abc import Hashable

import numpy as np

from evergrad.river.history import OWN

HARMONICS = 2  # waves in a season


def names(seasons: tuple[int, ...]) -> list[Hashable]:
    waves = [
        (OWN, f"{wave} {k} of {m}") for m in seasons for k in range(1, HARMONICS + 1) for wave in ("sine", "cosine")
    ]
    return [*((OWN, f"season {m}") for m in seasons), *waves]


def kept(seasons: tuple[int, ...], horizon: int) -> int:
    """How many of the newest values are asked for."""
    return max([horizon + 1, *(m * -(-horizon // m) for m in seasons)]) + 2


def columns(values: np.ndarray, time: int, seasons: tuple[int, ...], horizon: int) -> dict[Hashable, np.ndarray]:
    """Of the steps 1 … horizon after the newest of `values`, the one at `time`: columns [1, horizon].

    A season's is the value at the same place in it, the newest that is known, less the newest value of all.
    """
    ahead = np.arange(1, horizon + 1)
    found: dict[Hashable, np.ndarray] = {}
    for m in seasons:
        back = m * -(-ahead // m) - ahead  # from the newest
        there = back < len(values)
        value = values[len(values) - 1 - np.where(there, back, 0)]
        found[(OWN, f"season {m}")] = np.where(there, value - values[-1], np.nan)[None]
        for k in range(1, HARMONICS + 1):
            angle = 2 * np.pi * k * ((time + ahead) % m) / m
            found[(OWN, f"sine {k} of {m}")] = np.sin(angle)[None]
            found[(OWN, f"cosine {k} of {m}")] = np.cos(angle)[None]
    return found
