"""The devices and processes of a run, from the options that name them."""

import contextlib
import dataclasses
import os
from typing import Any

import jax
import numpy as np
from jax._src.clusters import ClusterEnv

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.machine import cores
from evergrad._core.not_none import not_none
from evergrad._core.placing import mesh_for
from evergrad._training.machine_options import AUTO, MOST, Machines, machine_fields
from evergrad._training.resolve import checked
from evergrad._training.settings import default, flag
from evergrad._training.team import LOST, Alone, Team, address, join, leave_at_once

_MOST_EACH = 256  # devices of a process; JAX counts beyond 2048 as those of the next


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
    if machines.processes == AUTO:
        return
    refuse_unless(
        len(missing) in (0, 3),
        f"--coordinator, --processes and --process-id go together: {', '.join(missing)} is missing.",
    )
    if not missing:
        size = _count(not_none(machines.processes))
        address(not_none(machines.coordinator))
        refuse_unless(
            not_none(machines.process_id) < size,
            f"--process-id {machines.process_id}: {size} processes have the ids 0 to {size - 1}.",
        )


def _count(processes: str | int) -> int:
    said = str(processes)
    refuse_unless(
        said.isdecimal() and len(said) < 10 and 1 <= int(said) <= MOST,
        f"--processes {said}: give a number from 1 to {MOST}, or auto on a cluster.",
    )
    return int(said)


def muster(machines: Machines) -> Alone | Team:
    """All processes of the run, ready to compute together, each with its devices."""
    if machines.processes == AUTO:
        machines = _detected(machines)
    size = 1 if machines.processes is None else _count(machines.processes)
    _make_devices(machines.devices, size)
    if size == 1:
        return Alone()
    return join(not_none(machines.coordinator), not_none(machines.process_id), size, machines.join_timeout, _leave)


def _detected(machines: Machines) -> Machines:
    """With what SLURM, Open MPI or Kubernetes say, where the command line does not."""
    try:
        coordinator, size, id, local = ClusterEnv.auto_detect_unset_distributed_params(
            machines.coordinator, None, machines.process_id, None, None, int(machines.join_timeout)
        )
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"--processes auto: {error}") from None
    refuse_unless(
        None not in (coordinator, size, id),
        "--processes auto: this is no step of SLURM (srun), no process of Open MPI (mpirun) and no indexed job of "
        "Kubernetes (which needs `pip install jax[k8s]`): give --coordinator, --processes and --process-id.",
    )
    os.environ.setdefault("JAX_LOCAL_DEVICE_IDS", ",".join(map(str, local or ())))
    return dataclasses.replace(machines, coordinator=coordinator, processes=size, process_id=id)


def _make_devices(wanted: int | None, processes: int) -> None:
    """Of a CPU as many devices as are wanted of each process; other devices are there or are not."""
    if wanted is None:
        return
    refuse_unless(
        wanted % processes == 0,
        f"--devices {wanted} cannot be shared out evenly over {processes} processes: use a multiple of {processes}.",
    )
    each = wanted // processes
    refuse_unless(
        each <= _MOST_EACH, f"--devices {wanted}: {each} of each process, which cannot be more than {_MOST_EACH}."
    )
    # XLA has a thread for each core, or for each device if these are more. Those that wait for another device hold one, and what
    # that device still has to do may need one: with no more threads than devices they can wait for each other for good.
    os.environ.setdefault("NPROC", str(each + cores()))
    with contextlib.suppress(RuntimeError):  # JAX has started already: `make_mesh` sees whether it has enough
        jax.config.update("jax_num_cpu_devices", each)


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
        + (
            f' JAX has already started with them: jax.config.update("jax_num_cpu_devices", {wanted}) must come before the '
            "first thing that JAX does."
            if kind == "cpu"
            else ""
        ),
    )
    each = len(found) // team.size if wanted is None else wanted // team.size
    chosen = [d for i in range(team.size) for d in [d for d in found if d.process_index == i][:each]]
    refuse_unless(
        len(chosen) == each * team.size, f"the processes do not have {each} devices each, which --devices asks for."
    )
    return mesh_for(jax.sharding.Mesh(np.array(chosen), ("devices",)), machines.shard, "evergrad train")
