"""What an experiment leaves: result.json and a small CSV for each run. Figures and page are made from these alone."""

import csv
import dataclasses
import datetime
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

import evergrad
from evergrad._core.checks import InputError
from evergrad._core.files import write_whole
from evergrad._training.reports import rows
from evergrad.paper.plan import FIGURE, Line, Plan, Run

Curve = tuple[np.ndarray, np.ndarray]


def place(plan: Plan, name: str) -> Path:
    return plan.out / "results" / plan.budget / name


def write(plan: Plan, name: str, lines: list[Line], measured: dict[str, Any], machine: dict[str, str]) -> None:
    """Everything known so far, of unfinished runs too. Lines may share a run: its curve is kept as long as the longest."""
    folder = place(plan, name)
    longest: dict[str, int] = {}
    for run in (run for line in lines for run in line.runs()):
        longest[run.id] = max(run.steps, longest.get(run.id, 0))
    document = {
        "experiment": name,
        "budget": plan.budget,
        "version": evergrad.__version__,
        "written": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine,
        "jobs": plan.jobs,
        "data": plan.data,
        "lines": [_line(plan, folder, line, longest) for line in lines],
        "measured": measured,
        "measured_seconds": plan.measured_seconds(name),
    }
    write_whole(folder / "result.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _line(plan, folder, line, longest):
    runs = [_run(plan, folder, run, longest[run.id]) for run in line.runs() if plan.reached(run)]
    return dataclasses.asdict(line) | {"runs": runs}


def _run(plan: Plan, folder: Path, run: Run, longest: int) -> dict[str, Any]:
    figure = FIGURE[run.task]
    found = [row for row in rows(plan.path(run) / "metrics.jsonl") if row["step"] <= longest]
    speed = [row for row in rows(plan.path(run) / "speed.jsonl") if row["step"] <= run.steps]
    kept, last = [], None
    for row in found:
        if run.task == "copy" or row[figure] != last:  # between validations the last figure is repeated
            kept.append((row["step"], f"{row['loss']:.5g}", f"{row[figure]:.6g}"))
        last = row[figure]
    lines = [f"step,loss_bits,{figure}", *(",".join(map(str, row)) for row in kept)]
    write_whole(folder / "curves" / f"{run.id}.csv", "\n".join(lines) + "\n")
    why = plan.diverged(run)
    return {
        "id": run.id,
        "seed": run.settings["seed"],
        "steps": min(found[-1]["step"], run.steps),
        "seconds": round(sum(row["seconds"] for row in speed), 1),
        "diverged": why.read_text().strip() if why.exists() else None,
    }


class Result:
    """An experiment's results as they were left."""

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / "result.json"
        try:
            self.document = json.loads(path.read_text("utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"{path} cannot be read ({error}): run the experiment again.") from None
        self.budget, self.measured = self.document["budget"], self.document["measured"]

    def lines(self, *, search: bool = False) -> list[dict[str, Any]]:
        """Those that have runs."""
        return [line for line in self.document["lines"] if line["search"] == search and line["runs"]]

    def labels(self) -> list[str]:
        return [line["label"] for line in self.lines()]

    def line(self, label: str) -> dict[str, Any] | None:
        return next((line for line in self.lines() if line["label"] == label), None)

    def curves(self, line: dict[str, Any]) -> list[Curve]:
        """Steps and figure of each run."""
        return [_read_curve(self.folder / "curves" / f"{run['id']}.csv") for run in line["runs"]]

    def at(self, label: str, step: int) -> list[float]:
        """The figure at a step, of the runs that have come so far."""
        line = self.line(label)
        return [] if line is None else [v for curve in self.curves(line) if (v := value_at(curve, step)) is not None]

    def reached(self, label: str) -> int:
        """Steps that every run of a line has."""
        line = self.line(label)
        return min((run["steps"] for run in line["runs"]), default=0) if line else 0


def seconds(results: Iterable[Result]) -> float:
    """Of training and measuring, runs that are shared counted once."""
    runs: dict[str, float] = {}
    total = 0.0
    for result in results:
        total += result.document["measured_seconds"]
        for run in (run for line in result.document["lines"] for run in line["runs"]):
            runs[run["id"]] = max(run["seconds"], runs.get(run["id"], 0.0))
    return total + sum(runs.values())


def value_at(curve: Curve, step: int) -> float | None:
    """By interpolation; None where the curve does not reach."""
    steps, values = curve
    if not len(steps) or step > steps[-1] or step < steps[0]:
        return None
    return float(np.interp(step, steps, values))


def _read_curve(path: Path) -> Curve:
    with path.open(encoding="utf-8") as file:
        found = [(int(row[0]), float(row[2])) for row in list(csv.reader(file))[1:]]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps), np.array(values)


def released(folder: Path | None, name: str) -> list[Curve]:
    """The authors' curves, one a run; none where they were not given."""
    if folder is None or not (folder / f"{name}.csv").exists():
        return []
    path = folder / f"{name}.csv"
    try:
        with path.open(encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        curves: dict[str, list[tuple[int, float]]] = {}
        for row in found:
            curves.setdefault(row["run"], []).append((int(row["step"]), float(row.get("T") or row["valid_bpc"])))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check --reference.") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise InputError(f"{path} needs the columns run, step, and T or valid_bpc, with numbers in them.") from None
    return [cast(Curve, tuple(map(np.array, zip(*points, strict=True)))) for points in curves.values()]
