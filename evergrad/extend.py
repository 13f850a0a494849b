"""The face for authors of cells, estimators, readouts and tasks: what `import evergrad` does not need to show to users.

`register` makes yours known to the command line, the planner, `evergrad.river`, files and the lab; a package does that in a module
which an entry point of the group `evergrad` names. What it needs for that (`register`, `Parameter`, `PARAMETERS`) does not import
JAX, so that `evergrad --help` stays quick. All names are loaded when one is asked for.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergrad._extend import *  # noqa: F403
    from evergrad._registry import PARAMETERS as PARAMETERS, Parameter as Parameter, add as register  # noqa: F401

_OF_REGISTRY = {"PARAMETERS": "PARAMETERS", "Parameter": "Parameter", "register": "add"}


def _names():
    return importlib.import_module("evergrad._extend")


def __getattr__(name):
    if name in _OF_REGISTRY:
        return getattr(importlib.import_module("evergrad._registry"), _OF_REGISTRY[name])
    if name.startswith("_") or name not in _names().__all__:
        raise AttributeError(f"module 'evergrad.extend' has no attribute {name!r}")
    return getattr(_names(), name)


def __dir__():
    return sorted({*_OF_REGISTRY, *_names().__all__})
