"""Samples that were predicted and wait for their target."""

import dataclasses
from collections import deque
from collections.abc import Hashable
from typing import Any

import numpy as np

KEPT = 64  # the most that are remembered


@dataclasses.dataclass
class Sample:
    """One time step of all lanes, as it was looked at."""

    key: Hashable  # of the features as given, without those of past targets
    raw: np.ndarray  # [B, d], NaN where missing
    last: np.ndarray  # [B] the last target known then, NaN before the first
    z: Any  # [B, d] standardised, on the device
    before: Any  # [B, m] the hidden state it was looked at from; None: the network's own


class Pending:
    """First in, first out, but for a sample that is found by its features.

    A target settles all that came before its own sample: what has none by then goes by without. Should its target come
    yet, it is learned as a step of its own, later than it was.
    """

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque()
        self.passed: deque[Hashable] = deque(maxlen=KEPT)  # the keys of what went by

    def __len__(self) -> int:
        return len(self.samples)

    def asked_again(self) -> Sample:
        """The newest sample. Should these be two that look alike, the second target finds it among the passed."""
        self.passed.append(self.samples[-1].key)
        return self.samples[-1]

    def take(self, key: Hashable) -> tuple[list[Sample], Sample | None]:
        """The samples that go by without a target, and the one that this target is for, if it was looked at as it is.

        A key that matches nothing stands for the oldest that waits: what was predicted has been transformed anew since,
        by a scaler in the pipeline for instance.
        """
        for place, sample in enumerate(self.samples):
            if sample.key == key:
                return [self.oldest() for _ in range(place)], self.samples.popleft()
        if key in self.passed:
            self.passed.remove(key)
        elif self.samples:
            self.samples.popleft()
        return [], None

    def oldest(self) -> Sample:
        """Goes by without a target."""
        sample = self.samples.popleft()
        self.passed.append(sample.key)
        return sample
