"""On which devices and in how many processes a run goes: not part of what it is, since its results are the same.

Nothing here imports JAX, so that `--help` is quick.
"""

import dataclasses

from evergrad.training.settings import option

_DEVICES = "Devices and processes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    devices: int | None = option(
        None,
        int,
        "Devices to spread the run over, those of all processes together.",
        group=_DEVICES,
        at_least=1,
        otherwise="1, or all that the processes have",
    )
    shard: str = option(
        "lanes",
        str,
        "What is spread: the streams, or the influence of every stream (ok, rtrl).",
        group=_DEVICES,
        choices=("lanes", "influence"),
    )
    coordinator: str | None = option(
        None, str, "HOST:PORT of process 0; the port above is used too.", group=_DEVICES, otherwise="one process"
    )
    processes: int | None = option(
        None, int, "How many processes there are.", group=_DEVICES, at_least=1, at_most=65_536, otherwise="one process"
    )
    process_id: int | None = option(
        None, int, "Which one this is, from 0.", group=_DEVICES, at_least=0, otherwise="one process"
    )
    join_timeout: float = option(
        60.0, float, "Seconds to wait for the other processes at the start.", group=_DEVICES, above=0
    )


def machine_fields() -> list[dataclasses.Field]:
    return list(dataclasses.fields(Machines))
