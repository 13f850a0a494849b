"""Samples that were predicted and wait for their target."""

import dataclasses
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from evergrad._core.not_none import not_none

KEPT = 64  # the most that are remembered


@dataclasses.dataclass(frozen=True)
class Sample:
    """One time step of all lanes, as it was looked at."""

    key: Hashable  # of the features as given, without those of past targets
    raw: np.ndarray  # [B, d], NaN where missing
    last: np.ndarray  # [B] the last target known then, NaN before the first
    z: Any  # [B, d] standardised, on the device
    told: Any  # what the experts said of it, on the device
    before: Any  # [B, m] the hidden state it was looked at from; None: the network's own
    first: bool = False  # nothing had been learned yet
    repeats: int = 0  # how often it was asked for again, or samples that look alike followed it: nobody can tell


class Pending:
    """First in, first out, but for a sample that is found by its features.

    A target settles all that came before its own sample: what has none by then goes by without. Should its target come
    yet, it is learned as a step of its own, later than it was.

    A sample that was asked for again may have been several that look alike, as the first ones behind a fresh scaler do.
    So once it was taught it is kept as `twin`, for the targets of these. It is forgotten with the next sample, since
    asking twice is what most do; one from before the first target stays, unless a later sample is asked for again too.
    """

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque()
        self.twin: Sample | None = None  # taught last, and came before all of the samples
        self.passed: deque[Hashable] = deque(maxlen=KEPT)  # the keys of what went by

    def __len__(self) -> int:
        return len(self.samples)

    def draft(self) -> "Pending":
        new = object.__new__(Pending)  # of every call: no deques are made in vain
        new.samples, new.twin, new.passed = self.samples.copy(), self.twin, self.passed.copy()
        return new

    def replace(self, make: Callable[[Sample], Sample]) -> None:
        self.samples = deque(map(make, self.samples))
        self.twin = None if self.twin is None else make(self.twin)

    def has(self, key: Hashable) -> bool:
        return any(sample.key == key for sample in self.samples) or (self.twin is not None and self.twin.key == key)

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.twin is not None and not self.twin.first:
            self.twin = None

    def asked_again(self) -> Sample:
        """The newest sample."""
        self.twin = None
        self.samples[-1] = dataclasses.replace(self.samples[-1], repeats=self.samples[-1].repeats + 1)
        return self.samples[-1]

    def take(self, key: Hashable) -> tuple[list[Sample], Sample | None]:
        """The samples that go by without a target, and the one that this target is for, if it was looked at.

        A key that matches nothing stands for the oldest that waits: what was predicted has been transformed anew since,
        by a scaler in the pipeline for instance.
        """
        place = next((i for i, sample in enumerate(self.samples) if sample.key == key), None)
        if self.twin is not None and self.twin.key == key:
            return [], self._again()
        if place is not None:
            return [self.oldest() for _ in range(place)], self._next()
        if key in self.passed:
            self.passed.remove(key)
            return [], None
        if self.twin is not None:
            return [], self._again()
        return [], self._next() if self.samples else None

    def oldest(self) -> Sample:
        """Goes by without a target."""
        sample, self.twin = self.samples.popleft(), None
        self.passed.extend([sample.key] * (1 + sample.repeats))
        return sample

    def _next(self) -> Sample:
        sample = self.samples.popleft()
        self.twin = sample if sample.repeats else None
        return sample

    def _again(self) -> Sample:
        twin = not_none(self.twin)
        sample = dataclasses.replace(twin, repeats=twin.repeats - 1)
        self.twin = sample if sample.repeats else None
        return sample
