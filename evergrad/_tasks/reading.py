"""Text files, read with errors that name the file and the line."""

import hashlib
import itertools
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from evergrad._core.checks import InputError, refuse_unless

BUILT_IN = "the text that comes with Python (pydoc_data.topics)"
_HELD_OUT = 20  # valid and test are each one twentieth of a single file


@dataclass(frozen=True)
class Text:
    """What was read from a place, as characters or as bytes."""

    place: str
    content: str | bytes
    first_line: int = 1

    def line(self, index: int) -> int:
        before = self.content[:index]
        return self.first_line + (before.count("\n") if isinstance(before, str) else before.count(b"\n"))


def read_text(path: Path, *, as_bytes: bool = False) -> Text:
    """The file's characters, newlines as they are, or its bytes; refused if it is empty or no UTF-8 text."""
    raw = read_file(path)
    refuse_unless(len(raw) > 0, f"{path} is empty: give a text to learn from.")
    if as_bytes:
        return Text(str(path), raw)
    zero = raw.find(b"\0")
    if zero >= 0:
        raise InputError(f"{_at(path, raw, zero)} has a zero byte, so it is no text: read it with --bytes.")
    try:
        return Text(str(path), raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{_at(path, raw, error.start)} is not UTF-8 (byte 0x{raw[error.start]:02x}): convert it, say with "
            f"`iconv -f latin1 -t utf-8`, or use --bytes to read it as bytes."
        ) from None


def read_file(path: Path, *, pipe: bool = False) -> bytes:
    """All of a regular file, or of a pipe if that will do. Anything else, a device that never ends say, is refused unread.

    A pipe that nobody writes to is empty: nothing waits for a writer.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            kind = os.fstat(file.fileno()).st_mode
            what = "a pipe" if stat.S_ISFIFO(kind) else "a device"
            refuse_unless(
                stat.S_ISREG(kind) or (pipe and stat.S_ISFIFO(kind)),
                f"{path} is {what} and no file: write what it gives to a file, and name that.",
            )
            os.set_blocking(file.fileno(), True)
            return file.read()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path and its permissions.") from None
    except MemoryError:
        raise InputError(f"{path} is larger than the memory of this machine: give a part of it.") from None


def _at_once(path, flags):
    """Opens without waiting for whoever writes to a pipe."""
    refuse_unless("\0" not in os.fspath(path), f"{path} has a zero byte in its name: no file has.")
    return os.open(path, flags | os.O_NONBLOCK)


def _at(path: Path, raw: bytes, index: int) -> str:
    return f"{path}, line {Text(str(path), raw).line(index)}"


def read_parts(data: str | None, valid: str | None, test: str | None, *, as_bytes: bool) -> tuple[Text, Text, Text]:
    """Train, valid and test text: from three files, from a folder of three, or from one file split 90/5/5."""
    if data is None:
        refuse_unless(valid is None and test is None, "--valid and --test go with --data: name the training text too.")
        return split(built_in_text(as_bytes=as_bytes))
    path = Path(data)
    if path.is_dir():
        refuse_unless(valid is None and test is None, f"{data} is a folder, which has its own valid.txt and test.txt.")
        return _read_all((path / f"{part}.txt" for part in ("train", "valid", "test")), as_bytes)
    if valid is None and test is None:
        return split(read_text(path, as_bytes=as_bytes))
    if valid is None or test is None:
        raise InputError("--valid and --test go together: give both, or neither to have the one file split 90/5/5.")
    return _read_all((path, Path(valid), Path(test)), as_bytes)


def _read_all(paths, as_bytes):
    train, valid, test = (read_text(path, as_bytes=as_bytes) for path in paths)
    return train, valid, test


def split(text: Text) -> tuple[Text, Text, Text]:
    """The first 90 %, the next 5 % and the last 5 %."""
    size = len(text.content)
    held_out = size // _HELD_OUT
    refuse_unless(
        held_out >= 2,
        f"{text.place} has {size} symbols: at least {2 * _HELD_OUT} are needed for a split into 90/5/5; "
        "or give --valid and --test files.",
    )
    cuts = (0, size - 2 * held_out, size - held_out, size)
    train, valid, test = (Text(text.place, text.content[a:b], text.line(a)) for a, b in itertools.pairwise(cuts))
    return train, valid, test


def built_in_text(*, as_bytes: bool = False) -> Text:
    """A real English text that every Python carries: its language reference, topic by topic."""
    from pydoc_data.topics import topics

    content = "\n".join(topics[name] for name in sorted(topics))
    return Text(BUILT_IN, content.encode() if as_bytes else content)


def symbols_of(text: Text) -> str | None:
    """The characters in order of first appearance, or None for bytes, which are all of 0 to 255."""
    return "".join(dict.fromkeys(text.content)) if isinstance(text.content, str) else None


def encode(text: Text, symbols: str | None) -> Integer[np.ndarray, " N"]:
    """Numbers of the symbols; a character that is none of them is refused with its line."""
    content: Any = text.content  # bytes where there are no symbols, else str
    if symbols is None:
        return np.frombuffer(content, np.uint8)
    points = np.frombuffer(content.encode("utf-32-le"), np.uint32)
    known = np.frombuffer(symbols.encode("utf-32-le"), np.uint32)
    order = np.argsort(known)
    found = order[np.minimum(np.searchsorted(known, points, sorter=order), len(known) - 1)]
    strange = np.flatnonzero(known[found] != points)
    if len(strange):
        first = int(strange[0])
        raise InputError(
            f"{text.place}, line {text.line(first)} has the character {text.content[first]!r}, which the training text "
            "never had: clean the file, train on a text that has it, or use --bytes."
        )
    return found.astype(np.uint8 if len(known) <= 256 else np.int32)


def fingerprint(text: Text) -> str:
    content = text.content if isinstance(text.content, bytes) else text.content.encode()
    return hashlib.sha256(content).hexdigest()
