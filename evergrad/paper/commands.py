"""What `evergrad paper` does."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad.paper.claims import OPEN
from evergrad.paper.experiment import Experiment, Section
from evergrad.paper.experiments import EXPERIMENTS, experiment
from evergrad.paper.plan import BUDGETS, Plan, Stopped
from evergrad.paper.results import Result, place, released, write
from evergrad.paper.runner import needed, run_all


def table_of_experiments() -> Table:
    table = Table("name", "what", "file")
    for name, (file, _) in EXPERIMENTS.items():
        table.add_row(name, experiment(name).title, f"evergrad/paper/experiments/{file}.py")
    return table


def table_of_lines(budget: str) -> Table:
    """What a budget trains; runs that experiments share are shown with each."""
    table = Table("experiment", "line", "steps", "seeds", "units", "streams", title=f"--budget {budget}")
    table.caption = "Where rates are tried, the best goes on, to the steps that stand on top of the experiment's file."
    plan = Plan(budget, Path())
    for name in EXPERIMENTS:
        for line in experiment(name).lines(plan):
            rate = f", rate {line.settings['learning_rate']:.2g}" if line.search else ""
            sizes = (str(line.settings[size]) for size in ("units", "batch"))
            table.add_row(name, line.label + rate, f"{line.steps:,}", str(line.seeds), *sizes)
    return table


def chosen(names: list[str]) -> list[str]:
    for name in names:
        refuse_unknown("experiment", name, [*EXPERIMENTS, "all"])
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def check_budget(budget: str) -> None:
    refuse_unknown("budget", budget, BUDGETS)


def check_folder(path: Path | None, option: str) -> None:
    refuse_unless(path is None or path.exists(), f"{option} {path}: there is nothing there; check the path.")
    refuse_unless(path is None or path.is_dir(), f"{option} {path}: this is a file; give the folder that it is in.")


def check_reference(folder: Path | None) -> None:
    """Before hours of work, rather than after them, when the page is made."""
    check_folder(folder, "--reference")
    names = [name for each in map(experiment, EXPERIMENTS) if (name := each.released)]
    found = [released(folder, name) for name in names]
    refuse_unless(
        folder is None or any(found), f"--reference {folder} has none of {', '.join(f'{n}.csv' for n in names)}."
    )


def run(plan: Plan, names: list[str], console: Console) -> bool:
    """Trains, measures and writes results. False if a signal stopped it: what there is, is written all the same."""
    experiments = [experiment(name) for name in names]

    def so_far():
        return [_write(plan, each, _measured_before(plan, each)) for each in experiments if each.lines(plan)]

    try:
        _train(plan, experiments, console, so_far)
        for each in experiments:
            _write(plan, each, each.measure(plan))
            plan.say(f"{each.name}: results in {place(plan, each.name)}")
    except Stopped:
        so_far()
        return False
    return True


def _train(plan: Plan, experiments: list[Experiment], console: Console, told: Callable[[], Any]) -> None:
    """Until nothing more is asked for: a choice among finished runs may ask for others."""
    while True:
        runs = [run for each in experiments for line in each.lines(plan) for run in line.runs()]
        if not needed(plan, runs):
            return
        run_all(plan, runs, console, told=told)


def _write(plan: Plan, each: Experiment, measured: dict[str, Any]) -> None:
    from evergrad._core.machine import machine

    write(plan, each.name, each.lines(plan), measured, machine())


def _measured_before(plan: Plan, each: Experiment) -> dict[str, Any]:
    folder = place(plan, each.name)
    return Result(folder).measured if (folder / "result.json").exists() else {}


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
            parts.append((each, result, _judged(each, result, _section(each, result, reference))))
    path = results / "report.html"
    write_page(parts, path)
    return path, len(parts)


def _section(each: Experiment, result: Result, reference: Path | None) -> Section:
    try:
        return each.section(result, reference)
    except KeyError as error:
        why = f"{result.folder} has no {error}, so it was made by another version"
        raise InputError(f"{why}: run `evergrad paper run {each.name}` again.") from None


def _judged(each: Experiment, result: Result, section: Section) -> Section:
    """Without verdicts where the networks are not the paper's."""
    if result.budget != "quick" or not each.shrinks:
        return section
    return dataclasses.replace(section, claims=[dataclasses.replace(c, verdict=OPEN) for c in section.claims])
