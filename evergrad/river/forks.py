"""A process that was forked while JAX ran has JAX's locks and not its threads: the first call into it waits forever."""

import os

from jax._src import xla_bridge

_forked_from: int | None = None  # the process that had JAX running, if this one is its child


class ForkedError(RuntimeError):
    """A stream learner was used in a process that was forked after JAX had begun.

    Examples:
        >>> issubclass(evergrad.river.ForkedError, RuntimeError)
        True
    """


def check() -> None:
    if _forked_from is not None:
        raise ForkedError(
            f"this process ({os.getpid()}) was forked from one ({_forked_from}) in which JAX was already running, and "
            "JAX's threads are not forked with it: it would wait for them forever. Start workers with spawn, "
            'multiprocessing.get_context("spawn"), or fork before anything is computed (gunicorn without --preload), '
            "and give models to workers as files: save here, load there. See docs/streams.md, 'Processes'."
        )


def begun() -> bool:
    """Whether JAX has started its threads. If a later JAX does not say so any more, it may have."""
    return getattr(xla_bridge, "backends_are_initialized", lambda: True)()


def _note() -> None:
    global _forked_from
    if begun():
        _forked_from = os.getppid()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note)
