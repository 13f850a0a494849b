"""What estimators with an exact window in front of their influence share."""

from typing import Any

import equinox as eqx

from evergrad._core.checks import whole_number
from evergrad._estimators.base import RANKS, WINDOWS, Estimator
from evergrad._pasts.window import Window


class Windowed(Estimator):
    """Abstract: the newest `window` steps, at least, are remembered as they are, and the influence is of all older ones."""

    window: eqx.AbstractVar[int]

    @property
    def past(self):
        return Window(self.window)


class OnlyWindowed(Windowed):
    """Abstract: the window is the only thing that can be chosen."""

    # a default for type checkers, who see an __init__ of the fields; by a factory, since repr hides what is a plain default
    window: int = eqx.field(static=True, default_factory=int)

    def __init__(self, *, window: int = 0):
        check_window(window, f"{type(self).__name__}(window={window})")
        self.window = window


def check_window(window: Any, call: str) -> None:
    whole_number(window, 0, call, "window", "the number of newest steps that are kept as they are (0: none)")


def windows_of(kind: Any) -> list[Any]:
    """For the planner: an estimator with every window, the largest first."""
    return [kind(window=k) for k in WINDOWS]


def sizes_of(kind: Any, size: str) -> list[Any]:
    """For the planner: an estimator in every size and with every window, the largest first."""
    return [kind(**{size: r, "window": k}) for r in RANKS for k in WINDOWS]


def ranks_up_to_default(kind: Any) -> list[Any]:
    """The estimator as it is without settings, and with every smaller rank."""
    return [kind(), *(kind(rank=r) for r in RANKS if r < kind().rank)]
