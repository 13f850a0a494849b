"""Damage, drawn at random from a seed: to bytes, to JSON, and to folders."""

import copy
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    return chance.choice(_BYTES)(bytearray(content), chance)


def _flip(content, chance):
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def _cut(content, chance):
    return bytes(content[: chance.randrange(len(content) + 1)])


def _without_a_part(content, chance):
    first, last = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return bytes(content[:first] + content[last:])


def _zeroed(content, chance):
    first, last = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return bytes(content[:first]) + bytes(last - first) + bytes(content[last:])


def _more(content, chance):
    at = chance.randrange(len(content) + 1)
    return bytes(content[:at]) + chance.randbytes(chance.randrange(1, 9)) + bytes(content[at:])


_BYTES = (_flip, _flip, _flip, _cut, _without_a_part, _zeroed, _more)


def damaged_json(document: Any, chance: random.Random) -> Any:
    """One entry, somewhere in it, renamed, taken away, given another value or another type."""
    changed = copy.deepcopy(document)
    holder, key = chance.choice(list(_entries(changed)))
    chance.choice(_ENTRY)(holder, key, chance)
    return changed


def _entries(document):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield document, key
        if isinstance(value, dict | list):
            yield from _entries(value)


def _rename(holder, key, chance):
    if isinstance(holder, dict):
        holder[f"{key}{chance.choice('_sx')}"] = holder.pop(key)


def _remove(holder, key, chance):
    del holder[key]


def _other_type(holder, key, chance):
    holder[key] = chance.choice([None, True, -1, 10**30, 0.5, "x", "", [], [[]], {}, {"a": 1}])


def _other_value(holder, key, chance):
    value = holder[key]
    changes = {
        bool: lambda: not value,
        int: lambda: value + chance.choice([-1, 1, 100]),
        float: lambda: value * 1.5 + 1,
    }
    holder[key] = changes.get(type(value), lambda: f"{value}!")()


_ENTRY = (_rename, _remove, _other_type, _other_value)


def damage_file(path: Path, chance: random.Random) -> None:
    if chance.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(damaged_bytes(path.read_bytes(), chance))


def damage_tree(folder: Path, chance: random.Random) -> None:
    """To one file or folder in it, or to two that change places."""
    places = sorted(path for path in folder.rglob("*"))
    kind: Callable = chance.choice((_damage_some_file, _damage_some_file, _delete, _exchange))
    kind(places, chance)


def _damage_some_file(places, chance):
    damage_file(chance.choice([path for path in places if path.is_file()]), chance)


def _delete(places, chance):
    path = chance.choice(places)
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _exchange(places, chance):
    """Two of a kind, and not one inside the other."""
    one = chance.choice(places)
    others = [p for p in places if p.is_dir() == one.is_dir() and p not in one.parents and one not in (p, *p.parents)]
    if others:
        other, away = chance.choice(others), one.with_name("away")
        one.rename(away)
        other.rename(one)
        away.rename(other)
