"""`evergrad paper`: the paper's figures and tables."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained, leave_by_signal

paper_app = typer.Typer(
    no_args_is_help=True,
    help="The paper's figures and tables, reproduced.\n\nExample: evergrad paper run lemma2 --budget quick",
)
Budget = Annotated[str, typer.Option(help="quick (minutes), desk (hours on two cores) or full (the paper's size).")]
Out = Annotated[Path, typer.Option(help="Folder for runs and results.")]
Reference = Annotated[Path | None, typer.Option(help="Folder with the released curves (CSV), drawn behind ours.")]


@paper_app.command("list")
def list_(
    budget: Annotated[str | None, typer.Option(help="Show what this budget trains: lines, steps and seeds.")] = None,
) -> None:
    """The experiments by name; with --budget, what they train.

    Example: evergrad paper list --budget desk
    """
    with explained():
        from rich.console import Console

        from evergrad.paper import commands

        console = Console()
        console = console if console.is_terminal else Console(width=160)
        if budget is not None:
            commands.check_budget(budget)
            console.print(commands.table_of_lines(budget))
            return
        console.print(commands.table_of_experiments())
        for name, text in commands.BUDGETS.items():
            console.print(f"--budget {name}: {text}", highlight=False)


@paper_app.command()
def run(
    names: Annotated[list[str], typer.Argument(help="Names of `evergrad paper list`, or all.", metavar="NAME...")],
    budget: Budget = "quick",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with Penn Treebank's train.txt, valid.txt, test.txt; else Python's text."),
    ] = None,
    reference: Reference = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of every line, instead of the budget's.", min=1, max=10_000)
    ] = None,
    out: Out = Path("runs/paper"),
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time; as many as there are cores.", min=1, max=1024)
    ] = None,
) -> None:
    """Train and measure. What is finished is not done again; what was interrupted goes on where it was.

    Example: evergrad paper run lemma2 --budget quick --out runs/paper
    """
    with explained():
        stopped = _run(names, budget, data, reference, seeds, out, jobs)
    leave_by_signal(stopped)


def _run(names, budget, data, reference, seeds, out, jobs):
    from rich.console import Console

    from evergrad._core.machine import cores
    from evergrad._training.signals import listening
    from evergrad.paper import commands
    from evergrad.paper.plan import Plan

    names = commands.chosen(names)
    commands.check_budget(budget)
    commands.check_folder(data, "--data")
    commands.check_reference(reference)
    console = Console()

    def say(text):
        return console.print(text, markup=False, highlight=False, soft_wrap=True)

    with listening() as stop:
        data = None if data is None else str(data.resolve())
        plan = Plan(budget, out, data, seeds, jobs or cores(), stop, say)
        done = commands.run(plan, names, console)
    if done:
        path, _ = commands.report(out / "results" / budget, reference)
        say(f"page: {path}")
        return None
    say("stopped; the same command goes on from here")
    return stop.signal


@paper_app.command()
def report(
    budget: Budget = "quick",
    reference: Reference = None,
    out: Out = Path("runs/paper"),
    results: Annotated[
        Path | None, typer.Option(help="Folder with results, if they are not in OUT/results/BUDGET.")
    ] = None,
) -> None:
    """One self-contained HTML page, and PNGs, of all results there are.

    Example: evergrad paper report --budget quick --out runs/paper
    """
    with explained():
        from evergrad.paper import commands

        commands.check_budget(budget)
        commands.check_reference(reference)
        path, count = commands.report(results or out / "results" / budget, reference)
        print(f"{path}: {count} experiment{'s' if count > 1 else ''}")
