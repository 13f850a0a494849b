"""Untruncated gradients for recurrent networks, online.

The public names are those of `evergrad._public`; they are loaded when one is asked for, so that `evergrad --help` answers
without importing JAX.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergrad._public import *  # noqa: F403

__version__ = "0.1.0"


def _public():
    return importlib.import_module("evergrad._public")


def __getattr__(name):
    a_module = (
        importlib.util.find_spec(f"{__name__}.{name}") is not None
    )  # `from evergrad import window` asks here first
    if name.startswith("_") or a_module or name not in _public().__all__:
        raise AttributeError(f"module 'evergrad' has no attribute {name!r}")
    return getattr(_public(), name)


def __dir__():
    return sorted({*globals(), *_public().__all__})
