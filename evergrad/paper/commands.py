"""What `evergrad paper` does."""

from pathlib import Path

from rich.console import Console

from evergrad.checks import InputError, refuse_unless
from evergrad.experiments import EXPERIMENTS, experiment
from evergrad.names import refuse_unknown
from evergrad.paper.experiment import Experiment
from evergrad.paper.plan import BUDGETS, Plan, Stopped
from evergrad.paper.results import Result, place, write
from evergrad.paper.runner import needed, run_all


def chosen(names: list[str]) -> list[str]:
    for name in names:
        refuse_unknown("experiment", name, [*EXPERIMENTS, "all"])
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def check_budget(budget: str) -> None:
    refuse_unknown("budget", budget, BUDGETS)


def check_folder(path: Path | None, option: str) -> None:
    refuse_unless(path is None or path.exists(), f"{option} {path}: there is nothing there; check the path.")


def run(plan: Plan, names: list[str], console: Console) -> bool:
    """Trains, measures and writes results. False if a signal stopped it: what there is, is written all the same."""
    experiments = [experiment(name) for name in names]
    try:
        _train(plan, experiments, console)
        for each in experiments:
            _finish(plan, each, each.measure(plan))
    except Stopped:
        for each in experiments:
            if not (place(plan, each.name) / "result.json").exists() and each.lines(plan):
                _finish(plan, each, {})
        return False
    return True


def _train(plan: Plan, experiments: list[Experiment], console: Console) -> None:
    """Until nothing more is asked for: a choice among finished runs may ask for others."""
    while True:
        runs = [run for each in experiments for line in each.lines(plan) for run in line.runs()]
        if not needed(plan, runs):
            return
        run_all(plan, runs, console)


def _finish(plan: Plan, each: Experiment, measured: dict) -> None:
    from evergrad.machine import machine

    write(plan, each.name, each.lines(plan), measured, machine())
    plan.say(f"{each.name}: results in {place(plan, each.name)}")


def report(results: Path, reference: Path | None) -> tuple[Path, int]:
    """The page of all experiments found there, and how many they are."""
    from evergrad.paper.page import write_page

    found = [name for name in EXPERIMENTS if (results / name / "result.json").exists()]
    if not found:
        raise InputError(f"{results} has no results: make some with `evergrad paper run all --budget quick`.")
    parts = []
    for name in found:
        each, result = experiment(name), Result(results / name)
        if result.measured or result.lines():
            parts.append((each, result, each.section(result, reference)))
    path = results / "report.html"
    write_page(parts, path)
    return path, len(parts)
