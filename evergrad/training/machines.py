"""The devices and processes of a run, from the options that name them."""

from typing import Any

import jax
import numpy as np

from evergrad.checks import refuse_unless
from evergrad.placing import mesh_for
from evergrad.team import LOST, Alone, Team, join, leave_at_once, numbers_address
from evergrad.training.machine_options import Machines, machine_fields
from evergrad.training.resolve import checked
from evergrad.training.settings import default, flag


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
    id, size = machines.process_id, machines.processes
    team = join(machines.coordinator, id, size, machines.join_timeout, _leave)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        numbers_address(machines.coordinator),
        size,
        id,
        initialization_timeout=max(1, int(machines.join_timeout)),
        cluster_detection_method="deactivate",
    )
    return team


def _leave(message: str, code: int) -> None:
    resume = "Go on from the last checkpoint with `evergrad resume RUN`, with as many processes or fewer."
    leave_at_once(f"{message}. {resume}" if code == LOST else message, code)


def make_mesh(machines: Machines, team: Alone | Team) -> Any:
    """The mesh to spread a run over; None for one device."""
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
