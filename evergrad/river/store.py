"""What the keys of a pool keep, in arrays with a row for each: on the host, so that thousands of them cost kilobytes each.

Rows are written in place, since a copy of them all for every sample would cost more than learning. That is still all or nothing:
a call notes what it is going to write; its note becomes the pool's by one assignment, and whoever comes next begins with writing
what was noted. Writing it twice, or once more after half of it was written, comes to the same. Notes are numbered, and a ledger
says which one was written last: who holds a store that others have written past is told so, and looks again.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evergrad.river import whole

NOBODY = np.iinfo(np.int64).max  # when a row that is free was seen last: never the longest ago
SEEN = "seen"  # which sample of all was the newest of a key
FEWEST = 16  # rows at first


class Note(NamedTuple):
    """Keys that go and keys that come, and their rows; what to write, and in which rows."""

    gone: dict[Hashable, int]
    come: dict[Hashable, int]
    rows: np.ndarray
    values: dict[str, np.ndarray]


class Bounds(NamedTuple):
    """How many keys are kept, and for how many samples of others each."""

    keys: int | None
    idle: int | None


class Store:
    """`fresh` has what a new key begins with."""

    def __init__(self, fresh: dict[str, np.ndarray]):
        self.fresh = {**fresh, SEEN: np.array(NOBODY)}
        self.table = {name: np.empty((0, *a.shape), a.dtype) for name, a in self.fresh.items()}
        self.places: dict[Hashable, int] = {}
        self.names: list[Hashable] = []  # whose a row is, or was
        self.free: tuple[int, ...] = ()  # rows that are nobody's any more
        self.clock = 0  # samples so far
        self.forgotten = 0  # keys
        self.number, self.note = 0, Note({}, {}, np.zeros(0, np.int64), {})
        self._ledger = [0]
        self._guard = whole.Guard()

    def draft(self) -> "Store":
        """For a call to change by a `write` or a `forget`, once."""
        with self._guard.lock:
            self._settle()
            return whole.like(self)

    def current(self, take: Callable[[], Any]) -> Any:
        """What `take()` gives, None if others have written past this store."""
        with self._guard.lock:
            self._settle()
            return take() if self._ledger[0] == self.number else None

    def _settle(self):
        if self._ledger[0] >= self.number:
            return
        for key in self.note.gone:
            self.places.pop(key, None)
        self.table[SEEN][list(self.note.gone.values())] = NOBODY
        self.places.update(self.note.come)
        highest = max(self.note.come.values(), default=-1)
        self.names.extend([None] * (highest + 1 - len(self.names)))
        for key, row in self.note.come.items():
            self.names[row] = key
        for name, values in self.note.values.items():
            self.table[name][self.note.rows] = values
        self._ledger[0] = self.number

    def _noted(self, note):
        self.number, self.note = self.number + 1, note
        self.forgotten += len(note.gone)

    def rows(self, keys: Sequence[Hashable], idle: int | None) -> np.ndarray:
        """Where keys are, −1 for those that are not known, or not any more."""
        found = np.fromiter((self.places.get(key, -1) for key in keys), np.int64, len(keys))
        if idle is not None and self.names:
            found[(found >= 0) & (self.table[SEEN][found] < self.clock - idle)] = -1
        return found

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Copies; of a key that is not known what it begins with."""
        found = {name: np.repeat(fresh[None], len(rows), axis=0) for name, fresh in self.fresh.items()}
        known = rows >= 0
        for name, a in self.table.items():
            found[name][known] = a[rows[known]]
        return found

    def write(self, keys: Sequence[Hashable], values: dict[str, np.ndarray], samples: int, bounds: Bounds) -> None:
        """Of a draft: the new values of keys, each once, after so many samples. `values[SEEN]` says when each was seen last."""
        rows = self.rows(keys, None)
        new = np.flatnonzero(rows < 0)
        gone = self._make_room(rows[rows >= 0], len(new), bounds) if len(new) else []
        rows[new] = self._take(len(new), gone)
        come = {keys[i]: int(rows[i]) for i in new.tolist()}
        self._noted(Note({self.names[row]: row for row in gone}, come, rows, values))
        self.clock += samples

    def _make_room(self, busy, new, bounds):
        """Rows of keys that go for so many new ones: those that are out of date, and the ones seen longest ago."""
        if bounds == (None, None):
            return []
        seen = self.table[SEEN][: len(self.names)].copy()
        seen[busy] = NOBODY
        many = 0 if bounds.keys is None else max(0, len(self.places) + new - bounds.keys)
        if bounds.idle is not None:
            many = max(many, int(np.count_nonzero(seen < self.clock - bounds.idle)))
        return np.argpartition(seen, many - 1)[:many].tolist() if many else []

    def _take(self, number, gone):
        """So many free rows."""
        free = [*gone, *self.free] if gone else self.free
        used, self.free = list(free[:number]), tuple(free[number:])
        more = number - len(used)
        if more > 0:
            self._reserve(len(self.names) + more)
        return [*used, *range(len(self.names), len(self.names) + more)]

    def _reserve(self, number):
        """Memory that nobody has written to is none yet, so that doubling it costs only what is used."""
        room = len(self.table[SEEN])
        if number > room:
            room = max(FEWEST, number, 2 * room)
            self.table = {name: _longer(a, room) for name, a in self.table.items()}

    def forget(self, key: Hashable) -> None:
        """Of a draft."""
        row = self.places[key]
        self._noted(Note({key: row}, {}, np.zeros(0, np.int64), {}))
        self.free += (row,)

    def __getstate__(self) -> dict[str, Any]:
        """The keys in a row without gaps."""
        with self._guard.lock:
            self._settle()
            rows = np.array(sorted(self.places.values()), np.int64)
            return {
                "fresh": {name: a for name, a in self.fresh.items() if name != SEEN},
                "keys": [self.names[row] for row in rows.tolist()],
                "arrays": {name: a[rows] for name, a in self.table.items()},
                "clock": self.clock,
                "forgotten": self.forgotten,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        Store.__init__(self, state["fresh"])
        self.names = list(state["keys"])
        self.places = {key: row for row, key in enumerate(self.names)}
        self.table = {name: np.array(state["arrays"][name]) for name in self.fresh}
        self.clock, self.forgotten = state["clock"], state["forgotten"]


def _longer(a: np.ndarray, room: int) -> np.ndarray:
    new = np.empty((room, *a.shape[1:]), a.dtype)
    new[: len(a)] = a
    return new
