"""What a run was made with: the commit, the processor, the versions. Written down at each start of it."""

import datetime
import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import evergrad
from evergrad._core.files import open_regular
from evergrad._core.machine import machine


@functools.cache
def commit() -> str | None:
    """Of the checkout that this package is in, marked where the package was changed since; None outside of one."""
    place = Path(evergrad.__file__).parent
    head = _git(place, "rev-parse", "--short=12", "HEAD")
    if head is None or _git(place, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return head + (" with changes" if _git(place, "status", "--porcelain", ".") else "")


def _git(place: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(place), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def made_with() -> dict[str, Any]:
    return {"commit": commit(), "version": evergrad.__version__, **machine()}


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


EMPTY = {"influence": "empty"}  # said of a start that goes on from an exported network


def note_start(path: Path, step: int, **more: Any) -> None:
    """One line more: from which step on, when, with what."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"from": step, "at": now()} | more | made_with()) + "\n"
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
        file.write(line)


def starts(path: Path) -> list[dict[str, Any]]:
    """None where nobody wrote them down."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
