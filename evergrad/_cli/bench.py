"""`evergrad bench`: how fast it is on this machine."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from evergrad._cli.errors import explained
from evergrad._cli.json_option import JsonFile, check_json_file, write_json

_GROWTH = "growth"

app = typer.Typer(help="How fast it is on this machine.", invoke_without_command=True)


@app.callback()
def bench(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds, settings and sizes: under two minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A part: ok, ktp, rolling, compile, uoro, networks, stack, unit-local, short or growth; again for more."
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure the goals of speed, as ratios in one run, and how time and memory grow. Exit code 1 if one is missed.

    Example: evergrad bench --quick
    """
    if context.invoked_subcommand is not None:
        return
    with explained():
        check_json_file(json_file)
        from evergrad._core.checks import refuse_unless
        from evergrad.bench.goals import FULL, PARTS, QUICK, goals
        from evergrad.bench.growth import growth

        wanted = only or [*PARTS, _GROWTH]
        for part in wanted:
            refuse_unless(
                part in (*PARTS, _GROWTH), f"--only {part}: no such part; there are {', '.join(PARTS)} and {_GROWTH}."
            )
        effort, start, say = QUICK if quick else FULL, time.time(), teller()
        rows = list(goals(effort, say, wanted))
        fits = list(growth(quick, say)) if _GROWTH in wanted else []
        _show(rows, fits, json_file, quick=quick, only=only, seconds=round(time.time() - start))


def peers(
    braintrace: Annotated[Path, typer.Option(help="The Python of the environment that braintrace is in.")] = Path(
        ".venv-braintrace/bin/python"
    ),
    pytorch: Annotated[Path, typer.Option(help="The Python of the environment that PyTorch is in.")] = Path(
        ".venv-pytorch/bin/python"
    ),
    json_file: JsonFile = None,
) -> None:
    """Measure against what people could use instead, taking turns in one run. Exit code 1 if a goal is missed.

    `make bench-peers` makes the environments and runs this.
    Example: evergrad bench peers --json peers.json
    """
    with explained():
        check_json_file(json_file)
        from evergrad.bench.peers import peers

        start = time.time()
        rows = list(peers(braintrace, pytorch, rounds=9, steps=32, say=teller()))
        _show(rows, [], json_file, seconds=round(time.time() - start))


@app.command()
def roofline(
    units: Annotated[int, typer.Option(help="Of an RHN.", min=2)] = 256,
    rank: Annotated[int, typer.Option(help="Of OK.", min=1)] = 8,
    json_file: JsonFile = None,
) -> None:
    """What a step of OK would take at best on accelerators that are not here: counted work over published peaks, not measured.

    Example: evergrad bench roofline --units 1024
    """
    with explained():
        check_json_file(json_file)
        from rich.console import Console

        from evergrad.bench import roofline

        found = roofline.points(units, rank)
        Console().print(roofline.table(found))
        write_json(json_file, {"what": "counted, not measured", "points": [roofline.as_json(each) for each in found]})


def teller() -> Callable[[str], None]:
    """Says what is being measured, and when: a full run takes minutes."""
    from rich.console import Console

    console, start = Console(stderr=True), time.time()
    return lambda what: console.print(f"{time.time() - start:4.0f} s  measuring {what}", highlight=False)


def _show(rows: list, fits: list, json_file: Path | None, **about: Any) -> None:
    from rich.console import Console

    from evergrad.bench import report

    console = Console()
    console.print(*report.tables(rows, fits))
    document = report.as_json(rows, fits, **about, date=time.strftime("%Y-%m-%d"))
    console.print(document["about"])
    write_json(json_file, document)
    missed = [each for each in (*rows, *fits) if each.passed is False]
    if missed:
        console.print(f"{len(missed)} missed")
        raise typer.Exit(1)
