"""`evergrad arena`: who learns at which lag, and what a step costs."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained, leave_by_signal

arena_app = typer.Typer(
    no_args_is_help=True,
    help="Every estimator against tasks whose lag can be turned, beside rolling TBPTT of every horizon.\n\n"
    "Example: evergrad arena run --budget quick",
)
Out = Annotated[Path, typer.Option(help="Folder for result.json, page.html and the pictures.")]


@arena_app.command("list")
def list_() -> None:
    """The tasks, and what each budget tries.

    Example: evergrad arena list
    """
    with explained():
        from rich.console import Console
        from rich.table import Table

        from evergrad.arena.budgets import BUDGETS
        from evergrad.arena.challenges import CHALLENGES

        table = Table("task", "what", "what has to be held")
        for name, challenge in CHALLENGES.items():
            table.add_row(name, challenge.about, challenge.holds)
        console = Console()
        console = console if console.is_terminal else Console(width=160)
        console.print(table)
        for name, budget in BUDGETS.items():
            console.print(f"--budget {name}: {budget.about}", highlight=False)


@arena_app.command()
def run(
    budget: Annotated[str, typer.Option(help="quick (two minutes) or desk (hours).")] = "quick",
    tasks: Annotated[str | None, typer.Option(help="Names of `evergrad arena list`, a,b,c.")] = None,
    lags: Annotated[str | None, typer.Option(help="Lags in steps, such as 16,64,256.")] = None,
    cells: Annotated[str | None, typer.Option(help="Cells, such as lstm,mingru.")] = None,
    units: Annotated[str | None, typer.Option(help="Sizes of the hidden state, such as 32,128.")] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="name:parameter=value,…; may be given several times. Rolling TBPTT is there anyway.",
            metavar="NAME:...",
        ),
    ] = None,
    horizons: Annotated[str | None, typer.Option(help="Horizons of rolling TBPTT.", show_default="8,16,…,512")] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds of everyone.", min=1, max=10_000)] = None,
    first_seed: Annotated[int, typer.Option(help="The first of them.", min=0, max=2**31 - 1)] = 0,
    steps_per_lag: Annotated[
        int | None, typer.Option(help="Steps of a trial for each step of its lag.", min=1, max=10**6)
    ] = None,
    least_steps: Annotated[int | None, typer.Option(help="Steps of a trial at least.", min=40, max=10**9)] = None,
    batch: Annotated[int, typer.Option(help="Streams.", min=1, max=2**20)] = 16,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Adam's learning rate, the same for all.", min=1e-9, max=1.0, show_default="0.01; desk: 0.003"
        ),
    ] = None,
    out: Out = Path("runs/arena"),
) -> None:
    """Try everyone. What is in OUT/result.json is not done again: stop by Ctrl-C, and the same command goes on.

    Example: evergrad arena run --tasks chain --lags 64,256 --cells lstm --units 32 --estimator ok:rank=8,window=16 --seeds 5
    """
    said = {"tasks": tasks, "lags": lags, "cells": cells, "units": units, "estimators": estimator, "horizons": horizons}
    said |= {"seeds": seeds, "first_seed": first_seed, "steps_per_lag": steps_per_lag, "least_steps": least_steps}
    with explained():
        stopped = _run(budget, said | {"batch": batch, "rate": rate}, out)
    leave_by_signal(stopped)


def _run(budget, said, out):
    from rich.console import Console

    from evergrad._cli.overwriting import check_may_replace
    from evergrad._training.signals import listening
    from evergrad.arena import commands, results
    from evergrad.arena.budgets import wanted

    say = _saying(Console())
    want = wanted(budget, said)
    check_may_replace(out / results.FILE, "JSON", "--out")
    with listening() as stop:
        done = commands.run(want, out, stop, say)
    if (out / results.FILE).exists():
        say(f"page: {commands.report([out / results.FILE], out)}")
    if done:
        return None
    say("stopped; the same command goes on from here")
    return stop.signal


def _saying(console):
    def say(text):
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    return say


@arena_app.command()
def report(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Results, several in one page.", show_default="OUT/result.json")
    ] = None,
    out: Out = Path("runs/arena"),
) -> None:
    """One self-contained HTML page, and two PNGs, of all trials there are.

    Example: evergrad arena report --out runs/arena
    """
    with explained():
        from evergrad.arena import commands, results

        path = commands.report(files or [out / results.FILE], out)
        print(path)


@arena_app.command()
def table(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Results, several in one table.", show_default="OUT/result.json")
    ] = None,
    out: Out = Path("runs/arena"),
) -> None:
    """Print all rows as a table in Markdown, and what follows from them.

    Example: evergrad arena table runs/arena/result.json
    """
    with explained():
        from evergrad.arena import commands, results
        from evergrad.arena.markdown import markdown

        for line in markdown(commands.trials_of(files or [out / results.FILE])):
            print(line)


@arena_app.command("time")
def time_(out: Out = Path("runs/arena")) -> None:
    """Take the times of all steps again, everyone in turn: on a machine that has nothing else to do.

    Example: evergrad arena time --out runs/arena
    """
    with explained():
        from rich.console import Console

        from evergrad._training.signals import listening
        from evergrad.arena import commands, results
        from evergrad.arena.clock import retime

        say = _saying(Console())
        with listening() as stop:
            done = retime(out / results.FILE, stop, say)
        say(f"page: {commands.report([out / results.FILE], out)}")
    leave_by_signal(None if done else stop.signal)
