"""The face for authors of cells, estimators, readouts and tasks: what `import evergrad` does not need to show to users.

`register` makes yours known to the command line, the planner, `evergrad.river`, files and the lab; a package does that in a module
which an entry point of the group `evergrad` names. What it needs for that (`register`, `Parameter`, `PARAMETERS`) does not import
JAX, so that `evergrad --help` stays quick; all other names are loaded when one is asked for.
"""

import importlib
from typing import TYPE_CHECKING

from evergrad._registry import PARAMETERS as PARAMETERS, Parameter as Parameter, add as register  # noqa: F401

if TYPE_CHECKING:
    from evergrad._extend import *  # noqa: F403


def _names():
    return importlib.import_module("evergrad._extend")


def __getattr__(name):
    if name.startswith("_") or name not in _names().__all__:
        raise AttributeError(f"module 'evergrad.extend' has no attribute {name!r}")
    return getattr(_names(), name)


def __dir__():
    return sorted({"PARAMETERS", "Parameter", "register", *_names().__all__})
