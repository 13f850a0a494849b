"""`evergrad bench`: how fast it is on this machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from evergrad.cli.errors import explained

app = typer.Typer(help="How fast it is on this machine.", invoke_without_command=True)


@app.callback()
def bench(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and sizes: under two minutes.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="File to write the figures to as well.")] = None,
) -> None:
    """Measure the goals of speed, as ratios in one run, and how time and memory grow. Exit code 1 if one is missed.

    Example: evergrad bench --quick
    """
    if context.invoked_subcommand is not None:
        return
    with explained():
        import time

        from rich.console import Console

        from evergrad.bench import report
        from evergrad.bench.goals import FULL, QUICK, goals
        from evergrad.bench.growth import growth
        from evergrad.files import write_whole
        from evergrad.machine import machine

        console, start = Console(), time.time()
        effort = QUICK if quick else FULL
        with console.status("measuring") as status:
            say = lambda what: status.update(f"measuring: {what}") if console.is_terminal else console.print(what)  # noqa: E731
            rows = list(goals(effort, say))
            fits = list(growth(effort.rounds, quick, say))
        console.print(report.goals_table(rows), report.times_table(rows), report.growth_table(fits))
        about = {"quick": quick, "seconds": round(time.time() - start), "date": time.strftime("%Y-%m-%d")}
        console.print(machine() | about)
        if json_file is not None:
            write_whole(json_file, json.dumps(report.as_json(rows, fits, **about), indent=1) + "\n")
        missed = [each for each in (*rows, *fits) if each.passed is False]
        if missed:
            console.print(f"{len(missed)} missed")
            raise typer.Exit(1)
