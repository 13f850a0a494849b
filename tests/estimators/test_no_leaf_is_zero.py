"""No part of a parameter is left without a gradient by mistake, whatever the estimator and the cell."""

import functools
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest

import evergrad as eg
from evergrad._cells.base import outputs_of
from evergrad.extend import Influence, Window
from tests.helpers import ESTIMATORS, crossed, make_data
from tests.networks import deep_rhn, lstm_on_gru, wide_lstm

KEY, STEPS = jax.random.key(0), 12
CELLS = {
    "rnn": lambda: eg.RNN(3, 3, key=KEY),
    "leaky": lambda: eg.Leaky(3, 3, key=KEY),
    "rhn": lambda: eg.RHN(3, 3, key=KEY),
    "lstm": lambda: eg.LSTM(3, 3, key=KEY),
    "gru": lambda: eg.GRU(3, 3, key=KEY),
    "lru": lambda: eg.LRU(3, 3, key=KEY),
    "rtu": lambda: eg.RTU(3, 3, key=KEY, activation="tanh"),
    "rtu-nonlinear": lambda: eg.RTU(3, 3, key=KEY, linear=False, activation="tanh"),
    "elstm": lambda: eg.ELSTM(3, 3, key=KEY),
    "mingru": lambda: eg.MinGRU(3, 3, key=KEY),
    "minlstm": lambda: eg.MinLSTM(3, 3, key=KEY),
    "rglru": lambda: eg.RGLRU(3, 3, key=KEY),
    "indrnn": lambda: eg.IndRNN(3, 3, key=KEY, activation="tanh"),
    "columnar": lambda: eg.ColumnarLSTM(3, 3, key=KEY),
    "reset-before-gru": lambda: eg.GRU(3, 3, key=KEY, reset="before"),
    "deep-rhn": deep_rhn,
    "wide-lstm": wide_lstm,
    "stack": lstm_on_gru,
    "layerwise": lambda: eg.Stack(eg.LSTM(3, 3, key=KEY), eg.LSTM(3, 3, key=jax.random.key(1)), depth="layerwise"),
    "elstms": lambda: eg.Stack(eg.ELSTM(3, 3, key=KEY), eg.ELSTM(3, 3, key=jax.random.key(1))),
    "elstms-layerwise": lambda: eg.Stack(
        eg.ELSTM(3, 3, key=KEY), eg.ELSTM(3, 3, key=jax.random.key(1)), depth="layerwise"
    ),
    "sparse": lambda: eg.RNN(3, 3, key=KEY, mask=0.6),
}
FIELD = ESTIMATORS | {
    "snap1": eg.SnAp1(),
    "eprop": eg.EProp(),
    "rflo": eg.RFLO(),
    "uoro-one-scale": eg.UORO(scales="one"),
    "immediate": eg.TBPTT(horizon=1, stride=1),
    "snap1-window": eg.SnAp1(window=2),
    "fixed": eg.Fixed(),
}
# cells of which every estimator's gradient is taken in `make test`: their parameters are of the most kinds
FIRST = {
    ("lru", "rtrl"),
    ("elstm", "snap1"),
    ("lstm", "kf"),
    ("wide-lstm", "ok"),
    ("layerwise", "eprop"),
    ("stack", "uoro"),
}
FIRST |= {
    ("rglru", "artbp"),
    ("columnar", "dni"),
    ("leaky", "rflo"),
    ("sparse", "snap"),
    ("rnn", "kernl"),
    ("gru", "ktp"),
}
FIRST |= {("rnn", "fixed"), ("elstms", "uoro"), ("elstms-layerwise", "rtrl")}


def silent_by_right(estimator, cell, path):
    """Whether a parameter gets no gradient for a reason. `Fixed` trains no cell. Nothing else stays silent."""
    return estimator == "fixed" and path.startswith(".cell")


def model_of(cell):
    return eg.Model(cell, eg.Softmax(outputs_of(cell), 3, key=jax.random.key(2), initial="fan_in"))


def silent_parts(found, exact):
    """Leaves of which a row or a column is exactly zero at every step, where the exact gradient's is not."""
    silent = []
    for (path, right), all_steps in zip(
        jax.tree_util.tree_leaves_with_path(exact), jax.tree.leaves(found), strict=True
    ):
        seen, there = np.asarray(all_steps != 0).any(0), np.asarray(right != 0)
        for axis in range(there.ndim):
            others = tuple(i for i in range(there.ndim) if i != axis)
            if (there.any(others) & ~seen.any(others)).any():
                silent.append(jax.tree_util.keystr(path))
    return silent


def gradients_of(model, estimator):
    xs, ys, resets = make_data(STEPS, 3)
    assert len(set(xs.ravel())) == 3
    exact = jax.grad(lambda m: m.losses(xs, ys, resets).mean(1).sum())(model)
    exact = eqx.tree_at(lambda m: m, eg.parameters(model), eqx.filter(exact, eqx.is_inexact_array))
    return eg.gradients(model, estimator, xs, ys, resets, key=KEY)[1], exact


@functools.cache
def cell_of(name):
    return CELLS[name]()


@functools.cache
def shape_of(name):
    """Nothing is computed while tests are collected, but a mask, which is drawn and not traced."""
    return cell_of(name) if name == "sparse" else eqx.filter_eval_shape(CELLS[name])


def fits(estimator, cell):
    try:
        FIELD[estimator].check(shape_of(cell))
    except eg.InputError:
        return False
    return True


PAIRS = [(cell, estimator) for cell in CELLS for estimator in FIELD if fits(estimator, cell)]


@pytest.mark.parametrize(("cell", "estimator"), crossed(PAIRS, lambda *pair: pair in FIRST))
def test_no_part_of_a_parameter_stays_zero(cell, estimator):
    found, exact = gradients_of(model_of(cell_of(cell)), FIELD[estimator])
    for path, leaf in jax.tree_util.tree_leaves_with_path(exact):
        assert (np.asarray(leaf) != 0).any(), f"{cell}{jax.tree_util.keystr(path)} has no gradient at all"
    silent = silent_parts(found, exact)
    assert [path for path in silent if not silent_by_right(estimator, cell, path)] == []
    if estimator == "fixed":
        assert silent


class WithoutBiases(eg.Estimator):
    """RTRL that leaves the biases out: the planted error."""

    @property
    def past(self):
        return Window(0)

    @property
    def influence(self):
        return Forgetful()


class Forgetful(Influence):
    unbiased: ClassVar[bool] = False

    def init(self, cell):
        return eg.RTRL().influence.init(cell)

    def absorb(self, carried, cells, memories, key):
        return eg.RTRL().influence.absorb(carried, cells, memories, key)

    def contract(self, carried, cell, delta):
        gradient = eg.RTRL().influence.contract(carried, cell, delta)
        return eqx.tree_at(lambda g: g.weight, gradient, gradient.weight.at[-1].set(0))

    def materialise(self, carried, cell):
        return eg.RTRL().influence.materialise(carried, cell)


def test_biases_without_a_gradient_are_noticed():
    assert silent_parts(*gradients_of(model_of(cell_of("rnn")), WithoutBiases())) == [".cell.weight"]
