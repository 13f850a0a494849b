"""What has happened since a checkpoint, one line each, on the disk before anybody is told that it happened."""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evergrad._core.checks import InputError
from evergrad._core.files import refuse_other_kinds


class Event(NamedTuple):
    """The `number`-th change of a model: what was asked of it, and with what."""

    number: int
    action: str
    x: dict[str, Any]
    y: Any = None
    key: Any = None


class Journal:
    """An open file, to which events are added."""

    def __init__(self, path: Path):
        refuse_other_kinds(path)
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def add(self, events: Iterable[Event]) -> None:
        """All of them with one write, and on the disk when it returns."""
        text = b"".join(map(_line, events))
        while text:
            text = text[os.write(self._file, text) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[Event]:
    """The events of a file. A last line without an end was cut off by a kill, and nobody was told of it: it is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), start=1):
        yield _event(line, path, number)


def end(path: Path) -> int:
    """Bytes up to where the last whole line ends."""
    return path.read_bytes().rfind(b"\n") + 1


def _line(event: Event) -> bytes:
    content = json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _event(line: bytes, path: Path, number: int) -> Event:
    said, _, content = line.partition(b" ")
    if said != b"%08x" % zlib.crc32(content):
        raise InputError(
            f"line {number} of {path} is damaged: put the file back as it was, or move it away to begin at its checkpoint."
        )
    return Event(*json.loads(content))
