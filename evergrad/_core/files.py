"""Files that are there whole or not at all, that can be trusted when they are read back, and no links followed to write.

A document with a checksum is a JSON object whose last entry, `checksum`, is the SHA-256 of all others in canonical JSON.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless

CHECKSUM = "checksum"
_PRODUCT = "evergrad"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` at the end, in one move, if all went well."""
    refuse_other_kinds(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: Path, content: str) -> None:
    """Text, on the disk for good before it takes its name."""
    with written_whole(path) as beside, beside.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def is_beside(name: str, of: str) -> bool:
    """Whether a file of this name was to become `of`; older versions named it after their process."""
    return re.fullmatch(rf"\.{re.escape(of)}\.([0-9a-f]{{16}}|[0-9]{{1,7}})", name) is not None


def write_checked(path: Path, document: dict[str, Any]) -> None:
    """A document of ours and its checksum."""
    content = with_checksum({"product": _PRODUCT} | document)
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_checked(path: Path, *, old: int = 0) -> dict[str, Any]:
    """What `write_checked` wrote; refused if it is anything else. Up to the format `old` there was no checksum."""
    try:
        document = parse(read_regular(path))
        refuse_unless(isinstance(document, dict) and document.get("product") == _PRODUCT, "evergrad did not write it")
        return intact(document, old=old)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    except InputError as error:
        raise InputError(f"{path} is damaged or not ours ({error}): put it back as it was.") from None


def with_checksum(document: dict[str, Any], length: int = 64) -> dict[str, Any]:
    return document | {CHECKSUM: digest(document)[:length]}


def intact(document: Any, *, old: int = 0, length: int = 64) -> dict[str, Any]:
    """A document without its checksum; refused where that does not fit, or is missing in a format later than `old`."""
    refuse_unless(isinstance(document, dict), "it is no JSON object")
    said, rest = document.get(CHECKSUM), {name: value for name, value in document.items() if name != CHECKSUM}
    before = CHECKSUM not in document and type(rest.get("format")) is int and 1 <= rest["format"] <= old
    refuse_unless(before or said == digest(rest)[:length], "its checksum does not fit, so it was changed")
    return rest


def digest(document: Any) -> str:
    """SHA-256 of canonical JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse(content: bytes) -> Any:
    """JSON, whatever somebody has put there."""
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is no JSON: {error}") from None


def read_regular(path: Path) -> bytes:
    """All of a regular file; a pipe or a device is refused before it is read."""
    with os.fdopen(_opened(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read()


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file, made if it is not there; no link is followed."""
    try:
        return _opened(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        refuse_unless(error.errno != errno.ELOOP, _no_link(path))
        raise


def _opened(path, flags):
    number = os.open(path, flags | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise InputError(f"{path} is not a file with content: take it away.")
    return number


def refuse_other_kinds(path: Path, *, folder: bool = False) -> None:
    """Refuses to write where there is a link, or anything but a file (or a folder); nothing there is fine."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    refuse_unless(not stat.S_ISLNK(mode), _no_link(path))
    kind, right = ("folder", stat.S_ISDIR(mode)) if folder else ("file", stat.S_ISREG(mode))
    refuse_unless(right, f"{path} is there already and is no {kind}: take it away, or choose another path.")


def refuse_links_below(folder: Path) -> None:
    """Refuses a tree with a link in it, before anything in it is changed or deleted."""
    refuse_other_kinds(folder, folder=True)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            refuse_unless(not path.is_symlink(), _no_link(path))


def _no_link(path):
    return (
        f"{path} is a link, and evergrad writes and deletes nothing behind links: put the file or folder itself there."
    )
