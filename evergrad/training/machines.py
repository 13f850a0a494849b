"""On which devices and in how many processes a run goes: not part of what it is, since its results are the same.

Nothing here imports JAX before it must, so that `--help` is quick.
"""

import dataclasses
from typing import Any

from evergrad.checks import refuse_unless
from evergrad.team import Alone, Team, join, leave_at_once, numbers_address
from evergrad.training.resolve import checked
from evergrad.training.settings import default, flag, option

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
        None, int, "How many processes there are.", group=_DEVICES, at_least=1, otherwise="one process"
    )
    process_id: int | None = option(
        None, int, "Which one this is, from 0.", group=_DEVICES, at_least=0, otherwise="one process"
    )
    join_timeout: float = option(
        60.0, float, "Seconds to wait for the other processes at the start.", group=_DEVICES, above=0
    )


def machine_fields() -> list[dataclasses.Field]:
    return list(dataclasses.fields(Machines))


def take_machines(given: dict[str, Any]) -> tuple[Machines, dict[str, Any]]:
    """Those options of a command line that are about machines, checked, and the others."""
    mine = {f.name: f for f in machine_fields()}
    said = {n: checked(mine[n], v, flag(n)) for n, v in given.items() if n in mine and v is not None}
    machines = Machines(**{name: default(field, "") for name, field in mine.items()} | said)
    _check(machines)
    return machines, {name: value for name, value in given.items() if name not in mine}


def _check(machines: Machines) -> None:
    together = ("coordinator", "processes", "process_id")
    missing = [flag(name) for name in together if getattr(machines, name) is None]
    refuse_unless(
        len(missing) in (0, 3),
        f"--coordinator, --processes and --process-id go together: {', '.join(missing)} is missing.",
    )
    if not missing:
        refuse_unless(
            machines.process_id < machines.processes,
            f"--process-id {machines.process_id}: {machines.processes} processes have the ids 0 to "
            f"{machines.processes - 1}.",
        )


def muster(machines: Machines) -> Alone | Team:
    """All processes of the run, ready to compute together."""
    if machines.coordinator is None or machines.processes == 1:
        return Alone()
    import jax

    id, size = machines.process_id, machines.processes
    lost = lambda message, code: leave_at_once(_and_then(message), code)  # noqa: E731
    team = join(machines.coordinator, id, size, machines.join_timeout, lost)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        numbers_address(machines.coordinator),
        size,
        id,
        initialization_timeout=max(1, int(machines.join_timeout)),
        cluster_detection_method="deactivate",
    )
    return team


def _and_then(message: str) -> str:
    return f"{message}. Go on from the last checkpoint with `evergrad resume RUN`, with as many processes or fewer."


def make_mesh(machines: Machines, team: Alone | Team) -> Any:
    """The mesh to spread a run over; None for one device."""
    import jax
    import numpy as np

    from evergrad.placing import mesh_for

    found, wanted = jax.devices(), machines.devices
    if team.size == 1 and wanted in (None, 1):
        return None
    kind = found[0].platform
    refuse_unless(
        wanted is None or wanted <= len(found),
        f"--devices {wanted}: there are only {len(found)} ({kind})."
        + (" XLA_FLAGS=--xla_force_host_platform_device_count=N makes N of one CPU." if kind == "cpu" else ""),
    )
    refuse_unless(
        wanted is None or wanted % team.size == 0,
        f"--devices {wanted} cannot be shared out evenly over {team.size} processes: use a multiple of {team.size}.",
    )
    each = len(found) // team.size if wanted is None else wanted // team.size
    chosen = [d for i in range(team.size) for d in [d for d in found if d.process_index == i][:each]]
    refuse_unless(
        len(chosen) == each * team.size, f"the processes do not have {each} devices each, which --devices asks for."
    )
    return mesh_for(jax.sharding.Mesh(np.array(chosen), ("devices",)), machines.shard, "evergrad train")
