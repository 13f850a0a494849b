"""Milliseconds a step of both sides, for comparisons whose own command trains and does not time: on quiet cores.

    python benchmarks/step_times.py [chaos] [rotation] [first] [reach --data ../shared/data]

Everyone of a group in turn, the median of five rounds after the one that compiles, with the page's own networks, streams and estimators.
Writes benchmarks/results/step-times.json, group by group; docs/comparisons.md says which page has which.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chaos
import jax
import numpy as np
import optax
import reach

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad._tasks import Chaos
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import rotation_memory

OUT = Path(__file__).parent / "results" / "step-times.json"
ROUNDS = 5

Advance = Callable[[], None]  # a few steps more, until they are done


def following(learner: eg.Learner, state: Any, source: Any, position: Any, steps: int) -> Advance:
    at = [state, position]

    def advance():
        at[0], at[1], losses = learner.follow(at[0], source, at[1], steps, room=steps)
        np.asarray(losses)

    return advance


def of_chaos(options: argparse.Namespace, steps: int = 200) -> dict[str, Advance]:
    """On Hénon's map; the series differ in their numbers only."""
    source, found = Chaos("henon", batch=chaos.STREAMS, seed=0), {}
    for row, (kind, estimator) in chaos.ROWS.items():
        learner = eg.Learner(chaos.network(kind, jax.random.key(0)), estimator, optax.adam(chaos.RATE))
        state = learner.init(batch=chaos.STREAMS, key=jax.random.key(1))
        start = source.start(batch=chaos.STREAMS, key=jax.random.key(2))
        found[row] = following(learner, state, source, start, steps)
    return found


def of_rotation(options: argparse.Namespace, steps: int = 200) -> dict[str, Advance]:
    found = {}
    for name in rotation_memory.CELLS:
        learner, state, task, position = rotation_memory.begun(name, 0)
        found[name] = following(learner, state, task, position, steps)
    return found


def of_first(options: argparse.Namespace, steps: int = 500) -> dict[str, Advance]:
    """The network of docs/tutorials/first-network.py on zeros: what a step costs does not depend on the numbers."""
    one, two, three = jax.random.split(jax.random.key(0), 3)
    model = eg.Model(
        eg.LSTM(inputs=4, units=16, key=one, initial="chrono:25"), eg.Softmax(units=16, classes=2, key=two)
    )
    zeros, found = np.zeros((steps, 16), np.int32), {}
    for estimator in (eg.OK(rank=8, window=8), eg.TBPTT(horizon=12, stride=1), eg.TBPTT(horizon=25, stride=1)):
        learner = eg.Learner(model, estimator, optax.adam(1e-2), clip=1.0)
        found[repr(estimator)] = running(learner, learner.init(batch=16, key=three), zeros)
    return found


def running(learner: eg.Learner, state: Any, zeros: np.ndarray) -> Advance:
    at = [state]

    def advance():
        at[0], out = learner.run(at[0], zeros, zeros)
        np.asarray(out.losses)

    return advance


def of_reach(options: argparse.Namespace, steps: int = 200) -> dict[str, Advance]:
    """OK, and TBPTT with the horizon that was advised, as in benchmarks/results/reach.json."""
    known, found = json.loads(reach.OUT.read_text("utf-8"))["subjects"], {}
    for name, (task, given) in reach.subjects(options.data).items():
        horizon = known[name]["TBPTT"][0]["horizon"]
        for how in (reach.OK, {"estimator": "tbptt", "horizon": horizon, "stride": 1}):
            job = make_job(resolve(task, given | how | {"seed": 0}))
            label = f"{name}: {job.learner.estimator!r}"
            found[label] = following(job.learner, *_turned(job), steps)
    return found


def _turned(job: Any) -> tuple[Any, Any, Any]:
    state, position = job.start()
    return state, job.source, position


GROUPS = {"chaos": (of_chaos, 200), "rotation": (of_rotation, 200), "first": (of_first, 500), "reach": (of_reach, 200)}


def timed(group: dict[str, Advance], steps: int) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in group}
    for _ in range(ROUNDS + 1):
        for name, advance in group.items():
            began = time.perf_counter()
            advance()
            spent[name].append(1000 * (time.perf_counter() - began) / steps)
    return {name: round(statistics.median(times[1:]), 4) for name, times in spent.items()}


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    said.add_argument("groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    said.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = said.parse_args()
    for name in options.groups:
        make, steps = GROUPS[name]
        times = timed(make(options, steps), steps)
        found = json.loads(OUT.read_text("utf-8")) if OUT.exists() else {"product": "evergrad", "groups": {}}
        found |= {"machine": machine(), "unit": "milliseconds a step of all streams"}
        found["groups"][name] = times
        write_whole(OUT, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(name, json.dumps(times, indent=1, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
