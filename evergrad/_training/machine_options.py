"""On which devices and in how many processes a run goes: not part of what it is, since its results are the same.

Nothing here imports JAX, so that `--help` is quick.
"""

import dataclasses

from evergrad._training.settings import option

AUTO = "auto"  # --processes as the cluster has them
_DEVICES = "Devices and processes"
MOST = 4096  # processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    devices: int | None = option(
        None,
        int,
        "Devices to spread the run over, those of all processes together; of a CPU so many are made.",
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
        None, str, "HOST:PORT at which process 0 listens.", group=_DEVICES, otherwise="one process"
    )
    processes: str | None = option(
        None,
        str,
        "How many processes there are; auto asks SLURM, Open MPI or Kubernetes for this and the other two.",
        group=_DEVICES,
        otherwise="one process",
    )
    process_id: int | None = option(
        None, int, "Which one this is, from 0.", group=_DEVICES, at_least=0, otherwise="one process"
    )
    join_timeout: float = option(
        60.0, float, "Seconds to wait for the other processes at the start.", group=_DEVICES, above=0
    )


def machine_fields() -> list[dataclasses.Field]:
    return list(dataclasses.fields(Machines))
