"""`evergrad bench scale`."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad.cli.errors import explained


def scale(
    quick: Annotated[bool, typer.Option("--quick", help="A small setting, in about a minute.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="File to write the figures to as well.")] = None,
) -> None:
    """Measure steps a second against devices and processes, count what moves, and project to many accelerators.

    Example: evergrad bench scale --quick
    """
    with explained():
        import json
        import time

        from rich.console import Console

        from evergrad.bench import scale_report
        from evergrad.bench.scale import FULL, QUICK, scale
        from evergrad.files import write_whole
        from evergrad.machine import machine

        console, start = Console(), time.time()
        result = scale(QUICK if quick else FULL, lambda what: console.print(f"measuring: {what}"))
        result |= machine() | {"quick": quick, "seconds": round(time.time() - start), "date": time.strftime("%Y-%m-%d")}
        console.print(*scale_report.tables(result))
        if json_file is not None:
            write_whole(json_file, json.dumps(result, indent=1) + "\n")
