"""Untruncated gradients for recurrent networks, online.

The public names are those of `evergrad._public`; they are loaded when one is asked for, so that `evergrad --help` answers
without importing JAX. `evergrad.extend` is for authors of cells, estimators, readouts and tasks, `evergrad.lab` measures, and
`evergrad.river` is for people with streams. All else is private.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergrad._public import *  # noqa: F403

__version__ = "0.2.0"


_ROOMS = ("export", "extend", "lab", "river")  # modules that are asked for by name


def _names():
    return importlib.import_module("evergrad._public")


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"evergrad.{name}")
    # `from evergrad import _core` asks here first
    a_module = importlib.util.find_spec(f"{__name__}.{name}") is not None
    if name.startswith("_") or a_module or name not in _names().__all__:
        raise AttributeError(f"module 'evergrad' has no attribute {name!r}")
    return getattr(_names(), name)


def __dir__():
    return sorted({*globals(), *_names().__all__, *_ROOMS})
