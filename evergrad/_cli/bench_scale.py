"""`evergrad bench scale`."""

from typing import Annotated

import typer

from evergrad._cli.errors import explained
from evergrad._cli.json_option import JsonFile, check_json_file, write_json


def scale(
    quick: Annotated[bool, typer.Option("--quick", help="A small setting, in about a minute.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure steps a second against devices and processes, count what moves, and project to many accelerators.

    Example: evergrad bench scale --quick
    """
    with explained():
        check_json_file(json_file)
        import time

        from rich.console import Console

        from evergrad._cli.bench import teller
        from evergrad._core.machine import machine
        from evergrad.bench import scale_report
        from evergrad.bench.scale import FULL, QUICK, scale

        start = time.time()
        result = scale(QUICK if quick else FULL, teller())
        result |= machine() | {"quick": quick, "seconds": round(time.time() - start), "date": time.strftime("%Y-%m-%d")}
        Console().print(*scale_report.tables(result))
        write_json(json_file, result)
