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
    KF,
    KTP,
    OK,
    RFLO,
    RTRL,
    TBPTT,
    UORO,
    EProp,
    Estimator,
    Local,
    SnAp1,
)
from evergrad.frozen import gradients
from evergrad.learner import Learner
from evergrad.low_rank import optimal_low_rank, optimal_variance
from evergrad.maps import dense
from evergrad.model import Model
from evergrad.parameters import Frozen, parameters
from evergrad.planner import Plan, plan
from evergrad.readouts import Linear, Readout, Softmax
from evergrad.update import clip_and_update

__all__ = [
    "ELSTM",
    "GRU",
    "KF",
    "KTP",
    "LRU",
    "LSTM",
    "OK",
    "RFLO",
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
    "EProp",
    "Estimator",
    "Frozen",
    "IndRNN",
    "InputError",
    "KroneckerCell",
    "Leaky",
    "Learner",
    "Linear",
    "Local",
    "MinGRU",
    "MinLSTM",
    "Model",
    "Output",
    "Plan",
    "Readout",
    "SnAp1",
    "Softmax",
    "Stack",
    "State",
    "UnitCell",
    "clip_and_update",
    "dense",
    "from_equinox",
    "from_flax",
    "gradients",
    "optimal_low_rank",
    "optimal_variance",
    "parameters",
    "plan",
    "to_equinox",
    "to_flax",
]
