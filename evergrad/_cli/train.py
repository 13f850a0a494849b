"""`evergrad train TASK`."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evergrad._cli.errors import explained, leave_by_signal, together
from evergrad._cli.options import with_options
from evergrad._training.machine_options import machine_fields
from evergrad._training.settings import FILES, KNOWN, Settings, fields

Out = Annotated[Path, typer.Option("--out", help="Folder for the results; it must be new or empty.", metavar="RUN")]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; what is said on the command line wins.")
]

train_app = typer.Typer(
    no_args_is_help=True,
    help="Train on a task.\n\nExample: evergrad train copy --units 32 --steps 2000 --out runs/first",
)


def start_run(task: str, out: Path, config: Path | None, given: dict[str, Any]) -> None:
    """A new run in the folder `out`."""
    with explained():
        from rich.console import Console

        from evergrad._cli.watching import watching
        from evergrad._training.machines import take_machines
        from evergrad._training.resolve import resolve
        from evergrad._training.run import train

        machines, given = take_machines(given)
        settings = _wherever(resolve(task, given, config))
        _tell_of_pipe(settings)
        with together(machines) as team:
            stopped = train(settings, out, Console(quiet=not team.is_first), machines, team, watching)
    leave_by_signal(stopped)


def _wherever(settings: Settings) -> Settings:
    """With whole paths, so that the run can be resumed from any folder."""
    files = {name: getattr(settings, name) for name in FILES}
    return dataclasses.replace(settings, **{name: os.path.abspath(file) for name, file in files.items() if file})


def _tell_of_pipe(settings: Settings) -> None:
    if settings.task == "series" and settings.data and Path(settings.data).is_fifo():
        print(
            f"evergrad: --data {settings.data} is a pipe, which can be read only once: this run cannot be resumed, "
            "evaluated or exported later. Write the data to a file to be able to.",
            file=sys.stderr,
        )


@train_app.command()
@with_options([*fields("copy").values(), *machine_fields()], "copy")
def copy(out: Out, config: Config = None, **given: Any) -> None:
    """Read a string of bits, then say it; strings grow as they are learned.

    Example: evergrad train copy --units 32 --estimator ok --rank 4 --steps 2000 --out runs/copy
    """
    start_run("copy", out, config, given)


@train_app.command()
@with_options([*fields("cue").values(), *machine_fields()], "cue")
def cue(out: Out, config: Config = None, **given: Any) -> None:
    """See one of two cues, and say which it was when the question comes, many distracting steps later.

    Example: evergrad train cue --cell lstm --units 32 --gap 80 --gap-to 120 --steps 4000 --out runs/cue
    """
    start_run("cue", out, config, given)


@train_app.command()
@with_options([*fields("text").values(), *machine_fields()], "text")
def text(out: Out, config: Config = None, **given: Any) -> None:
    """Predict the next character of a text; without --data, of the one that comes with Python.

    Example: evergrad train text --cell lstm --units 64 --estimator tbptt --horizon 10 --steps 2000 --out runs/text
    """
    start_run("text", out, config, given)


@train_app.command()
@with_options([*fields("series").values(), *machine_fields()], "series")
def series(out: Out, config: Config = None, **given: Any) -> None:
    """Forecast the columns of a CSV or Parquet file, learning from every row as it comes.

    Example: evergrad train series --data rates.csv --ahead 6 --period 24 --units 32 --rank 8 --out runs/rates
    """
    start_run("series", out, config, given)


_KNOWN = {  # tasks of which the best prediction is known: what they are, and an example
    "add": (
        "Say a bit that depends on two inputs of the past; the longest lag that is learned measures a horizon.",
        "--t2 8",
    ),
    "trace": (
        "See a pattern, and say what the reward is worth now that some patterns bring, steps later.",
        "--isi 7 --isi-to 13",
    ),
    "rotation": ("See a vector once, and turn it on and on by a rotation that has to be learned.", "--episode 16"),
    "anbn": ("Predict the next symbol of strings a…ab…b with as many a's as b's.", "--largest 8"),
    "chain": ("See a bit, and say it a number of steps later.", "--lag 8"),
    "chaos": ("Predict a chaotic series a step ahead.", "--system lorenz"),
}


def _command(task: str):
    about, example = _KNOWN[task]

    @with_options([*fields(task).values(), *machine_fields()], task)
    def command(out: Out, config: Config = None, **given: Any) -> None:
        start_run(task, out, config, given)

    command.__doc__ = f"""{about} Reports how far the loss is above the least there is.

    Example: evergrad train {task} --cell mingru --units 16 {example} --steps 2000 --out runs/{task}
    """
    return command


for _task in KNOWN:
    train_app.command(_task)(_command(_task))
