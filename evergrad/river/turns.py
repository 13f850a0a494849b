"""A batch of samples of arbitrary keys, put in the order in which it can be learned: in turns, each with every key once at most."""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from evergrad.river import history
from evergrad.river.learner import power_of_two

TOGETHER = (
    64  # samples in one compiled call at least, if there are so many: turns that are shorter are taken several at once
)


class Turns(NamedTuple):
    """The k-th sample of a key is in turn k. Keys come in the order of their samples' number, the most first, so that those of a turn
    are the first ones, and what belongs to them is in front.
    """

    keys: list[Hashable]  # each once
    counts: np.ndarray  # [U] of their samples, the largest first
    lane: np.ndarray  # [n] the place of a sample's key among `keys`
    turn: np.ndarray  # [n]
    by_key: np.ndarray  # [n] the samples, those of one key in a row and in the order of time


class Block(NamedTuple):
    """Some turns in a row, for one compiled call, [turns, width]."""

    width: int
    turns: int
    samples: np.ndarray  # those that are in it
    at: tuple[np.ndarray, np.ndarray]  # and where


def turns(keys: Sequence[Hashable]) -> Turns:
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    which = np.fromiter(map(number.__getitem__, keys), np.int64, len(keys))
    counts = np.bincount(which)
    order = np.argsort(-counts, kind="stable")
    lane, names = np.argsort(order)[which], list(number)
    by_key = np.argsort(lane, kind="stable")
    counts = counts[order]
    turn = np.empty(len(keys), np.int64)
    turn[by_key] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Turns([names[i] for i in order], counts, lane, turn, by_key)


def blocks(batch: Turns) -> Iterator[Block]:
    """All samples, in order. Widths are powers of two, and a block of one width has as many turns as any other of it."""
    width_of = [power_of_two(int(n)) for n in np.bincount(batch.turn)]
    by_turn = np.argsort(batch.turn, kind="stable")
    ends = np.cumsum(np.bincount(batch.turn))
    first = 0
    while first < len(width_of):
        width = width_of[first]
        last = first
        while last < len(width_of) and width_of[last] == width and last - first < turns_of(width):
            last += 1
        samples = by_turn[ends[first - 1] if first else 0 : ends[last - 1]]
        yield Block(width, last - first, samples, (batch.turn[samples] - first, batch.lane[samples]))
        first = last


def turns_of(width: int) -> int:
    return max(1, TOGETHER // width)


def filled(block: Block, values: np.ndarray, empty: float) -> np.ndarray:
    """Values [n, …] of all samples, those of the block in their places, [turns there is room for, width, …]."""
    room = np.full((turns_of(block.width), block.width, *values.shape[1:]), empty, values.dtype)
    room[block.at] = values[block.samples]
    return room


def newest_before(batch: Turns, known: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The newest targets before every sample, [n, CHANGES + 1], and after all of them, [U, CHANGES + 1]; NaN in y is none.

    `known` [U, CHANGES + 1] are those before the batch.
    """
    size = known.shape[1]
    starts = np.cumsum(batch.counts) - batch.counts
    place = np.arange(len(y)) + size * (
        1 + batch.lane[batch.by_key]
    )  # of the samples, behind their keys' known targets
    everything = np.empty(len(y) + known.size)
    everything[place] = y[batch.by_key]
    of_known = (starts + size * np.arange(len(starts)))[:, None] + np.arange(size)[None]
    everything[of_known] = known
    kept = ~np.isnan(everything)
    kept[of_known] = True
    before = np.cumsum(kept) - kept  # how many are kept in front of each
    there = everything[kept]
    window = np.arange(-size, 0)[None]
    newest = np.empty((len(y), size))
    newest[batch.by_key] = there[before[place][:, None] + window]
    ends = np.append(of_known[1:, 0], len(everything)) - 1
    return newest, there[(before[ends] + kept[ends])[:, None] + window]


def past_rows(newest: np.ndarray) -> dict[Hashable, np.ndarray]:
    """The features made of the newest targets [n, CHANGES + 1]."""
    changes = np.diff(newest, axis=1)
    return {history.LAST: newest[:, -1], **{name: changes[:, -1 - i] for i, name in enumerate(history.CHANGE)}}


def first_values(batch: Turns, origins: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The first value of every slot of every key, [U, d]: `origins` where there are, else the first of `values` [n, d] that is there."""
    values = values[batch.by_key]
    place = np.where(np.isnan(values), len(values), np.arange(len(values))[:, None])
    first = np.minimum.reduceat(place, np.cumsum(batch.counts) - batch.counts, axis=0)
    found = np.take_along_axis(np.concatenate([values, np.full((1, values.shape[1]), np.nan)]), first, axis=0)
    return np.where(np.isnan(origins), found, origins)
