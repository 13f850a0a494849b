"""What `evergrad paper` does."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._core.not_none import not_none
from evergrad.paper import curves, long
from evergrad.paper.claims import OPEN
from evergrad.paper.experiment import Experiment, Section
from evergrad.paper.experiments import EXPERIMENTS, experiment
from evergrad.paper.experiments.lines import FIGURES, Row
from evergrad.paper.experiments.planned import at_rate
from evergrad.paper.plan import BUDGETS, Line, Plan, Run, Stopped
from evergrad.paper.rates import rate_in_words
from evergrad.paper.results import Result, place, write
from evergrad.paper.runner import needed, run_all
from evergrad.paper.setup import RELEASED_RATE


def table_of_experiments() -> Table:
    table = Table("name", "what", "file")
    for name, (file, _) in EXPERIMENTS.items():
        table.add_row(name, experiment(name).title, f"evergrad/paper/experiments/{file}.py")
    return table


def table_of_lines(budget: str) -> Table:
    """What a budget trains: every line of every figure, at the released runs' rate and at the best of four."""
    table = Table("experiment", "line", "released rate", "best rate", "each of four", title=f"--budget {budget}")
    for name, figure in FIGURES.items():
        for row in figure.rows:
            if budget in row.sizes or budget in row.best:
                table.add_row(name, row.label, *_sizes(row, budget))
    table.caption = "Steps x seeds. Which rate is best, the runs decide: each of four is tried with one seed."
    return table


def _sizes(row: Row, budget: str) -> tuple[str, ...]:
    each = (row.sizes.get(budget), row.best.get(budget))
    searched = row.search.get(budget)
    tried = f"{searched:,}" if searched else f"as {' '.join(row.rate_of)}" if row.rate_of else ""
    tried = tried if budget in row.best else ""
    return (*(f"{size[0]:,} x {size[1]}" if size else "" for size in each), tried)


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
    found = [curves.released(folder, name) for name in names]
    refuse_unless(
        folder is None or any(found), f"--reference {folder} has none of {', '.join(f'{n}.csv' for n in names)}."
    )


def one_line(plan: Plan, names: list[str], label: str, steps: int | None, rate: float | None, seed: int) -> Line:
    """A named line to a named number of steps; without them, those of the budget, and the released runs' rate."""
    refuse_unless(len(names) == 1, f"--line {label} is of one figure: name that one, and not {', '.join(names)}.")
    refuse_unknown("experiment with lines", names[0], FIGURES)
    figure = FIGURES[names[0]]
    refuse_unknown(f"line of {names[0]}", label, [row.label for row in figure.rows])
    row = figure.row(label)
    size = row.sizes.get(plan.budget) or row.best.get(plan.budget)
    if steps is None and size is None:
        raise InputError(f"--line {label} has no length at the budget {plan.budget}: say how long by --steps.")
    return at_rate(plan, figure, row, rate or RELEASED_RATE, steps or not_none(size)[0], 1, first=seed)


def parse_rate(text: str | None) -> float | None:
    """A number, or 10^-2.5, which is as exact as the paper's."""
    if text is None:
        return None
    try:
        base, _, exponent = text.partition("^")
        rate = float(base) ** float(exponent) if exponent else float(base)
    except (ValueError, OverflowError):
        raise InputError(f"--rate {text}: give a number, or 10^-2.5.") from None
    refuse_unless(isinstance(rate, float) and 0 < rate < 1, f"--rate {text}: a rate lies between 0 and 1.")
    return rate


def train_line(plan: Plan, line: Line, console: Console) -> bool:
    """False if a signal stopped it."""
    (run,) = line.runs()
    _check_exported(plan, line, run)
    try:
        run_all(plan, [run], console)
    except Stopped:
        return False
    rate = rate_in_words(line.settings["learning_rate"])
    plan.say(f"{line.label}, rate {rate}, seed {line.first}: step {plan.reached(run):,}, in {plan.path(run)}")
    return True


def _check_exported(plan: Plan, line: Line, run: Run) -> None:
    """Who says where one run was left does not want it from the beginning."""
    if plan.exported is None or plan.path(run).exists():
        return
    from evergrad.paper.networks import found

    refuse_unless(
        found(plan.exported, run) is not None,
        f"--from {plan.exported} has no network of {line.label} at this rate, seed and data in its networks: leave --from out to "
        "begin at the first step, or export the run again.",
    )


def run(plan: Plan, names: list[str], console: Console, *, training: bool = True) -> bool:
    """Trains, measures and writes results. False if a signal stopped it: what there is, is written all the same."""
    experiments = [experiment(name) for name in names]

    def so_far():
        return [_write(plan, each, _measured_before(plan, each)) for each in experiments if each.lines(plan)]

    try:
        if training:
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
        lines = [line for each in experiments for line in each.lines(plan)]
        if plan.budget == "long":
            lines.sort(key=lambda line: line.turn)
        runs = [run for line in lines for run in line.runs()]
        if not needed(plan, runs):
            return
        run_all(plan, runs, console, told=told)


def _write(plan: Plan, each: Experiment, measured: dict[str, Any]) -> None:
    write(plan, each.name, each.lines(plan), measured)


def _measured_before(plan: Plan, each: Experiment) -> dict[str, Any]:
    path = place(plan, each.name) / "result.json"
    return json.loads(path.read_text("utf-8"))["measured"] if path.exists() else {}


def report(results: Path, reference: Path | None, exported: Path | None = None) -> tuple[Path, int]:
    """The page of all experiments found there, with what exported runs add to it; and how many they are."""
    from evergrad.paper.page import write_page

    found = [name for name in EXPERIMENTS if (results / name / "result.json").exists()]
    if not found:
        raise InputError(f"{results} has no results: make some with `evergrad paper run all --budget quick`.")
    records, parts = long.records(exported), []
    for name in found:
        each, result = experiment(name), Result(results / name, records, long.measured(exported, name))
        if result.measured or result.traces():
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
