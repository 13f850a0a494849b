"""The least time of a step on accelerators that are not here, on paper: the planner's counts over published peaks.

A step takes at least flops / peak and at least bytes / bandwidth. Which of the two is larger depends on the arithmetic
intensity flops / bytes: above peak / bandwidth, products decide, below it memory does.
"""

import dataclasses
from typing import Any

import jax
from rich.table import Table

import evergrad as eg
from evergrad._core.planner import counted

WINDOWS, STREAMS = (0, 16, 64), (16, 256)
BYTES = 4  # of a number of the influence, in float32


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """What its maker says of it: flops a second in float32 products as they are usually run, and bytes a second of memory."""

    name: str
    flops: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Flops a byte above which products decide."""
        return self.flops / self.bandwidth


ACCELERATORS = (
    Accelerator("H100 SXM (TF32)", 494e12, 3.35e12),
    Accelerator("TPU v6e (bf16)", 918e12, 1.64e12),
)


@dataclasses.dataclass(frozen=True)
class Point:
    """A step of all streams."""

    estimator: eg.OK
    streams: int
    flops: float
    bytes: float
    held: float  # bytes of the influence

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    def seconds(self, on: Accelerator) -> float:
        """The least that it takes."""
        return max(self.flops / on.flops, self.bytes / on.bandwidth)

    def decides(self, on: Accelerator) -> str:
        return "products" if self.intensity > on.ridge else "memory"


def points(units: int, rank: int) -> list[Point]:
    cell = eg.RHN(inputs=50, units=units, key=jax.random.key(0))
    return [point(cell, eg.OK(rank=rank, window=window), streams) for window in WINDOWS for streams in STREAMS]


def point(cell: eg.Cell, estimator: eg.OK, streams: int) -> Point:
    estimator.check(cell)
    cost = counted(estimator, cell)
    flops, passes = 2 * streams * cost.multiply_adds, BYTES * streams * cost.touched
    carried = sum(a.size for a in jax.tree.leaves(jax.eval_shape(lambda: estimator.influence.init(cell))))
    return Point(estimator, streams, flops, passes, BYTES * streams * carried)


def table(found: list[Point]) -> Table:
    shown = Table(title="At the least, from counted work and published peaks; nothing here was measured")
    for name in ("", "streams", "GFLOP", "GB", "flops a byte", "influence", *(each.name for each in ACCELERATORS)):
        shown.add_column(name, justify="left" if not name else "right")
    for each in found:
        least = (f"{1e6 * each.seconds(on):,.0f} µs, {each.decides(on)}" for on in ACCELERATORS)
        work = (
            f"{each.flops / 1e9:.2f}",
            f"{each.bytes / 1e9:.3f}",
            f"{each.intensity:.0f}",
            f"{each.held / 1e9:.2f} GB",
        )
        shown.add_row(repr(each.estimator), f"{each.streams}", *work, *least)
    return shown


def as_json(each: Point) -> dict[str, Any]:
    least = {on.name: {"seconds": each.seconds(on), "decides": each.decides(on)} for on in ACCELERATORS}
    counts = {"flops": each.flops, "bytes": each.bytes, "influence_bytes": each.held}
    return {"estimator": repr(each.estimator), "streams": each.streams} | counts | {"at_least": least}
