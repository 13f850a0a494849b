"""Does the meter for reach find the horizon that is needed, and is TBPTT with that horizon as good as OK?

    python benchmarks/reach.py [copy|ptb|ett|exchange ...] [--data ../shared/data] [--seeds 3]

Per subject and seed: a small network is trained with OK(rank=8, window=16); how far back its gradient looks is measured on it (`eg.lab.reach`);
and the same network, from the same first weights on the same streams, is trained with TBPTT(horizon=advised, stride=1), the horizon being that
of the first seed. Both update once a step. Where no horizon is advised, the longest that could be seen is taken. Copy has a known lag: a bit is
said length + 1 steps after it was shown, once strings have grown to the longest. Writes benchmarks/results/reach.json after every run and goes on from there.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve
from evergrad.lab import reach
from evergrad.lab.subject import under_way

OUT = Path("benchmarks/results/reach.json")
OK = {"estimator": "ok", "rank": 8, "window": 16}
LENGTH, LAST = 4, 500
LOOK = {"steps": 400, "batch": 4}  # the stretch on which gradients are taken apart, 32 of them


def subjects(data: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Task and settings of each; what is not said is as `evergrad train` has it."""
    small = {"cell": "lstm", "units": 16, "batch": 1}
    return {
        "copy": (
            "copy",
            {"units": 32, "length": 1, "longest": LENGTH, "jitter": 1, "steps": 10_000, "learning_rate": 0.01},
        ),
        "ptb": ("text", {"cell": "lstm", "units": 32, "batch": 16, "data": str(data / "ptb"), "steps": 3000}),
        "ett": ("series", small | {"data": str(data / "ett" / "ETTh1.csv"), "steps": 4000}),
        "exchange": ("series", small | {"data": str(data / "exchange" / "exchange_rate.txt.gz"), "steps": 4000}),
    }


def trained(task: str, given: dict[str, Any], seed: int) -> tuple[Any, Any, float, float]:
    """The job, what it ended with, its figure over the last steps (series: over all), and ms a step, compiling included."""
    job = make_job(resolve(task, given | {"seed": seed}))
    state, position = job.start()
    last = job.settings.steps if task == "series" else LAST
    first, began = job.settings.steps - last, time.perf_counter()
    room = max(first, last)
    if first:
        state, position, _ = job.learner.follow(state, job.source, position, first, room=room)
        position = job.task.reported(position)
    state, position, losses = job.learner.follow(state, job.source, position, last, room=room)
    spent = 1000 * (time.perf_counter() - began) / job.settings.steps
    figures = job.task.figures(position, float(np.asarray(losses, np.float64).mean()), last)
    return job, (state, position), figures["relative_error" if task == "series" else "loss"], spent


def looked(job: Any, ended: Any, seed: int) -> dict[str, Any]:
    chosen = under_way(job.settings, ended[0].model, ended[1], **LOOK)
    data = chosen.data
    found = reach(chosen.model, data.x, data.y, data.reset, weights=data.weight, key=jax.random.key(seed))
    return found.as_json() | {
        "lags": None,
        "shares": [round(each, 5) for each in found.shares.tolist()],
        "errors": None,
    }


def row(task: str, given: dict[str, Any], seed: int, horizon: int | None) -> dict[str, Any]:
    """One run: with OK and a look at the end, or with TBPTT of that horizon."""
    how = OK if horizon is None else {"estimator": "tbptt", "horizon": horizon, "stride": 1}
    job, ended, figure, spent = trained(task, given | how, seed)
    found = {"seed": seed, "figure": round(figure, 5), "milliseconds_a_step": round(spent, 3), "updates_per_sample": 1}
    about = {"estimator": repr(job.learner.estimator), "horizon": horizon, "stride": 1}
    return found | about | ({"reach": looked(job, ended, seed)} if horizon is None else {})


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    said.add_argument("names", nargs="*", default=["copy", "ptb", "ett", "exchange"])
    said.add_argument("--data", type=Path, default=Path("../shared/data"))
    said.add_argument("--seeds", type=int, default=3)
    said.add_argument("--out", type=Path, default=OUT)
    options = said.parse_args()
    document = json.loads(options.out.read_text()) if options.out.exists() else {"product": "evergrad", "subjects": {}}
    document |= {"machine": machine(), "look": LOOK | {"samples": 32}, "known_lag_of_copy": LENGTH + 1}
    for name in options.names:
        task, given = subjects(options.data)[name]
        settings = {key: value for key, value in given.items() if key != "data"}
        found = document["subjects"].setdefault(name, {"task": task, "settings": settings, "OK": [], "TBPTT": []})
        for who in ("OK", "TBPTT"):
            for seed in range(len(found[who]), options.seeds):
                horizon = None if who == "OK" else _horizon(found["OK"][0]["reach"])
                found[who].append(row(task, given, seed, horizon))
                write_whole(options.out, json.dumps(document, indent=1) + "\n")
                print(name, found[who][-1] | {"reach": None}, flush=True)
        print(f"{name}: {sentence(found)}", flush=True)


def _horizon(look: dict[str, Any]) -> int:
    return look["advised"] or look["most"]


def sentence(found: dict[str, Any]) -> str:
    ours, theirs = ([each["figure"] for each in found[who]] for who in ("OK", "TBPTT"))
    away = statistics.mean(theirs) - statistics.mean(ours)
    spread = max(max(each) - min(each) for each in (ours, theirs))
    verdict = "within" if abs(away) <= spread else "outside"
    far = [each["reach"]["horizon_99"] for each in found["OK"]]
    return (
        f"99 % within {far} steps (a seed each); OK {ours}, {found['TBPTT'][0]['estimator']} {theirs}: "
        f"{away:+.4g} apart, {verdict} the seeds' spread of {spread:.4g}"
    )


if __name__ == "__main__":
    main()
