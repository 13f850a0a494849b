"""Reports in a file, one JSON object a line, each with a checksum of its own. In files of older versions no line has one."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evergrad._core.checks import refuse_unless
from evergrad._core.files import CHECKSUM, intact, parse, read_regular, with_checksum

_LENGTH = 12  # digits of a line's checksum


class Found(NamedTuple):
    rows: list[dict[str, Any]]
    unread: list[tuple[int, bytes]]  # lines that are no reports, by number


def line(row: dict[str, Any]) -> str:
    plain = {name: finite_or_none(value) for name, value in row.items()}
    return json.dumps(with_checksum(plain, _LENGTH), allow_nan=False) + "\n"


def finite_or_none(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows(path: Path, complain: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """The reports in a file; `complain` hears of lines that are left out."""
    found = read(path)
    for number, _ in found.unread:
        complain(f"{path}, line {number} is cut off, damaged or no report: it is left out.")
    return found.rows


def newest(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The last value of every figure, since not all are measured at every report; None without any report."""
    last: dict[str, Any] = {}
    for row in found:
        last |= row
    return last or None


def read(path: Path) -> Found:
    found = Found([], [])
    content = read_regular(path) if path.exists() else b""
    older = f'"{CHECKSUM}"'.encode() not in content
    for number, text in enumerate(content.splitlines(keepends=True), 1):
        try:
            found.rows.append(_report(text, older))
        except ValueError:
            found.unread.append((number, text))
    return found


def _report(text: bytes, older: bool) -> dict[str, Any]:
    row = parse(text)
    refuse_unless(isinstance(row, dict) and type(row.get("step")) is int, "it is no report")
    if not older:
        return intact(row, length=_LENGTH)
    refuse_unless(text.endswith(b"\n"), "it is cut off")
    refuse_unless(all(value is None or type(value) in (int, float) for value in row.values()), "it is no report")
    return row
