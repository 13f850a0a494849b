"""Throughput of a run with display, metrics and checkpoints, as a share of the bare compiled loop.

    python benchmarks/overhead.py [--units 64] [--rounds 5]

Both are timed in turn in one process, on the same job: the bare loop calls `learner.follow` once a report and does
nothing else; the run does all that `evergrad train` does, with a display on a terminal and a checkpoint at its end that
is waited for. A round lasts some twenty seconds, so that is one checkpoint in twenty seconds; the default is one a
minute. Beside the clock, which other processes disturb, the processor time of all threads is compared.
Writes benchmarks/results/overhead.json.
"""

import argparse
import io
import json
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console

from evergrad._core.machine import machine
from evergrad._training.build import make_job
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.display import Display
from evergrad._training.folder import create
from evergrad._training.loop import Loop, begin
from evergrad._training.metrics import Metrics
from evergrad._training.resolve import resolve
from evergrad._training.signals import Stop


def timed(action, steps: int) -> tuple[float, float]:
    """Steps a second by the clock, and by the processor time of all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    action()
    return steps / (time.perf_counter() - clock), steps / (time.process_time() - processor)


def bare(job) -> tuple[float, float]:
    """The loop alone."""
    settings = job.settings

    def loop():
        state, position = job.start()
        for _ in range(settings.steps // settings.report):
            state, position, _ = job.learner.follow(
                state, job.task.source, position, settings.report, room=settings.report
            )

    return timed(loop, settings.steps)


def whole(job) -> tuple[float, float]:
    """A run with everything on."""
    with tempfile.TemporaryDirectory() as place:
        folder = create(Path(place) / "run", job.settings, {}, None)
        console = Console(file=io.StringIO(), force_terminal=True, width=160)
        display = Display(console, job.task, job.learner.estimator, job.task.unit)
        checkpoints, metrics = Checkpoints(folder.checkpoints), Metrics(folder, 0)
        rates = timed(lambda: Loop(job, begin(job), checkpoints, metrics, display, Stop()).run(), job.settings.steps)
        metrics.close()
        checkpoints.close()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--report", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    given = {"units": options.units, "steps": options.steps, "report": options.report}
    job = make_job(resolve("copy", given))
    bare(job), whole(job)  # compiled, and everything touched once
    pairs = [(bare(job), whole(job)) for _ in range(options.rounds)]
    clock, processor = ([run[i] / loop[i] for loop, run in pairs] for i in (0, 1))
    result = {
        **machine(),
        "load_average": os.getloadavg()[0],
        "settings": {**given, "estimator": str(job.learner.estimator), "batch": job.settings.batch},
        "bare_steps_per_second": [round(loop[0], 1) for loop, _ in pairs],
        "run_steps_per_second": [round(run[0], 1) for _, run in pairs],
        "ratio_median": round(statistics.median(clock), 4),
        "ratio_processor_time_median": round(statistics.median(processor), 4),
        "ratios": [round(r, 4) for r in clock],
        "ratios_processor_time": [round(r, 4) for r in processor],
    }
    print(json.dumps(result, indent=2))
    (Path(__file__).parent / "results" / "overhead.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
