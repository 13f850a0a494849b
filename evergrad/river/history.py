"""Past targets as features, without look-ahead."""

from collections.abc import Hashable

import numpy as np

CHANGES = 2  # how many of the newest changes of the target are features
OWN = "evergrad"  # names of features made here are pairs that start with this
LAST, CHANGE = (OWN, "last target"), tuple((OWN, f"change {i + 1}") for i in range(CHANGES))
LAST_CLASS = (OWN, "last class")


def empty(lanes: int) -> np.ndarray:
    """The newest targets of every lane, the oldest first; NaN is none."""
    return np.full((lanes, CHANGES + 1), np.nan)


def push(known: np.ndarray, y: np.ndarray) -> np.ndarray:
    """After targets y [B]; where one is missing (NaN) nothing changes."""
    new = np.empty_like(known)  # of every sample: several times quicker than to put arrays together
    new[:, :-1], new[:, -1] = known[:, 1:], y
    missing = np.isnan(y)
    if any(missing.tolist()):
        new[missing] = known[missing]
    return new


def past_one(known: np.ndarray) -> dict[Hashable, float]:
    """The features of one lane; missing ones too, so that their slots are there from the start."""
    newest = known[0].tolist()
    return {LAST: newest[-1], **{name: newest[-1 - i] - newest[-2 - i] for i, name in enumerate(CHANGE)}}


def past_columns(known: np.ndarray, y: np.ndarray) -> dict[Hashable, np.ndarray]:
    """The same as columns [T, B], at every step from the targets before it."""
    newest = np.stack([_running(lane, column) for lane, column in zip(known, y.T, strict=True)], axis=1)
    changes = np.diff(newest, axis=2)
    return {LAST: newest[..., -1], **{name: changes[..., -1 - i] for i, name in enumerate(CHANGE)}}


def as_known(y: np.ndarray, waiting: int, missing: float) -> np.ndarray:
    """Targets [T, B] at the steps after which they are known, so many as `waiting` says after their own."""
    return np.concatenate([np.full_like(y[:waiting], missing), y[: len(y) - waiting]])


def past_row(known: np.ndarray, steps: int = 1) -> dict[Hashable, np.ndarray]:
    """The same while no target comes."""
    return past_columns(known, np.full((steps, len(known)), np.nan))


def _running(known, y):
    """[T, CHANGES + 1], the newest targets before each step."""
    there = ~np.isnan(y)
    everything = np.concatenate([known, y[there]])
    before = np.cumsum(there) - there
    return everything[before[:, None] + np.arange(len(known))[None]]


def after(known: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The newest targets after all steps of y [T, B]."""
    rows = (np.concatenate([lane, column[~np.isnan(column)]]) for lane, column in zip(known, y.T, strict=True))
    return np.stack([row[-known.shape[1] :] for row in rows])


def last_class_columns(last: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The id of the newest class before each step, as columns [T, B] of strings (None: none), and after the last one.

    ids [T, B] are below 0 where the class is missing.
    """
    everything = np.concatenate([last[None], ids])
    rows = np.maximum.accumulate(np.where(everything >= 0, np.arange(len(everything))[:, None], 0), axis=0)
    newest = np.take_along_axis(everything, rows, axis=0)
    names = np.array([*map(str, range(newest.max() + 1)), None], object)
    return names[newest[:-1]], newest[-1]


def classes_before(known: int, ids: np.ndarray) -> np.ndarray:
    """How many classes are known before each step of ids [T, B], [T], `known` of them from the start.

    Ids are given in the order in which classes appear.
    """
    return np.maximum.accumulate(np.concatenate([[known], ids.max(axis=1) + 1]))[:-1]
