"""The public names, which `import evergrad` gives out; importing this imports JAX."""

from evergrad.adapters import from_equinox, from_flax, to_equinox, to_flax
from evergrad.cells import (
    ELSTM,
    GRU,
    LRU,
    LSTM,
    RGLRU,
    RHN,
    RNN,
    RTU,
    Cell,
    ColumnarLSTM,
    IndRNN,
    KroneckerCell,
    Leaky,
    MinGRU,
    MinLSTM,
    Stack,
    UnitCell,
)
from evergrad.checks import DivergedError, InputError
from evergrad.driver import Output, State
from evergrad.estimators import (
    ARTBP,
    DNI,
    KF,
    KTP,
    OK,
    RTRL,
    TBPTT,
    UORO,
    Estimator,
    KeRNL,
    ReverseKF,
    SnAp,
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
    "ARTBP",
    "DNI",
    "ELSTM",
    "GRU",
    "KF",
    "KTP",
    "LRU",
    "LSTM",
    "OK",
    "RGLRU",
    "RHN",
    "RNN",
    "RTRL",
    "RTU",
    "TBPTT",
    "UORO",
    "Cell",
    "ColumnarLSTM",
    "DivergedError",
    "Estimator",
    "Frozen",
    "IndRNN",
    "InputError",
    "KeRNL",
    "KroneckerCell",
    "Leaky",
    "Learner",
    "Linear",
    "MinGRU",
    "MinLSTM",
    "Model",
    "Output",
    "Plan",
    "Readout",
    "ReverseKF",
    "SnAp",
    "Softmax",
    "Stack",
    "State",
    "UnitCell",
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
