"""Damage that can be had again: what a disk, a slip or malice makes of a file, from a seed."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError

NUMBERS = ("0", "-1", "1", "2147483648", "9223372036854775808", "1e400", "9" * 5000, "null", "true", '"3"', "[]", "{}")


def damaged(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` versions of a file's content, each with one to three kinds of damage."""
    for number in range(count):
        chance, changed = random.Random(f"{seed}-{number}"), content
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            changed = chance.choice(_KINDS)(changed, chance)
        yield changed


def flipped(content: bytes, place: int) -> bytes:
    """With one bit changed, the place counted in bits."""
    index, bit = divmod(place, 8)
    return content[:index] + bytes([content[index] ^ 1 << bit]) + content[index + 1 :]


def _flip(content, chance):
    return flipped(content, chance.randrange(8 * len(content))) if content else content


def _overwrite(content, chance):
    start = chance.randrange(len(content) + 1)
    filling = chance.choice((b"\0", b"\xff", b"[", b"-", b"\x1b[31m", b"9")) * chance.choice((1, 4, 40))
    return content[:start] + filling + content[start + len(filling) :]


def _insert(content, chance):
    start = chance.randrange(len(content) + 1)
    return content[:start] + bytes(chance.randrange(256) for _ in range(chance.choice((1, 3, 9)))) + content[start:]


def _cut(content, chance):
    return content[: chance.randrange(len(content) + 1)]


def _remove(content, chance):
    start = chance.randrange(len(content) + 1)
    return content[:start] + content[start + chance.choice((1, 2, 8, 64)) :]


def _repeat(content, chance):
    start = chance.randrange(len(content) + 1)
    part = content[start : start + chance.choice((1, 8, 64, 512))]
    return content[:start] + part * chance.choice((2, 3, 50)) + content[start:]


def _number(content, chance):
    """Another value where there is a number."""
    found = list(re.finditer(rb"\d+(\.\d+)?", content))
    if not found:
        return content
    place = chance.choice(found)
    return content[: place.start()] + chance.choice(NUMBERS).encode() + content[place.end() :]


_KINDS = (_flip, _flip, _flip, _overwrite, _insert, _cut, _remove, _repeat, _number)


def changed_values(document: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """`count` versions of a JSON document with one value put in another's place, kept valid as JSON."""
    places = list(_places(document))
    strange = (None, True, -1, 0, 2**31, 2**70, 1.5, "", "x", "\x1b[2J", [], {}, [[]], {"array": "0"}, {"list": [1]})
    for number in range(count):
        chance, copy = random.Random(f"{seed}-{number}"), json.loads(json.dumps(document))
        *way, last = chance.choice(places)
        inner = copy
        for step in way:
            inner = inner[step]
        kind = chance.randrange(4)
        if kind == 0:
            del inner[last]
        else:
            inner[last] = _at(document, chance.choice(places)) if kind == 1 else chance.choice(strange)
        yield copy


def _places(document, way=()):
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in inside:
        yield (*way, name)
        yield from _places(value, (*way, name))


def _at(document, way):
    for step in way:
        document = document[step]
    return document


def result_unless_refused(call: Callable[[], Any]) -> Any:
    """What a call gives, or None if it refuses its input in a sentence; anything else that is raised is a failure."""
    try:
        return call()
    except InputError as error:
        assert_a_sentence(str(error))
        return None


def assert_a_sentence(message: str) -> None:
    assert 10 < len(message) < 2000, message[:3000]
    assert message.isprintable(), repr(message)


def peak_mib() -> float:
    """The most memory that was resident in this process since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
