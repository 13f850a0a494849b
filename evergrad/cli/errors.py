"""Exceptions become one message on stderr and an exit code: 2 bad input, 1 a run that failed, 3 divergence."""

import contextlib
import logging
import sys
from collections.abc import Iterator

import typer


@contextlib.contextmanager
def explained() -> Iterator[None]:
    from evergrad.checks import InputError

    _hush_orbax()
    try:
        yield
    except InputError as error:
        _leave(str(error), 2)
    except OSError as error:
        _leave(
            f"{error.filename or 'a file'}: {error.strerror or error}. Make room or mend the permissions, then resume.",
            1,
        )
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        _leave(str(error), code)


def _hush_orbax() -> None:
    """What its threads log and print when a file cannot be written; the failure itself is raised, and told once."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    loud, louder = sys.unraisablehook, sys.excepthook
    echo = lambda error: isinstance(error, RuntimeError) and "Event loop is closed" in str(error)  # noqa: E731
    sys.unraisablehook = lambda info: None if echo(info.exc_value) else loud(info)
    sys.excepthook = lambda kind, error, trace: None if echo(error) else louder(kind, error, trace)


def _exit_code(error: Exception) -> int | None:
    from evergrad.checkpoint import CheckpointError
    from evergrad.paper.runner import FailedRun
    from evergrad.training.divergence import Diverged

    return 1 if isinstance(error, CheckpointError | FailedRun) else 3 if isinstance(error, Diverged) else None


def _leave(message: str, code: int) -> None:
    print(f"evergrad: {message}", file=sys.stderr)
    raise typer.Exit(code)


def leave_by_signal(stopped) -> None:
    """The shell's code for a process that a signal ended."""
    if stopped is not None:
        raise typer.Exit(128 + stopped)
