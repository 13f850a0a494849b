"""Exceptions become one message on stderr and an exit code: 2 bad input, 1 a run that failed, 3 divergence, 141 nobody reads.

In a run of several processes there is 4, another process was lost, and whoever gives up takes the others along.
"""

import contextlib
import inspect
import logging
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import typer


@contextlib.contextmanager
def explained() -> Iterator[None]:
    _hush_orbax()
    try:
        yield
    except Exception as error:
        said = _said(error)
        if said is None:
            raise
        leave(*said)


@contextlib.contextmanager
def together(machines: Any) -> Iterator[Any]:
    """The processes of a run, which end together, well or not."""
    from evergrad._training.machines import muster
    from evergrad._training.team import SILENCE, Alone

    team = muster(machines)
    if isinstance(team, Alone):
        yield team
        return
    try:
        team.roll_call()
        yield team
        team.leave()
    except Exception as error:
        message, code = _said(error) or ("".join(traceback.format_exception(error)), 1)
        if code == 1:
            time.sleep(SILENCE)  # a process that dies makes all kinds of things fail; once noticed it ends this one too
        team.fail(message, code)


def _said(error: Exception) -> tuple[str, int] | None:
    """What to say of an error and the exit code, None if it was not expected."""
    from evergrad._core.checks import InputError
    from evergrad._core.room import ran_out

    if isinstance(error, InputError):
        return str(error), 2
    if isinstance(error, BrokenPipeError):
        return "nobody reads the output any more.", 128 + signal.SIGPIPE
    if isinstance(error, OSError):
        where, what = error.filename or "a file", error.strerror or error
        if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
            return f"{where}: {what}. Choose another path.", 2
        return f"{where}: {what}. Make room or mend the permissions, then try again or resume.", 1
    if ran_out(error):
        return "there was not enough memory: use smaller sizes, or let other programs end first.", 2
    code = _exit_code(error)
    return None if code is None else (str(error), code)


def _hush_orbax() -> None:
    """What its threads log and print when a file cannot be written; the failure itself is raised, and told once."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    loud, louder = sys.unraisablehook, sys.excepthook

    def echo(error):
        return isinstance(error, RuntimeError) and "Event loop is closed" in str(error)

    # a damaged file leaves hundreds of its readers unfinished, each with a traceback of its own
    def left(info):
        return echo(info.exc_value) or inspect.iscoroutine(info.object)

    sys.unraisablehook = lambda info: None if left(info) else loud(info)
    sys.excepthook = lambda kind, error, trace: None if echo(error) else louder(kind, error, trace)


def _exit_code(error: Exception) -> int | None:
    from evergrad._core.checks import DivergedError
    from evergrad._training.checkpoint import CheckpointError
    from evergrad._training.divergence import Diverged
    from evergrad.paper.runner import FailedRun

    failed, diverged = (isinstance(error, kinds) for kinds in (CheckpointError | FailedRun, Diverged | DivergedError))
    return 1 if failed else 3 if diverged else None


def warn(message: str) -> None:
    from evergrad._core.printable import printable_lines

    print(f"evergrad: {printable_lines(message)}", file=sys.stderr)


def leave(message: str, code: int) -> None:
    warn(message)
    raise typer.Exit(code)


def leave_by_signal(stopped) -> None:
    """The shell's code for a process that a signal ended."""
    if stopped is not None:
        raise typer.Exit(128 + stopped)
