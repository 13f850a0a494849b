"""What an experiment leaves: result.json and a small CSV for each run. Figures and page are made from these alone."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError
from evergrad._core.files import write_whole
from evergrad._core.not_none import not_none
from evergrad._training.reports import rows
from evergrad.paper import curves
from evergrad.paper.curves import Curve
from evergrad.paper.experiments.lines import FIGURES, Figure
from evergrad.paper.plan import Line, Plan, Run
from evergrad.paper.rates import Choice, choose, rate_in_words
from evergrad.paper.record import made_with, now, starts
from evergrad.paper.setup import task_of


def place(plan: Plan, name: str) -> Path:
    return plan.out / "results" / plan.budget / name


def write(plan: Plan, name: str, lines: list[Line], measured: dict[str, Any]) -> None:
    """Everything known so far, of unfinished runs too. Lines may share a run: its curve is kept as long as the longest."""
    folder = place(plan, name)
    longest: dict[str, int] = {}
    for run in (run for line in lines for run in line.runs()):
        longest[run.id] = max(run.steps, longest.get(run.id, 0))
    document = {
        "experiment": name,
        "budget": plan.budget,
        "written": now(),
        "machine": made_with(),
        "jobs": plan.jobs,
        "data": plan.data and Path(plan.data).name,
        "lines": [_line(plan, folder, line, longest) for line in lines],
        "measured": measured,
        "measured_seconds": plan.measured_seconds(name),
    }
    write_whole(folder / "result.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _line(plan, folder, line, longest):
    runs = [_run(plan, folder, run, longest[run.id]) for run in line.runs() if plan.reached(run)]
    return dataclasses.asdict(line) | {"runs": runs}


def _run(plan: Plan, folder: Path, run: Run, longest: int) -> dict[str, Any]:
    curves.write(folder / "curves" / f"{run.id}.csv", plan.curve(run, longest), run.task)
    speed = [row for row in rows(plan.path(run) / "speed.jsonl") if row["step"] <= run.steps]
    why = plan.diverged(run)
    return {
        "id": run.id,
        "seed": run.settings["seed"],
        "steps": min(plan.reached(run), run.steps),
        "seconds": round(sum(row["seconds"] for row in speed), 1),
        "diverged": why.read_text().strip() if why.exists() else None,
        "starts": starts(plan.starts(run)),
    }


@dataclasses.dataclass(frozen=True)
class Found:
    """One run as it was left: its curve, and its record with what it was made with."""

    record: dict[str, Any]
    curve: Curve
    long: bool = False  # among those that were exported, and not of the budget's own

    @property
    def steps(self) -> int:
        return int(self.curve.steps[-1]) if len(self.curve.steps) else 0


@dataclasses.dataclass(frozen=True)
class Trace:
    """The runs of a line at one rate, a seed each."""

    label: str
    rate: float | None
    task: str
    runs: tuple[Found, ...]

    @property
    def name(self) -> str:
        return self.label if self.rate is None else f"{self.label} at {rate_in_words(self.rate)}"

    @property
    def reached(self) -> int:
        """By the run that has come farthest."""
        return max((run.steps for run in self.runs), default=0)

    @property
    def curves(self) -> list[Curve]:
        return [run.curve for run in self.runs]

    def at(self, step: int) -> list[float]:
        """The figure at a step, of the runs that have come so far."""
        return [value for curve in self.curves if (value := curve.at(step)) is not None]


def of_released(label: str, task: str, found: list[Curve]) -> Trace | None:
    runs = tuple(Found({"id": f"{label} {i}", "seed": i}, curve) for i, curve in enumerate(found))
    return Trace(label, None, task, runs) if runs else None


class Result:
    """An experiment's results as they were left, and what exported runs add to its lines."""

    def __init__(self, folder: Path, exported: Iterable[dict[str, Any]] = (), measured: dict[str, Any] | None = None):
        self.folder = folder
        path = folder / "result.json"
        try:
            self.document = json.loads(path.read_text("utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"{path} cannot be read ({error}): run the experiment again.") from None
        self.budget, self.measured = self.document["budget"], self.document["measured"] | (measured or {})
        self.figure = FIGURES.get(self.document["experiment"])
        self._traces = self._gathered(list(exported))

    def _gathered(self, exported) -> dict[tuple[str, float], Trace]:
        """By label and rate; of two runs with the same seed the longer one."""
        found: dict[tuple[str, float], tuple[str, dict[int, Found]]] = {}

        def add(label, task, rate, run):
            seeds = found.setdefault((label, rate), (task, {}))[1]
            seed = run.record["seed"]
            if seed not in seeds or _length(seeds[seed]) < _length(run):
                seeds[seed] = run

        for line in self.document["lines"]:
            for run in line["runs"]:
                curve = curves.read(self.folder / "curves" / f"{run['id']}.csv")
                run = run | {"settings": {name: v for name, v in line["settings"].items() if v is not None}}
                add(line["label"], line["task"], line["settings"]["learning_rate"], Found(run, curve))
        for record in exported:
            label = self.figure and label_of(self.figure, record)
            if label:
                run = Found(record, curves.read(record["path"]), long=True)
                add(label, record["task"], record["settings"]["learning_rate"], run)
        order = [row.label for row in self.figure.rows] if self.figure else []
        keys = sorted(found, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), -key[1]))
        return {key: Trace(*key, found[key][0], tuple(found[key][1].values())) for key in keys}

    def traces(self) -> list[Trace]:
        return list(self._traces.values())

    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for label, _ in self._traces))

    def choice(self, label: str) -> Choice | None:
        """The best rate of a label, by the first seeds, those that diverged left out."""
        firsts = {trace.rate: trace.runs[0] for (each, _), trace in self._traces.items() if each == label}
        lasting = {rate: run for rate, run in firsts.items() if not run.record.get("diverged")}
        task = next((trace.task for trace in self.traces() if trace.label == label), "copy")
        return choose({not_none(rate): run.curve for rate, run in lasting.items()}, task)

    def best(self, label: str) -> Trace | None:
        choice = self.choice(label)
        return None if choice is None else self._traces[label, choice.rate]

    def at_rate(self, label: str, rate: float) -> Trace | None:
        return self._traces.get((label, rate))


def _length(run: Found) -> tuple[int, int]:
    """Lines of different length may share a curve."""
    return run.steps, run.record["steps"]


def label_of(figure: Figure, record: dict[str, Any]) -> str | None:
    """The line of a figure that an exported run belongs to, by its settings."""
    for row in figure.rows:
        settings = figure.settings(row)
        own = {name: value for name, value in settings.items() if name != "valid_every"}
        if task_of(settings) == record["task"] and all(record["settings"].get(k) == v for k, v in own.items()):
            return row.label
    return None


def seconds(results: Iterable[Result]) -> float:
    """Of training and measuring, runs that are shared counted once."""
    runs: dict[str, float] = {}
    total = 0.0
    for result in results:
        total += result.document["measured_seconds"]
        for run in (run for trace in result.traces() for run in trace.runs):
            runs[run.record["id"]] = max(run.record["seconds"] or 0.0, runs.get(run.record["id"], 0.0))
    return total + sum(runs.values())
