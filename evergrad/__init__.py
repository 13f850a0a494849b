"""Untruncated gradients for recurrent networks, online."""

from evergrad.adapters import from_equinox as from_equinox, from_flax as from_flax
from evergrad.cells import (
    GRU as GRU,
    LSTM as LSTM,
    RHN as RHN,
    RNN as RNN,
    Cell as Cell,
    KroneckerCell as KroneckerCell,
)
from evergrad.checks import DivergedError as DivergedError, InputError as InputError
from evergrad.driver import Output as Output, State as State
from evergrad.estimators import (
    KF as KF,
    KTP as KTP,
    OK as OK,
    RTRL as RTRL,
    TBPTT as TBPTT,
    UORO as UORO,
    Estimator as Estimator,
)
from evergrad.gradients import gradients as gradients
from evergrad.learner import Learner as Learner
from evergrad.low_rank import optimal_low_rank as optimal_low_rank, optimal_variance as optimal_variance
from evergrad.model import Model as Model
from evergrad.readouts import Linear as Linear, Readout as Readout, Softmax as Softmax

__version__ = "0.1.0"
