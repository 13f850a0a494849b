"""What processes that were killed have left behind, removed where it is ours and nobody can be working with it any more."""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from evergrad._core.files import is_beside

_MOMENT = 60.0  # seconds; between a folder and the lock in it there are microseconds


def clear_beside(folder: Path, files: Iterable[str]) -> None:
    """Half-written files in a run's folder, whose lock the caller holds: whoever wrote them did too."""
    for path in list(folder.iterdir()):
        if any(is_beside(path.name, of) for of in files) and path.is_file() and not path.is_symlink():
            path.unlink()


def clear_half_made(path: Path, settings: str, lock: str) -> None:
    """Folders that were to become the run `path`, of processes that are gone: their locks are free."""
    for half in list(path.parent.iterdir()):
        if re.fullmatch(rf"\.{re.escape(path.name)}-[a-z0-9_]{{8}}", half.name):
            with contextlib.suppress(OSError):
                _clear(half, settings, lock)


def _clear(half, settings, lock):
    def ours(name):
        return name in (settings, lock) or is_beside(name, settings)

    found = list(half.iterdir())
    if half.is_symlink() or half.stat().st_uid != os.getuid() or not all(ours(path.name) for path in found):
        return
    if not (half / lock).exists():  # killed before there was one, made by an older version, or just being made
        if time.time() - half.stat().st_mtime > _MOMENT:
            _remove(half, found)
        return
    with open(os.open(half / lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(half, found)


def _remove(half, found):
    for path in found:
        path.unlink()
    half.rmdir()
