"""What the command line made, opened in Python."""

import warnings
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError


def open_run(folder: str | Path) -> tuple[Any, Any, Any]:
    """The learner, the state and the task of a run's last good checkpoint; the folder is left as it is.

    `task.source` makes the streams, and `task.position` is where the run was in them, so that
    `learner.fit(state, task.source, steps, position=task.position)` goes on as the run would. Sets JAX's precision to that
    of the run (`--precision`). Needs `evergrad[cli]`.

    Examples:
        >>> learner, state, task = eg.open_run("runs/copy")  # doctest: +SKIP
        >>> try:
        ...     eg.open_run("no such folder")
        ... except eg.InputError:
        ...     print("there is no run")
        there is no run
    """
    try:
        from evergrad._training import folder as folders, run
    except ImportError as error:
        raise InputError(f"eg.open_run needs {error.name}: install `evergrad[cli]`.") from None
    job, progress = run.load(folders.open_run(Path(folder)), _warn)
    job.task.position = progress.position
    return job.learner, progress.state, job.task


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
