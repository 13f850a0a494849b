"""The search by which `evergrad train` got its learning rate and its initialisation.

    python benchmarks/rates.py text|copy|cue|series [--data FILE] [--cells rhn,lstm] [--seeds 1]

Trains every cell from every start at every rate, with what `evergrad train` does otherwise (OK(rank=8, window=16), Adam, clip 1)
but for 32 units, and prints what is left at the end. Writes benchmarks/results/rates-TASK.json after every run and goes on from
there, so that it can be stopped; a run that is in the file is not done again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from evergrad.checks import DivergedError
from evergrad.files import write_whole
from evergrad.training.build import make_job
from evergrad.training.resolve import resolve

CELLS = ("rhn", "lstm", "gru", "rnn")
RATES = (10**-3.5, 1e-3, 3e-3, 1e-2)
STARTS = {
    "text": ("normal", "fan_in"),
    "copy": ("normal", "fan_in"),
    "cue": ("fan_in", "chrono:120"),
    "series": ("normal", "fan_in"),
}
STEPS = {"text": 2_000, "copy": 5_000, "cue": 3_000, "series": None}
UNITS = 32
LAST = 500  # steps that the score is about
SCORES = {
    "text": f"bits per character over the last {LAST} steps",
    "copy": "string length reached",
    "cue": f"wrong answers over the last {LAST} steps, %",
    "series": "error / persistence over all rows",
}


def score(task: str, given: dict[str, Any]) -> float | None:
    """None where the loss became non-finite."""
    job = make_job(resolve(task, given | {"units": UNITS, "steps": STEPS[task]}))
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


def search(task: str, cells: list[str], seeds: int, data: str | None, path: Path) -> dict[str, float | None]:
    found = json.loads(path.read_text())["scores"] if path.exists() else {}
    settings = [(c, i, r, s) for s in range(seeds) for c in cells for i in STARTS[task] for r in RATES]
    for cell, initial, rate, seed in settings:
        name = f"{cell} {initial} {rate:.3g} seed {seed}"
        if name in found or (cell == "rnn" and initial.startswith("chrono")):
            continue
        given = {"cell": cell, "initial": initial, "learning_rate": rate, "seed": seed}
        found[name] = score(task, given | ({"data": data} if data else {}))
        print(f"{task} {name}: {found[name]}", flush=True)
        about = {"score": SCORES[task], "steps": STEPS[task], "data": data and Path(data).name}
        write_whole(path, json.dumps({**about, "scores": found}, indent=1) + "\n")
    return found


def table(task: str, found: dict[str, float | None]) -> str:
    """Markdown, a row for every cell and start; several seeds beside each other."""
    lines = [f"| {task}: {SCORES[task]} | " + " | ".join(f"{rate:.2g}" for rate in RATES) + " |"]
    lines += ["|---|" + "---|" * len(RATES)]
    for row in dict.fromkeys(" ".join(name.split()[:2]) for name in found):
        values = [[found[n] for n in found if n.startswith(f"{row} {rate:.3g} seed")] for rate in RATES]
        cells = (", ".join("–" if v is None else f"{v:.3g}" for v in each) for each in values)
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tuple(STARTS))
    parser.add_argument("--data", help="a text, or the CSV file of a series")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / f"rates-{options.task}.json"
    found = search(options.task, options.cells.split(","), options.seeds, options.data, path)
    print(table(options.task, found))


if __name__ == "__main__":
    main()
