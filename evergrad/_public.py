"""The public names, which `import evergrad` gives out; importing this imports JAX."""

from evergrad._cells import (
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
from evergrad._core.adapters import from_equinox, from_flax, to_equinox, to_flax
from evergrad._core.checks import DivergedError, InputError
from evergrad._core.driver import Output, State
from evergrad._core.frozen import gradients
from evergrad._core.learner import Learner
from evergrad._core.low_rank import optimal_low_rank, optimal_variance
from evergrad._core.maps import dense
from evergrad._core.model import Model
from evergrad._core.parameters import Frozen
from evergrad._core.planner import Plan, plan
from evergrad._core.readouts import Linear, Readout, Softmax
from evergrad._estimators import (
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
