"""A model on the disk: a checkpoint now and then, and a journal of all that has happened since.

In a folder of its own: `00000000012000.safetensors` is the model after 12,000 changes, `00000000012000.journal` has those that
came after it. A new checkpoint is on the disk before its journal is begun, and an old one is deleted only then; so whenever it is
killed, the newest checkpoint and what the journals say from there on are all that anybody was told of.
"""

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import refuse_other_kinds
from evergrad.river.saving import load_any
from evergrad.serve import journal
from evergrad.serve.actions import ACTIONS
from evergrad.serve.journal import Event, Journal

KEPT = 2  # checkpoints


class Keeper:
    """Of one model, in a folder that no other process may use meanwhile."""

    def __init__(
        self, folder: Path, *, first: Callable[[], Any], every: int = 10_000, say: Callable[[str], None] = print
    ):
        """`first` makes the model that a new folder begins with."""
        self.folder, self.every, self._say = folder, every, say
        refuse_other_kinds(folder, folder=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / "lock")
        if not self._checkpoints():
            self._save(first(), 0)
        self.model, self.number = self._restored()
        self._since = self.number - self._newest()
        self._journal = self._continued()

    def keep(self, events: Iterable[Event]) -> None:
        """Events that have happened to the model, in order; a checkpoint when there are enough."""
        events = list(events)
        self._journal.add(events)
        self.number, self._since = self.number + len(events), self._since + len(events)
        if self._since >= self.every:
            self.checkpoint()

    def checkpoint(self) -> None:
        """The model as it is, and a new journal."""
        if not self._since:
            return
        self._save(self.model, self.number)
        self._journal.close()
        self._journal, self._since = Journal(self._path(self.number, "journal")), 0
        for old in self._checkpoints()[:-KEPT]:
            self._path(old, "journal").unlink(missing_ok=True)
            self._path(old, "safetensors").unlink()

    def close(self, *, checkpoint: bool = True) -> None:
        """With a last checkpoint, unless what the model has become was not kept."""
        if checkpoint:
            self.checkpoint()
        self._journal.close()
        os.close(self._lock)

    def _save(self, model, number):
        path = self._path(number, "safetensors")
        model.save(path)
        _on_disk(path)
        _on_disk(self.folder)

    def _restored(self):
        """The newest checkpoint that is whole, with all that happened after it."""
        problems = []
        for number in reversed(self._checkpoints()):
            try:
                model = load_any(self._path(number, "safetensors"))
            except InputError as error:
                problems.append(str(error))
                self._say(f"{error} The checkpoint before it is used.")
                continue
            return model, self._replayed(model, number)
        raise InputError(f"no checkpoint in {self.folder} can be used. The newest: {problems[0]}")

    def _replayed(self, model, number):
        later = [n for n in self._numbers("journal") if n >= number]
        for begun in later:
            for event in journal.read(self._path(begun, "journal")):
                refuse_unless(
                    event.number == number + 1,
                    f"{self.folder} lacks what happened between {number} and {event.number}: put its journals back.",
                )
                ACTIONS[event.action].apply(model, event.x, event.y, event.key)
                number = event.number
        return number

    def _continued(self):
        """The last journal, without the half line that a kill may have left."""
        path = self._path(max([*self._numbers("journal"), self._newest()]), "journal")
        if path.exists():
            refuse_other_kinds(path)
            os.truncate(path, journal.end(path))
        return Journal(path)

    def _newest(self):
        return self._checkpoints()[-1]

    def _checkpoints(self):
        return self._numbers("safetensors")

    def _numbers(self, ending):
        return sorted(int(path.stem) for path in self.folder.glob(f"*.{ending}") if path.stem.isdecimal())

    def _path(self, number, ending):
        return self.folder / f"{number:014d}.{ending}"


def _locked(path: Path) -> int:
    refuse_other_kinds(path)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(
            f"{path.parent} is in use by another process: stop that one, or give another --state."
        ) from None
    return lock


def _on_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
