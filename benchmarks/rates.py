"""The search by which `evergrad train` got its learning rate and its initialisation.

    python benchmarks/rates.py text|copy|cue|series [--data FILE] [--cells rhn,lstm] [--starts fan_in] [--rates 0.003,0.01]

Trains every cell from every start at every rate, with what `evergrad train` does otherwise (OK(rank=8, window=16), Adam, clip 1)
but for --units (32), and prints what is left at the end. Writes benchmarks/results/rates-TASK-UNITS.json after every run and goes on
from there, so that it can be stopped; a run that is in the file is not done again. `--cells ""` only prints the table.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from evergrad._core.checks import DivergedError
from evergrad._core.files import write_whole
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve

CELLS = ("rhn", "lstm", "gru", "rnn")
RATES = (10**-3.5, 1e-3, 3e-3, 1e-2)
STARTS = {
    "text": ("normal", "fan_in"),
    "copy": ("normal", "fan_in"),
    "cue": ("fan_in", "chrono:120"),
    "series": ("normal", "fan_in"),
}
STEPS = {"text": 2_000, "copy": 5_000, "cue": 3_000, "series": None}
LAST = 500  # steps that the score is about
SCORES = {
    "text": f"bits per character over the last {LAST} steps",
    "copy": "string length reached",
    "cue": f"wrong answers over the last {LAST} steps, %",
    "series": "error / persistence over all rows",
}


def score(task: str, given: dict[str, Any]) -> float | None:
    """None where the loss became non-finite."""
    job = make_job(resolve(task, given | {"steps": STEPS[task]}))
    state, position = job.start()
    first, last = (job.settings.steps - LAST, LAST) if task != "series" else (0, job.settings.steps)
    try:
        if first:
            state, position, _ = job.learner.follow(state, job.source, position, first, room=first)
            position = job.task.reported(position)
        _, position, losses = job.learner.follow(state, job.source, position, last, room=max(first, last))
    except DivergedError:
        return None
    figures = job.task.figures(position, float(np.asarray(losses, np.float64).mean()), last)
    name = {"text": "loss", "copy": "length", "cue": "wrong", "series": "relative_error"}[task]
    return round((100 if task == "cue" else 1) * figures[name], 4)


def search(options: argparse.Namespace, path: Path) -> dict[str, float | None]:
    task, data, units = options.task, options.data, options.units
    found = json.loads(path.read_text())["scores"] if path.exists() else {}
    starts = split(options.starts) or STARTS[task]
    rates = [float(rate) for rate in split(options.rates)] or RATES
    for cell, initial, rate in itertools.product(split(options.cells), starts, rates):
        name = f"{cell} {initial} {rate:.3g}"
        if name in found or (cell == "rnn" and initial.startswith("chrono")):
            continue
        given = {"cell": cell, "units": units, "initial": initial, "learning_rate": rate}
        found[name] = score(task, given | ({"data": data} if data else {}))
        print(f"{task} {name}: {found[name]}", flush=True)
        about = {
            "score": SCORES[task],
            "units": units,
            "steps": STEPS[task],
            "seed": 0,
            "data": data and Path(data).name,
        }
        write_whole(path, json.dumps({**about, "scores": found}, indent=1) + "\n")
    return found


def table(task: str, found: dict[str, float | None]) -> str:
    """Markdown, a row for every cell and start; – is a loss that became non-finite."""
    lines = [f"| {task}: {SCORES[task]} | " + " | ".join(f"{rate:.2g}" for rate in RATES) + " |"]
    lines += ["|---|" + "---|" * len(RATES)]
    for row in dict.fromkeys(" ".join(name.split()[:2]) for name in found):
        cells = (_shown(found, f"{row} {rate:.3g}") for rate in RATES)
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(found, name):
    return "" if name not in found else "–" if found[name] is None else f"{found[name]:.3g}"


def split(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tuple(STARTS))
    parser.add_argument("--data", help="a text, or the CSV file of a series")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--starts", default="")
    parser.add_argument("--rates", default="")
    parser.add_argument("--units", type=int, default=32)
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / f"rates-{options.task}-{options.units}.json"
    print(table(options.task, search(options, path)))


if __name__ == "__main__":
    main()
