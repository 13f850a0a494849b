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
from evergrad._core.callbacks import Checkpoint, EarlyStop, Log, TensorBoard
from evergrad._core.checks import DivergedError, InputError
from evergrad._core.driver import Output, State
from evergrad._core.fitting import Progress
from evergrad._core.follower import Followed, Follower
from evergrad._core.frozen import gradients
from evergrad._core.heads import Gaussian, Head
from evergrad._core.learner import Learner
from evergrad._core.low_rank import optimal_low_rank, optimal_variance
from evergrad._core.maps import dense
from evergrad._core.model import Model
from evergrad._core.parameters import Frozen, parameters
from evergrad._core.planner import Plan, plan
from evergrad._core.readouts import Linear, Readout, Softmax
from evergrad._core.rls import RLS
from evergrad._core.saving import copy, load, save
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
from evergrad._training.opening import open_run

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
    "Checkpoint",
    "ColumnarLSTM",
    "DivergedError",
    "EProp",
    "EarlyStop",
    "Estimator",
    "Fixed",
    "Followed",
    "Follower",
    "Frozen",
    "Gaussian",
    "Head",
    "IndRNN",
    "InputError",
    "KeRNL",
    "KroneckerCell",
    "Leaky",
    "Learner",
    "Linear",
    "Local",
    "Log",
    "MinGRU",
    "MinLSTM",
    "Model",
    "Output",
    "Plan",
    "Progress",
    "Readout",
    "ReverseKF",
    "SnAp",
    "SnAp1",
    "Softmax",
    "Stack",
    "State",
    "TensorBoard",
    "UnitCell",
    "clip_and_update",
    "copy",
    "dense",
    "from_equinox",
    "from_flax",
    "gradients",
    "load",
    "open_run",
    "optimal_low_rank",
    "optimal_variance",
    "parameters",
    "plan",
    "save",
    "to_equinox",
    "to_flax",
]
