"""What a pool does with samples that are already numbers: predict and learn, each by its key."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from evergrad._core.checks import DivergedError
from evergrad.river import history, turns, whole
from evergrad.river.crowd import Crowd, crowd
from evergrad.river.learner import power_of_two
from evergrad.river.machine import Settings
from evergrad.river.store import SEEN, Bounds, Store

MOST = 4096  # samples that are predicted at once
Past = Callable[[np.ndarray, np.ndarray], None]  # puts the newest targets [n, …] into values [n, d]


class Keyed:
    """A network, and the state of every key. Nothing of it is changed by a call, but replaced (`draft`)."""

    def __init__(self, settings: Settings, rates: tuple[float, float], seed: int):
        self.seed = seed
        self.rates = np.array(rates, settings.dtype)  # learning rate and clip
        self.crowd: Crowd = crowd(settings)
        self.shared, row = self.crowd.start(seed)
        self.store = Store(fresh(row, settings.slots))

    @property
    def settings(self) -> Settings:
        return self.crowd.settings

    @property
    def bytes_a_key(self) -> int:
        return sum(a.nbytes for a in self.store.fresh.values())

    def draft(self) -> "Keyed":
        draft = whole.like(self)
        draft.store = self.store.draft()
        return draft

    def found(self, keys: Sequence[Hashable], idle: int | None) -> dict[str, np.ndarray] | None:
        """What is known of keys, one by one; None if somebody has learned meanwhile."""
        return self.store.current(lambda: self.store.read(self.store.rows(keys, idle)))

    def predict(self, found: Mapping[str, np.ndarray], values: np.ndarray) -> np.ndarray:
        """Of samples [n, d] of keys of which that is known: the change that is predicted and its levels, [n, 1 + k]."""
        origins = np.where(np.isnan(found["origins"]), values, found["origins"])
        raws = (values - origins).astype(self.settings.dtype)
        parts = (slice(i, i + MOST) for i in range(0, len(raws), MOST))
        return self._finite(np.concatenate([self._look(found["state"][part], raws[part]) for part in parts]))

    def _look(self, rows, raws):
        width = power_of_two(len(raws))
        return np.asarray(self.crowd.look(self.shared, self._padded(rows, width), _longer(raws, width)))[: len(raws)]

    def learn(
        self, keys: Sequence[Hashable], values: np.ndarray, past: Past, y: np.ndarray, bounds: Bounds
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples [n, d] of keys, in the order of time, with their targets: the last target known before each, and what was predicted."""
        batch = turns.turns(keys)
        known = self.store.read(self.store.rows(batch.keys, bounds.idle))
        newest, after = turns.newest_before(batch, known["known"], y)
        past(newest, values)
        origins = turns.first_values(batch, known["origins"], values)
        raws = (values - origins[batch.lane]).astype(self.settings.dtype)
        said, rows = self._taught(batch, known["state"], raws, y - newest[:, -1])
        new = {"state": rows, "origins": origins, "known": after, SEEN: self._seen(batch)}
        self.store.write(batch.keys, new, len(keys), bounds)
        return newest[:, -1], self._finite(said)

    def _taught(self, batch, rows, raws, changes):
        there = ~np.isnan(changes)
        given = raws, np.where(there, changes, 0).astype(raws.dtype), there.astype(raws.dtype), np.ones(len(raws), bool)
        said = np.empty(len(raws))
        for block in turns.blocks(batch):
            arrays = (turns.filled(block, a, empty) for a, empty in zip(given, (np.nan, 0, 0, False), strict=True))
            first = self._padded(rows[: block.width], block.width)
            self.shared, new, out = self.crowd.learn(self.shared, self.rates, first, np.int32(block.turns), *arrays)
            rows[: block.width] = np.asarray(new)[: len(rows[: block.width])]
            said[block.samples] = np.asarray(out)[block.at]
        return said, rows

    def _seen(self, batch):
        """The number of every key's newest sample."""
        return self.store.clock + batch.by_key[np.cumsum(batch.counts) - 1]

    def _padded(self, rows, width):
        """With new keys' behind."""
        more = width - len(rows)
        return np.concatenate([rows, np.repeat(self.store.fresh["state"][None], more, axis=0)]) if more else rows

    def warmup(self, width: int) -> None:
        """Compiles what batches of so many keys, and of less, need."""
        s = self.settings
        while width:
            raws, rows = (
                np.full((width, s.slots), np.nan, s.dtype),
                self._padded(self.store.fresh["state"][None], width),
            )
            self.crowd.look(self.shared, rows, raws)
            many = np.broadcast_to(raws[None], (turns.turns_of(width), *raws.shape))
            none = np.zeros(many.shape[:2], s.dtype)
            self.crowd.learn(self.shared, self.rates, rows, np.int32(1), many, none, none, none > 0)[
                1
            ].block_until_ready()
            width //= 2

    def grow(self, slots: int) -> None:
        """Room for more features."""
        larger, state = crowd(dataclasses.replace(self.settings, slots=slots)), self.store.__getstate__()
        arrays = state["arrays"]
        grown = self.crowd.grow(self.shared, arrays["state"], larger, self.seed + slots)
        self.crowd, (self.shared, rows, row) = larger, grown
        more: Any = (0, 0), (0, slots - arrays["origins"].shape[1])
        arrays |= {"state": rows, "origins": np.pad(arrays["origins"], more, constant_values=np.nan)}
        self.store = Store.__new__(Store)
        self.store.__setstate__({**state, "fresh": fresh(row, slots), "arrays": arrays})

    def _finite(self, out):
        if not np.isfinite(out).all():
            raise DivergedError(
                f"a prediction became non-finite after {self.store.clock} samples of {len(self.store.places)} keys. Try a "
                f"lower learning_rate (now {self.rates[0]:g}).",
                self.shared,
                out,
            )
        return out

    def snapshot(self) -> "Keyed | None":
        """A copy that shares nothing that is written to; None if somebody has learned meanwhile."""
        state = self.store.current(self.store.__getstate__)
        if state is None:
            return None
        new = whole.like(self)
        new.store = Store.__new__(Store)
        new.store.__setstate__(state)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "seed": self.seed,
            "rates": self.rates,
            "shared": self.crowd.pack(self.shared),
            "store": self.store.__getstate__(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.seed, self.rates, self.crowd = state["seed"], state["rates"], crowd(state["settings"])
        self.shared = self.crowd.unpack(state["shared"])
        self.store = Store.__new__(Store)
        self.store.__setstate__(state["store"])


def fresh(row: np.ndarray, slots: int) -> dict[str, np.ndarray]:
    """Of a new key: the network's state, the first value of every feature, the newest targets."""
    return {"state": row, "origins": np.full(slots, np.nan), "known": history.empty(1)[0]}


def _longer(raws: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate([raws, np.full((width - len(raws), raws.shape[1]), np.nan, raws.dtype)])
