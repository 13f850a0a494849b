"""The registry that the contract suite crosses: a new cell or estimator is one line here."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import linearize
from evergrad._core.parameters import repeated

UNITS, SYMBOLS, BATCH = 3, 3, 2


class Leaky(eg.KroneckerCell):
    """In no list: half the old state, half the new."""

    def activate(self, z, state):
        return (0.5 * state[0] + 0.5 * jnp.tanh(z[0]),)


class ResetBeforeGRU(eg.Cell):
    """Not in Kronecker form: the candidate is linear in (x, r·h)."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    gates: jax.Array
    candidate: jax.Array

    def __init__(self, inputs, units, *, key):
        one, two = jax.random.split(key)
        self.inputs, self.units = inputs, units
        self.gates = 0.7 * jax.random.normal(one, (inputs + units + 1, 2 * units))
        self.candidate = 0.7 * jax.random.normal(two, (inputs + units + 1, units))

    def initial(self):
        return jnp.zeros(self.units, self.gates.dtype)

    def output(self, state):
        return state

    def step(self, state, x):
        one = jnp.ones(1, x.dtype)
        reset, update = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, state, one]) @ self.gates), 2)
        candidate = jnp.tanh(jnp.concatenate([x, reset * state, one]) @ self.candidate)
        return (1 - update) * candidate + update * state


KRONECKER_CELLS = {"rnn": eg.RNN, "rhn": eg.RHN, "lstm": eg.LSTM, "gru": eg.GRU, "leaky": Leaky}
CELLS = {**KRONECKER_CELLS, "reset-before-gru": ResetBeforeGRU}

ESTIMATORS = {
    "rtrl": eg.RTRL(),
    "tbptt": eg.TBPTT(horizon=3, stride=1),
    "tbptt-chunks": eg.TBPTT(horizon=4, stride=2),
    "uoro": eg.UORO(),
    "kf": eg.KF(),
    "kf-avg": eg.KF(copies=2),
    "kf-approx": eg.KF(diagonal_rank=2),
    "ok-signs": eg.OK(rank=2, window=0, mix="signs"),
    "ok": eg.OK(rank=2, window=0),
    "b-ok": eg.OK(rank=2, window=0, mix="truncate"),
    "ktp": eg.KTP(rank=2),
    "reverse-kf": eg.ReverseKF(copies=2),
    "artbp": eg.ARTBP(mean=2, cap=2),
    "artbp-rolling": eg.ARTBP(mean=2, cap=4, rolling=True),
    "dni": eg.DNI(window=2, rate=0),  # what a critic has learned before a reset, it knows after it
    "kernl": eg.KeRNL(rate=0),  # and so does a kernel
    "snap": eg.SnAp(order=1),
}


def crossed(cases, first, ids=None):
    """Parameters of a crossed test: `make test` runs those for which first(case) holds, `make test-slow` the others too."""

    def parameter(*values):
        marks = () if first(*values) else pytest.mark.slow
        return pytest.param(*values, marks=marks, id=None if ids is None else ids(*values))

    return [parameter(*(case if isinstance(case, tuple) else (case,))) for case in cases]


def fits(estimator, cell_name):
    """Asked of shapes: nothing is computed while tests are collected."""
    try:
        estimator.check(an_example(cell_name))
    except eg.InputError:
        return False
    return True


def has_window(estimator):
    """In front of an influence: one of 0 is allowed."""
    return type(estimator.past).__name__ == "Window"


def with_window(estimator, window):
    settings = {f.name: getattr(estimator, f.name) for f in dataclasses.fields(estimator)}
    return type(estimator)(**{**settings, "window": window})


def make_cell(name, *, units=UNITS, inputs=SYMBOLS, seed=0, scale=1.0):
    """A cell with weights large enough that its gates are at work."""
    key = jax.random.key(seed)
    if name not in KRONECKER_CELLS:
        return CELLS[name](inputs, units, key=key)
    cell = KRONECKER_CELLS[name](inputs, units, key=key, initial="fan_in")
    return eqx.tree_at(lambda c: c.weight, cell, scale * cell.weight)


def make_model(name, *, units=UNITS, readout="softmax", seed=0, scale=1.0):
    cell = make_cell(name, units=units, seed=seed, scale=scale)
    key = jax.random.key(seed + 1)
    if readout == "softmax":
        return eg.Model(cell, eg.Softmax(units, SYMBOLS, key=key, initial="fan_in"))
    return eg.Model(cell, eg.Linear(units, 2, key=key, initial="fan_in"))


def make_data(steps, batch=BATCH, *, resets=0.0, readout="softmax", seed=0):
    """xs, ys, resets, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    xs = rng.integers(0, SYMBOLS, (steps, batch))
    ys = rng.integers(0, SYMBOLS, (steps, batch)) if readout == "softmax" else rng.normal(size=(steps, batch, 2))
    return xs, ys, rng.random((steps, batch)) < resets


def cast(tree, dtype):
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)


def flat(tree):
    """All numbers of a gradient in a row, behind any leading axes that its leaves share with `lead`."""
    return jnp.concatenate([a.reshape(-1) for a in jax.tree.leaves(tree)])


def relative_error(a, b):
    a, b = flat(a), flat(b)
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


def one_step(estimator, carried, cell, memory, key):
    """What the influence of one stream is after one step more."""
    memories = jax.tree.map(lambda a: a[None], memory)
    return estimator.influence.absorb(carried, repeated(cell, 1), memories, key)


# compiled, for those that take many steps one by one
linearized, stepped = eqx.filter_jit(linearize), eqx.filter_jit(one_step)
an_example = functools.cache(functools.partial(eqx.filter_eval_shape, make_cell))
PAIRS = [(e, c) for e, estimator in ESTIMATORS.items() for c in CELLS if fits(estimator, c)]
