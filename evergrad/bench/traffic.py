"""What a compiled program moves between devices, read from the program itself."""

import dataclasses
import math
import re
from collections.abc import Iterator

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "bf16": 2, "f16": 2}
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_MOVE = re.compile(rf"= (.*?) ({'|'.join(_KINDS)})(-start)?\(")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLED = re.compile(r"(\w+)=\{?(%[\w.-]+(?:, ?%[\w.-]+)*)\}?")


@dataclasses.dataclass(frozen=True)
class Move:
    """One collective operation; `loops` is in how many loops, one in the other, it stands."""

    kind: str
    bytes: int  # of its result, on one device
    loops: int


def moves(program: str) -> list[Move]:
    """All collective operations of a compiled program (HLO text)."""
    entry, bodies = _computations(program)
    return list(_walk(bodies, entry, 0))


def _computations(program: str) -> tuple[str, dict[str, list[str]]]:
    entry, name, bodies = "", "", {}
    for line in program.splitlines():
        head = _HEAD.match(line)
        if head:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name:
            bodies[name].append(line)
    return entry, bodies


def _walk(bodies: dict[str, list[str]], name: str, loops: int) -> Iterator[Move]:
    for line in bodies.get(name, []):
        move = _MOVE.search(line)
        if move:
            yield Move(move[2], sum(map(_size, _SHAPE.findall(move[1]))), loops)
        for role, names in _CALLED.findall(line):
            if role in ("to_apply",) and " call(" not in line:  # what an all-reduce adds with, and the like
                continue
            for called in re.findall(r"%([\w.-]+)", names):
                yield from _walk(bodies, called, loops + (role == "body"))


def _size(shape: tuple[str, str]) -> int:
    kind, sizes = shape
    return _BYTES.get(kind, 0) * math.prod(int(n) for n in sizes.split(",") if n)
