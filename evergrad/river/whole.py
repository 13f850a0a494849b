"""Calls that happen as a whole or not at all, and one at a time.

A call that changes a learner works on a draft of it and puts the draft's contents in the learner's place by a single
assignment at its end. Whatever ends the call before, bad input or an exception from a signal handler, the learner is as it
was; whatever comes after, it has learned. No array is ever changed or given away once a learner has it, so that reading
needs no lock: it reads what was there when it began, while another thread learns.
"""

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

from evergrad._core.checks import DivergedError
from evergrad.river import forks


class Guard:
    """The lock of one learner. A copy of the learner, or one from a file, gets a lock of its own."""

    def __init__(self) -> None:
        # the C lock itself stands in `with`: between taking it and being inside there is no place for a signal
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[type["Guard"], tuple[()]]:
        return Guard, ()


def changes(method: Callable) -> Callable:
    """For a method that changes the learner: all of it or nothing, and no two of them at once."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        forks.check()
        with self._guard.lock:
            draft = self._draft()
            try:
                result = method(draft, *args, **kwargs)
            except DivergedError as error:
                if not self.restart:
                    raise
                draft = _afresh(self, error)
                result = method(draft, *args, **kwargs)
            self.__dict__ = draft.__dict__
        return result

    return call


def reads(method: Callable) -> Callable:
    """For a method that leaves the learner as it is: of what there was when it was called."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(view(self), *args, **kwargs)

    return call


def view(learner: Any) -> Any:
    """What a learner is now, to read."""
    forks.check()
    return like(learner)


def _afresh(learner, error):
    warnings.warn(f"{type(learner).__name__} begins anew (restart=True), since {error}", stacklevel=4)
    draft = learner._draft()
    draft._session = None
    return draft


def like(thing: Any) -> Any:
    """Another object with the same contents, none of them copied."""
    new = object.__new__(type(thing))
    new.__dict__ = dict(thing.__dict__)
    return new
