"""Steps a second against devices and processes, what moves between them, and a projection from that.

Every count of devices is measured in a process of its own, since it is fixed when JAX starts; in it one device and many
take turns, and the median round of each counts. On the cores of one machine devices share what there is: not the gain
can be seen here, but what sharing out costs.
"""

import contextlib
import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from evergrad._core import placing
from evergrad._core.machine import cores
from evergrad._core.planner import predict
from evergrad._core.recipe import placed, program
from evergrad._core.sources import Sequence, place_source
from evergrad._training.machine_options import Machines
from evergrad._training.machines import muster
from evergrad.bench.projection import Assumptions, Work, project
from evergrad.bench.settings import PTB, Setting
from evergrad.bench.traffic import moves


@dataclasses.dataclass(frozen=True)
class Effort:
    setting: Setting
    devices: tuple[int, ...]
    steps: int  # of a round
    rounds: int


FULL = Effort(PTB, (2, 4, 8), 64, 7)
QUICK = Effort(Setting("small", units=32, batch=8, rank=4, symbols=50, window=8), (2, 4), 16, 3)
PROJECTED = (8, 64, 512)


def scale(effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures, as they are written to JSON."""
    rows = []
    for n in effort.devices:
        say(f"{n} devices of one process")
        rows.append(_child(effort, n))
    say("2 processes of one device")
    rows.append(_two_processes(effort))
    s, assumptions = effort.setting, Assumptions()
    payload = sum(m["bytes"] for m in rows[0]["moved"]["each_step"])
    work = Work(s.batch, 2 * _multiply_adds(s), payload)
    return {
        "setting": dataclasses.asdict(s),
        "cores": cores(),
        "measured": rows,
        "cost_of_two_devices": rows[0]["cost"],
        "projection": {
            "assumptions": dataclasses.asdict(assumptions),
            "work": dataclasses.asdict(work),
            "rows": project(work, PROJECTED, assumptions),
        },
    }


def _multiply_adds(setting: Setting) -> float:
    """Of one lane and step, as the planner counts them."""
    estimator, one = setting.ok(), dataclasses.replace(setting, batch=1)
    return predict(one.learner(estimator).model.cell, estimator, batch=1, outputs=one.symbols).multiply_adds


def _child(effort: Effort, devices: int, **process: Any) -> dict[str, Any]:
    with _started(effort, devices, **process) as child:
        return _answer(child)


@contextlib.contextmanager
def _started(effort, devices, **process):
    order = json.dumps(dataclasses.asdict(effort) | {"devices": devices, "process": process})
    child = subprocess.Popen(
        [sys.executable, "-m", "evergrad.bench.scale", order],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _answer(child):
    out, err = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"a measuring process failed:\n{err}")
    return json.loads(out.splitlines()[-1])


def _two_processes(effort: Effort) -> dict[str, Any]:
    address = f"127.0.0.1:{_free_port()}"
    with _started(effort, 2, address=address, id=1) as other:
        result = _child(effort, 2, address=address, id=0)
        _answer(other)
    return result


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main(order: dict[str, Any]) -> None:
    """In a process of its own: measures, and prints one line of JSON."""
    setting, devices, process = Setting(**order["setting"]), order["devices"], order["process"]
    machines = Machines(devices=devices)
    if process:
        together = {
            "coordinator": process["address"],
            "processes": 2,
            "process_id": process["id"],
            "join_timeout": 60.0,
        }
        machines = Machines(devices=devices, **together)
    team = muster(machines)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lanes",))
    cases = {} if process else {"one": _case(setting, None, order["steps"])}
    cases["many"] = _case(setting, mesh, order["steps"])
    times = {name: [] for name in cases}
    for _ in range(order["rounds"]):
        for name, case in cases.items():
            times[name].append(case())
    medians = {name: statistics.median(each) / order["steps"] for name, each in times.items()}
    row = {"devices": devices, "processes": team.size, "steps_per_second": 1 / medians["many"]}
    if "one" in medians:
        row |= {"one_device_steps_per_second": 1 / medians["one"], "cost": medians["many"] / medians["one"] - 1}
    row["moved"] = moved(setting, mesh)
    team.leave()
    print(json.dumps(row), flush=True)
    os._exit(0)  # a compiled program that is still loaded may take long to let go


def _case(setting: Setting, mesh: Any, steps: int) -> Callable[[], float]:
    """One round; returns its seconds."""
    learner, state, data = prepare(setting, mesh, steps)

    def once():
        nonlocal state
        start = time.perf_counter()
        state, _ = learner.run(state, *data)
        state.hidden.block_until_ready()
        return time.perf_counter() - start

    once()  # compiles
    once()  # and now the window has been full
    return once


def prepare(setting: Setting, mesh: Any, steps: int, *, estimator: Any = None, shard: str = "lanes") -> tuple:
    """A learner, its first state, and random symbols."""
    learner = setting.learner(setting.ok() if estimator is None else estimator)
    state = learner.init(batch=setting.batch, key=jax.random.key(2), mesh=mesh, shard=shard)
    return learner, state, tuple(map(np.asarray, setting.data(steps)))


def compiled(setting: Setting, mesh: Any, steps: int = 2, **how: Any) -> Any:
    """The compiled loop."""
    learner, state, (xs, ys) = prepare(setting, mesh, steps, **how)
    data = learner._data(xs, ys, None, None, lead=xs.shape)
    mesh = placing.mesh_of(state)
    if mesh is None:
        return program("drive", True).lower((learner._recipe, data), state).compile().compiled
    source, _ = place_source(Sequence(data), 0, mesh)
    return (
        program("drive_spread", True)
        .lower((placed(learner._recipe, mesh), source.data, mesh), state)
        .compile()
        .compiled
    )


def moved(setting: Setting, mesh: Any, **how: Any) -> dict[str, list[dict[str, Any]]]:
    """The collective operations of the compiled loop: at each step, at each fold of a window, at each call."""
    found = moves(compiled(setting, mesh, **how).as_text())
    windowed = getattr(how.get("estimator"), "window", setting.window) > 0
    when = {2: "each_step", 1: "each_fold", 0: "each_call"} if windowed else {1: "each_step", 0: "each_call"}
    sorted_ = {name: [] for name in ("each_step", "each_fold", "each_call")}
    for move in found:
        sorted_[when[min(move.loops, max(when))]].append({"kind": move.kind, "bytes": move.bytes})
    return sorted_


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
