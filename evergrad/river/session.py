"""What a stream learner does with samples that are already numbers: look, learn, and whole series."""

import dataclasses
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from evergrad._core.checks import DivergedError
from evergrad.river import whole
from evergrad.river.machine import Machine, Settings, machine
from evergrad.river.pending import KEPT, Pending, Sample


class Session:
    """The state of a network on B lanes, and the samples that wait for their targets.

    Time goes on once a sample, whoever comes first: a prediction looks at the sample and puts it among those that wait,
    and its target, when it comes, teaches the step that was taken then. The next sample is looked at from the hidden
    state after the newest, learned or not.
    """

    def __init__(self, settings: Settings, rates: tuple[float, float], seed: int):
        self.seed = seed
        self.rates = np.array(rates, settings.dtype)  # learning rate and clip
        self.machine: Machine = machine(settings)
        self.leaves: list[Any] = self.machine.start(jax.random.key(seed))
        self.taken = 0  # steps
        self.pending = Pending()
        self.hidden: Any = None  # after the newest sample that waits; None: as in the state, since none does
        self.asked: Hashable | None = None  # the newest sample, if nothing was learned since
        self.crowded = False  # a sample had to go by for others, and no target has found its own since
        self.warned = False  # of targets that come too late
        self._forget()

    def _forget(self):
        self.own: tuple[int, ...] = ()  # places of features made here that the machine knows of
        self.found = False  # the target that came last found the sample that it is for
        self.taught: tuple[Sample, np.ndarray, np.ndarray] | None = (
            None  # the sample that was learned last, if it had been predicted
        )

    def draft(self) -> "Session":
        """For a call to change: its arrays, its samples and its machine are this one's, and are never changed."""
        draft = whole.like(self)
        draft.pending = self.pending.draft()
        return draft

    @property
    def settings(self) -> Settings:
        return self.machine.settings

    def predict_again(self, key: Hashable) -> np.ndarray | None:
        """Of the sample that was asked for just before, if it is this one: asking twice does not make time go on.

        Once something was learned in between, equal features are the next sample.
        """
        if self.asked is None or self.asked != key:
            return None
        sample = self.pending.asked_again()
        return self._finite(self.machine.see(self.leaves, sample.before, sample.raw)[3])

    def predict(self, key: Hashable, raw: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Of one sample of every lane, [B, d], which from then on waits for its target."""
        raw = raw.astype(self.settings.dtype)
        z, hidden, told, out = self.machine.see(self.leaves, self.hidden, raw)
        self._finite(out)
        self.pending.add(Sample(key, raw, last, z, told, self.hidden, first=self.taken == 0))
        self.hidden, self.asked, self.taught = hidden, key, None
        if len(self.pending) > KEPT:
            self._pass(self.pending.oldest())
            self.crowded = True
        return out

    def ask(self, raw: np.ndarray, hidden: Any = None) -> tuple[np.ndarray, Any]:
        """A prediction, and the hidden state to ask on from, leaving everything as it is."""
        hidden = self.hidden if hidden is None else hidden
        _, hidden, _, out = self.machine.see(self.leaves, hidden, raw.astype(self.settings.dtype))
        return self._finite(out), hidden

    def take(self, key: Hashable) -> Sample | None:
        """The step that a target for these features is for, if it waits; all that came before it goes by."""
        passed, sample = self.pending.take(key)
        for earlier in passed:
            self._pass(earlier)
        found = sample is not None and sample.key == key
        if self.crowded and not found and not self.warned:
            self._warn()
        self.crowded = self.crowded and not found
        self.found = found
        return sample

    def look(self, key: Hashable, raw: np.ndarray, last: np.ndarray) -> Sample:
        """A step to learn from that was never predicted."""
        raw = raw.astype(self.settings.dtype)
        z, _, told, _ = self.machine.see(self.leaves, None, raw)
        return Sample(key, raw, last, z, told, None)

    def warmup(self) -> None:
        """Runs every program that samples one by one need, and throws away what comes out."""
        s = self.settings
        raw, nothing = np.full((s.lanes, s.slots), np.nan, s.dtype), np.zeros(s.lanes, s.dtype)
        _, hidden, _, _ = self.machine.see(self.leaves, None, raw)
        z, _, told, _ = self.machine.see(self.leaves, hidden, raw)
        if s.classes:
            self.machine.mark(self.leaves, np.ones(s.slots, s.dtype))
        folds = any(map(self.machine.full_after, range(2 * self.machine.past.period)))
        for full in (False, True) if folds else (False,):
            given = self.rates, 0, nothing, nothing, (z, raw, told)
            self.machine.step(self.leaves, *given, full)[0].block_until_ready()

    def repeated(self, key: Hashable, target: Callable[[Sample], np.ndarray]) -> bool:
        """Whether a target is told again of the sample that was predicted and learned just before, and of none that waits.

        Ensembles teach a sample several times to give it weight. Its linear part learns it again; time does not go on.
        """
        if self.taught is None or self.taught[0].key != key or self.pending.has(key):
            return False
        sample, before, weight = self.taught
        if not np.array_equal(target(sample), before):
            return False
        seen = sample.z, self._numbers(before), weight.astype(self.settings.dtype)
        self.leaves = self.machine.again(self.leaves, *seen)
        return True

    def mark(self, own: tuple[int, ...]) -> None:
        """At which places the features made here are."""
        if own != self.own:
            given = np.ones(self.settings.slots, self.settings.dtype)
            given[list(own)] = 0
            self.leaves, self.own = self.machine.mark(self.leaves, given), own

    def learn(self, sample: Sample, target: np.ndarray, weight: np.ndarray) -> None:
        self._step(sample, target, weight)
        self.taught = (sample, target, weight) if self.found else None
        self.asked = None
        if not self.pending:
            self.hidden = None

    def series(self, raws: np.ndarray, targets: np.ndarray, weights: np.ndarray, waiting: int = 0) -> np.ndarray:
        """T steps, [T, B, …], in one compiled loop: the predictions made before learning from each.

        So many as `waiting` says wait for their targets on the way.
        """
        while self.pending:
            self._pass(self.pending.oldest())
        self.hidden = self.asked = self.pending.twin = self.taught = None
        steps = len(raws)
        room = max(256, 1 << (steps - 1).bit_length())
        raws, targets, weights = (
            np.concatenate([a, np.full((room - steps, *a.shape[1:]), fill, a.dtype)])
            for a, fill in (
                (raws.astype(self.settings.dtype), np.nan),
                (self._numbers(targets), 0),
                (weights.astype(self.settings.dtype), 0),
            )
        )
        given = raws, targets, weights
        if waiting:
            sizes = np.int32(steps), np.int32(waiting)
            self.leaves, out = self.machine.late_series(self.leaves, self.rates, *sizes, *given)
        else:
            self.leaves, out = self.machine.series(self.leaves, self.rates, np.int32(steps), *given)
        self.taken += steps
        return self._finite(np.asarray(out)[:steps])

    def grow(self, *, slots: int, classes: int) -> None:
        """Room for more features or more classes."""
        for changed in ({"slots": slots}, {"classes": classes}):
            larger = machine(dataclasses.replace(self.settings, **changed))
            if larger is self.machine:
                continue
            arrays = self.machine.grow(self.machine.pack(self.leaves), larger, self.seed + slots + classes)
            self.machine, self.leaves = larger, larger.unpack(arrays)
        self.pending.replace(lambda sample: _wider(sample, slots))
        self.taught = None

    def _warn(self):
        self.warned = True
        message = (
            f"a target came for a sample that does not wait any more: {KEPT} samples wait at most, and more were "
            f"predicted since. Learned out of its time it ruins the model. If targets come more than {KEPT} samples "
            "late, call learn_one alone when they come, and instead of predict_one predict, with all samples whose "
            "targets are still to come."
        )
        warnings.warn(message, stacklevel=7)  # where learn_one was called

    def _pass(self, sample):
        nothing = np.zeros(self.settings.lanes)
        self._step(sample, nothing, nothing)

    def _step(self, sample, target, weight):
        full = self.machine.full_after(self.taken)
        seen = sample.z, sample.raw, sample.told
        self.leaves = self.machine.step(self.leaves, self.rates, len(self.pending), target, weight, seen, full)
        self.taken += 1

    def _numbers(self, targets):
        return targets.astype(np.int32 if self.settings.classes else self.settings.dtype)

    def _finite(self, out):
        if not np.isfinite(out).all():
            raise DivergedError(
                f"a prediction became non-finite after {self.taken} samples with "
                f"{self.settings.estimator!r}. Try a lower learning_rate (now {self.rates[0]:g}), or an "
                "estimator with less noise (a larger rank or window).",
                self.leaves,
                out,
            )
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "seed": self.seed,
            "rates": self.rates,
            "arrays": self.machine.pack(self.leaves),
            "passed": list(self.pending.passed),
            "pending": [_on_host(sample) for sample in self.pending.samples],
            "twin": None if self.pending.twin is None else _on_host(self.pending.twin),
            "hidden": _host(self.hidden),
            "asked": self.asked,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.seed, self.rates, self.machine = state["seed"], state["rates"], machine(state["settings"])
        self.leaves = self.machine.unpack(state["arrays"])
        self.taken = int(self.machine.assembled(state["arrays"]).state.time)
        self.pending = Pending()
        self.pending.samples.extend(Sample(*sample) for sample in state["pending"])
        self.pending.passed.extend(state["passed"])
        twin = state.get("twin")  # files of earlier versions have none
        self.pending.twin = None if twin is None else Sample(*twin)
        self.hidden, self.asked = state["hidden"], state["asked"]
        self.crowded = self.warned = False
        self._forget()


def _wider(sample, slots):
    more: Any = (0, 0), (0, slots - sample.raw.shape[1])
    raw = np.pad(sample.raw, more, constant_values=np.nan)
    return dataclasses.replace(sample, raw=raw, z=np.pad(np.asarray(sample.z), more))


def _on_host(sample):
    return (
        sample.key,
        *map(_host, (sample.raw, sample.last, sample.z, sample.told, sample.before)),
        sample.first,
        sample.repeats,
    )


def _host(a):
    return None if a is None else np.array(a)
