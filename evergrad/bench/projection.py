"""From the bytes a step moves to a step on many accelerators: arithmetic, with every assumption named."""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """Of a machine that nobody here has measured; round figures of today's accelerators, on the cautious side."""

    flops: float = 10e12  # sustained by one accelerator in float32 on products of 256 x 256
    node: int = 8  # accelerators that share fast links
    inside_bandwidth: float = 100e9  # bytes a second, each direction, of one accelerator within a node
    outside_bandwidth: float = 12.5e9  # the same between nodes (100 Gbit/s an accelerator)
    inside_latency: float = 10e-6  # seconds of an all-reduce of nothing within a node
    outside_latency: float = 15e-6  # for each doubling of the number of nodes
    launch: float = 100e-6  # seconds a step spends on starting kernels, whatever their size


@dataclasses.dataclass(frozen=True)
class Work:
    """One step of a setting."""

    lanes: int  # on one accelerator
    flops: float  # of one lane and step
    payload: int  # bytes that are summed over all accelerators


def all_reduce_seconds(payload: int, devices: int, a: Assumptions) -> float:
    """A ring within the node, then a ring over the nodes, each accelerator with its share, then back."""
    inside = min(devices, a.node)
    nodes = math.ceil(devices / a.node)
    seconds = 0.0
    if inside > 1:
        seconds += a.inside_latency + 2 * (inside - 1) / inside * payload / a.inside_bandwidth
    if nodes > 1:
        share = payload / inside
        seconds += a.outside_latency * math.log2(nodes) + 2 * (nodes - 1) / nodes * share / a.outside_bandwidth
    return seconds


def project(work: Work, devices: tuple[int, ...], a: Assumptions) -> list[dict[str, Any]]:
    """The lanes grow with the devices, so that each has as many as now."""
    compute = a.launch + work.lanes * work.flops / a.flops
    rows = []
    for n in devices:
        moving = all_reduce_seconds(work.payload, n, a)
        rows.append(
            {
                "devices": n,
                "lanes": n * work.lanes,
                "compute_us": compute * 1e6,
                "all_reduce_us": moving * 1e6,
                "steps_per_second": 1 / (compute + moving),
                "efficiency": compute / (compute + moving),
            }
        )
    return rows
