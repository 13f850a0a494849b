"""Throughput of a run with display, metrics and checkpoints, as a share of the bare compiled loop.

    python benchmarks/overhead.py [--units 64] [--rounds 5]

Both are timed in turn in one process, on the same job: the bare loop calls `learner.follow` once a report and does
nothing else; the run does all that `evergrad train` does, with a checkpoint every two seconds and a display on a
terminal.
Writes benchmarks/results/overhead.json.
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

from machine import machine
from rich.console import Console

from evergrad.checkpoint import Checkpoints
from evergrad.training.build import make_job
from evergrad.training.display import Display
from evergrad.training.folder import create
from evergrad.training.loop import Loop, begin
from evergrad.training.metrics import Metrics
from evergrad.training.resolve import resolve
from evergrad.training.signals import Stop


def bare(job) -> float:
    """Steps a second of the loop alone."""
    state, position = job.start()
    settings = job.settings
    started = time.perf_counter()
    for _ in range(settings.steps // settings.report):
        state, position, _ = job.learner.follow(state, job.task.source, position, settings.report, room=settings.report)
    return settings.steps / (time.perf_counter() - started)


def whole(job) -> float:
    """Steps a second of a run with everything on."""
    with tempfile.TemporaryDirectory() as place:
        folder = create(Path(place) / "run", job.settings, {}, None)
        console = Console(file=io.StringIO(), force_terminal=True, width=160)
        display = Display(console, job.task, job.learner.estimator, job.task.unit)
        checkpoints, metrics, progress = Checkpoints(folder.checkpoints), Metrics(folder, 0), begin(job)
        loop = Loop(job, progress, checkpoints, metrics, display, Stop())
        loop._pace.took(1, 1.0)  # compiled already, as after the first call of a run
        started = time.perf_counter()
        loop.run()
        rate = job.settings.steps / (time.perf_counter() - started)
        metrics.close()
        checkpoints.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--report", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    given = {"units": options.units, "steps": options.steps, "report": options.report, "checkpoint_seconds": 2.0}
    job = make_job(resolve("copy", given))
    bare(job), whole(job)  # compiled, and everything touched once
    pairs = [(bare(job), whole(job)) for _ in range(options.rounds)]
    ratios = [b / a for a, b in pairs]
    result = {
        **machine(),
        "settings": {**given, "estimator": str(job.learner.estimator), "batch": job.settings.batch},
        "bare_steps_per_second": [round(a, 1) for a, _ in pairs],
        "run_steps_per_second": [round(b, 1) for _, b in pairs],
        "ratio_median": round(statistics.median(ratios), 4),
        "ratios": [round(r, 4) for r in ratios],
    }
    print(json.dumps(result, indent=2))
    (Path(__file__).parent / "results" / "overhead.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
