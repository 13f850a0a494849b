"""Untruncated gradients for recurrent networks, online."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergrad.public import *  # noqa: F403

__version__ = "0.1.0"

_PUBLIC = [
    "GRU", "KF", "KTP", "LSTM", "OK", "RHN", "RNN", "RTRL", "TBPTT", "UORO", "Cell", "DivergedError", "Estimator",
    "InputError", "KroneckerCell", "Learner", "Linear", "Model", "Output", "Readout", "Softmax", "State", "gradients",
    "optimal_low_rank", "optimal_variance",
]  # fmt: skip


class _Package(ModuleType):
    """Loads the public names when one is asked for, so that `evergrad --help` answers without importing JAX."""

    def __getattr__(self, name):
        if name not in _PUBLIC:
            raise AttributeError(f"module 'evergrad' has no attribute {name!r}")
        public = importlib.import_module("evergrad.public")
        vars(self).update({each: getattr(public, each) for each in _PUBLIC})
        return vars(self)[name]

    def __setattr__(self, name, value):
        # importing the submodule `gradients` must not hide the function of that name
        if name != "gradients" or not isinstance(value, ModuleType):
            ModuleType.__setattr__(self, name, value)

    def __dir__(self):
        return sorted({*vars(self), *_PUBLIC})


sys.modules[__name__].__class__ = _Package
