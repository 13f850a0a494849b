"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` at the end, in one move, if all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
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
