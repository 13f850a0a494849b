"""The public names, which `import evergrad` gives out; importing this imports JAX."""

from evergrad.adapters import from_equinox, from_flax, to_equinox, to_flax
from evergrad.cells import (
    GRU,
    LSTM,
    RHN,
    RNN,
    Cell,
    KroneckerCell,
    Stack,
)
from evergrad.checks import DivergedError, InputError
from evergrad.driver import Output, State
from evergrad.estimators import (
    KF,
    KTP,
    OK,
    RTRL,
    TBPTT,
    UORO,
    Estimator,
)
from evergrad.frozen import gradients
from evergrad.learner import Learner
from evergrad.low_rank import optimal_low_rank, optimal_variance
from evergrad.maps import dense
from evergrad.model import Model
from evergrad.parameters import Frozen
from evergrad.planner import Plan, plan
from evergrad.readouts import Linear, Readout, Softmax

__all__ = [
    "GRU",
    "KF",
    "KTP",
    "LSTM",
    "OK",
    "RHN",
    "RNN",
    "RTRL",
    "TBPTT",
    "UORO",
    "Cell",
    "DivergedError",
    "Estimator",
    "Frozen",
    "InputError",
    "KroneckerCell",
    "Learner",
    "Linear",
    "Model",
    "Output",
    "Plan",
    "Readout",
    "Softmax",
    "Stack",
    "State",
    "dense",
    "from_equinox",
    "from_flax",
    "gradients",
    "optimal_low_rank",
    "optimal_variance",
    "plan",
    "to_equinox",
    "to_flax",
]
