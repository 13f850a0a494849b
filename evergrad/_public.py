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
from evergrad._core.follower import Followed, Follower
from evergrad._core.frozen import gradients
from evergrad._core.learner import Learner
from evergrad._core.low_rank import optimal_low_rank, optimal_variance
from evergrad._core.maps import dense
from evergrad._core.model import Model
from evergrad._core.parameters import Frozen, parameters
from evergrad._core.planner import Plan, plan
from evergrad._core.readouts import Linear, Readout, Softmax
from evergrad._core.rls import RLS
from evergrad._core.update import clip_and_update
from evergrad._estimators import (
    ARTBP,
    DNI,
    KF,
    KTP,
    OK,
    RFLO,
    RTRL,
    TBPTT,
    UORO,
    EProp,
    Estimator,
    Fixed,
    KeRNL,
    Local,
    ReverseKF,
    SnAp,
    SnAp1,
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
    "RFLO",
    "RGLRU",
    "RHN",
    "RLS",
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
    "Fixed",
    "Followed",
    "Follower",
    "Frozen",
    "IndRNN",
    "InputError",
    "KeRNL",
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
    "ReverseKF",
    "SnAp",
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
