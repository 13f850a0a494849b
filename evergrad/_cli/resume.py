"""`evergrad resume RUN`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from evergrad._cli.errors import explained, leave_by_signal, together
from evergrad._cli.options import RESUMED, with_options
from evergrad._training.machine_options import machine_fields
from evergrad._training.settings import fields

Run = Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")]


@with_options([*(f for f in fields("copy").values() if f.metadata["resumable"]), *machine_fields()], RESUMED)
def resume(run: Run, **given: Any) -> None:
    """Go on with a run from its last good checkpoint; the result is the same as if it had never stopped.

    Settings stay as they were; those below can be changed, more --steps to train on a finished run among them. The number of
    devices and processes may be another one.

    Example: evergrad resume runs/copy
    """
    with explained():
        from rich.console import Console

        from evergrad._cli.watching import watching
        from evergrad._training.machines import take_machines
        from evergrad._training.run import resume

        machines, given = take_machines(given)
        with together(machines) as team:
            stopped = resume(run, given, Console(quiet=not team.is_first), machines, team, watching)
    leave_by_signal(stopped)
