"""The laboratory against what is known: exact gradients, planted biases, the theorem's variance."""

import json
import math
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._core.model import check_sequence
from evergrad._core.planner import multiply_adds
from evergrad._core.sources import Data
from evergrad.extend import Influence, Window
from evergrad.lab import injected as lab_injected, report
from evergrad.lab.injected import Injected, injected
from evergrad.lab.noise import Noise, exact, measure
from evergrad.lab.subject import Subject, parse_estimator
from evergrad.lab.summary import injected_in_words, summarise
from tests.helpers import make_data, make_model
from tests.training_helpers import COPY_OK, succeed

STEPS, UNITS = 24, 6


@pytest.fixture(scope="module")
def subject():
    model = make_model("rhn", units=UNITS, scale=2.0)
    return model, Data(*check_sequence(model, *make_data(STEPS, batch=1), None))


class Scaled(eg.Estimator):
    """KF-RTRL whose gradients are all 30 % too large: a bias to be found."""

    @property
    def past(self):
        return Window(0)

    @property
    def influence(self):
        return ScaledInfluence()


class ScaledInfluence(Influence):
    unbiased: ClassVar[bool] = False
    needs_kronecker: ClassVar[bool] = True

    def init(self, cell):
        return eg.KF().influence.init(cell)

    def absorb(self, carried, cells, memories, key):
        return eg.KF().influence.absorb(carried, cells, memories, key)

    def contract(self, carried, cell, delta):
        return jax.tree.map(lambda a: 1.3 * a, eg.KF().influence.contract(carried, cell, delta))

    def materialise(self, carried, cell):
        return eg.KF().influence.materialise(carried, cell)


def test_what_it_compares_with_is_the_gradient(subject):
    model, data = subject
    found = measure(model, {"rtrl": eg.RTRL()}, data, repetitions=3, key=jax.random.key(0))["rtrl"]

    def last(cell):
        return eqx.tree_at(lambda m: m.cell, model, cell).losses(data.x, data.y, data.reset)[-1].mean()

    gradient = jax.grad(last)(model.cell).weight
    np.testing.assert_allclose(found.truth[-1], (gradient**2).sum(), rtol=1e-10)
    np.testing.assert_allclose(found.cosines(), 1, atol=1e-10)
    assert found.relative_error() < 1e-20
    assert found.bias_z() is None  # nothing random


@pytest.mark.slow
def test_both_exact_ones_are_the_same(subject, monkeypatch):
    model, data = subject
    assert isinstance(exact(model, STEPS, 1), eg.RTRL)
    one = measure(model, {"kf": eg.KF()}, data, repetitions=2, key=jax.random.key(0))["kf"]
    monkeypatch.setattr("evergrad.lab.noise._DENSE", 1)
    monkeypatch.setattr("evergrad.lab.noise._PIECE", 5 * model.cell.weight.size)
    assert isinstance(exact(model, STEPS, 1), eg.TBPTT)
    two = measure(model, {"kf": eg.KF()}, data, repetitions=2, key=jax.random.key(0))["kf"]
    for a, b in zip(jax.tree.leaves(vars(one)), jax.tree.leaves(vars(two)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_bias_is_found_and_none_is_not(subject):
    model, data = subject
    estimators = {"kf": eg.KF(copies=4), "scaled": Scaled()}
    found = measure(model, estimators, data, repetitions=400, key=jax.random.key(1))
    assert found["kf"].bias_z() < 4
    assert found["scaled"].bias_z() > 5


@pytest.mark.parametrize(
    "estimator",
    [
        eg.OK(rank=2, window=0, mix="signs"),
        eg.OK(rank=2, window=0),
        eg.OK(rank=2, window=4),
        pytest.param(eg.OK(rank=2, window=0, mix="truncate"), marks=pytest.mark.slow),
        pytest.param(eg.KF(), marks=pytest.mark.slow),
        eg.KF(copies=3),
    ],
    ids=repr,
)
def test_the_injected_noise_is_what_the_theory_says(subject, estimator):
    model, data = subject
    found = injected(model, estimator, data, key=jax.random.key(2), draws=2000)
    assert found.measured == pytest.approx(found.bound, rel=0.15)
    assert found.error < 0.05 * found.measured
    assert found.verdict() == "met"


def test_the_injected_noise_of_a_stack_is_that_of_all_its_maps(subject):
    """Maps in both orientations, an encoder's among them, and layers that reach each other."""
    model, data = subject
    one, two, three = jax.random.split(jax.random.key(4), 3)
    inputs, units = model.cell.inputs, model.cell.units
    encoder = eqx.nn.Linear(inputs, 5, key=one)
    stack = eg.Stack(encoder, eg.RNN(5, 4, key=two, initial="fan_in"), eg.LSTM(4, units, key=three, initial="fan_in"))
    found = injected(eg.Model(stack, model.readout), eg.OK(rank=2, window=2), data, key=jax.random.key(2), draws=2000)
    assert found.measured == pytest.approx(found.bound, rel=0.15)
    assert found.verdict() == "met"


def test_a_verdict_only_outside_the_error_bar():
    assert Injected(1.0, 0.1, 0.8).verdict() == "met"
    assert Injected(1.0, 0.1, 0.6).verdict() == "above"
    assert Injected(1.0, 0.1, 1.4).verdict() == "below"
    assert Injected(2e-14, 1e-16, 1e-14, rounding=1e-13).verdict() == "met"
    assert Injected(1.0, 0.1, None).verdict() is None
    row = {"injected": 0.0123, "injected_error": 0.0021, "bound": 0.01, "verdict": "met"}
    assert injected_in_words(row) == ("0.012 ± 0.002", "0.01, met")
    assert injected_in_words({"injected": 0.5, "bound": None}) == ("0.5", "–")


def test_the_error_bar_is_what_repeated_measurements_scatter_by(subject):
    model, data = subject
    estimator, short = eg.OK(rank=2, window=0), jax.tree.map(lambda a: a[:6], data)
    found = [injected(model, estimator, short, key=jax.random.key(i), places=1, draws=64) for i in range(40)]
    # carried terms differ from key to key too, so that the scatter may be more, and hardly less
    assert np.mean([f.error for f in found]) < 1.5 * np.std([f.measured for f in found])
    assert np.mean([f.error for f in found]) > 0.02 * np.mean([f.measured for f in found])


def test_no_key_serves_two_purposes(subject, monkeypatch):
    """A stream of the state and the draws of its noise; the probes and the weights of the model's cell."""
    model, data = subject
    used = {}

    def note(name, place):
        function = getattr(lab_injected, name)

        def noted(*given):
            used[name] = given[place]
            return function(*given)

        monkeypatch.setattr(lab_injected, name, noted)

    note("start", 3)
    note("_noise", 1)
    injected(model, eg.OK(rank=2, window=0), data, key=jax.random.key(0), places=1, draws=2)
    assert not same(jax.random.split(used["start"], 1)[0], used["_noise"])
    monkeypatch.setattr(report, "measure", lambda *_, key, **__: used.update(measure=key))
    report.noise_of(Subject(model, data, ""), {}, repetitions=2, seed=5)
    model_key, *_ = jax.random.split(jax.random.key(5), 3)  # as a run has it
    probe_key, *_ = jax.random.split(used["measure"], 2)
    for key in (*jax.random.split(model_key), model_key):
        assert not same(key, probe_key)
        assert not same(key, used["measure"])


def same(one, other):
    return np.array_equal(jax.random.key_data(one), jax.random.key_data(other))


def test_what_is_not_known_is_not_said(subject):
    """No window was folded in so few steps; and a masked influence has other singular values than what is mixed."""
    model, data = subject
    few = jax.tree.map(lambda a: a[:4], data)
    assert injected(model, eg.OK(rank=2, window=4), few, key=jax.random.key(2)) == Injected(None, None, None)
    masked = eg.Model(eg.GRU(model.cell.inputs, model.cell.units, key=jax.random.key(0)), model.readout)
    found = injected(masked, eg.OK(rank=2, window=0), data, key=jax.random.key(2), draws=20)
    assert found.measured > 0
    assert found.bound is None


@pytest.mark.slow
def test_the_exact_influence_gets_no_noise(subject):
    model, data = subject
    assert injected(model, eg.RTRL(), data, key=jax.random.key(2)).measured < 1e-25
    assert injected(model, eg.KTP(rank=2), data, key=jax.random.key(2)).bound is None


def test_small_gradients_are_left_out():
    truth, dots = np.array([1.0, 1e-12, 1.0]), np.array([[1.0, -1e-12, 1.0]])
    noise = Noise(truth, dots, truth[None], np.zeros((1, 3)), np.zeros((1, 8)))
    assert summarise(noise)["cosine"] == pytest.approx(1 / 3)
    row = summarise(noise, smallest=1e-4)
    assert row["cosine"] == pytest.approx(1)
    assert row["steps_kept"] == 2


@pytest.mark.parametrize("size", [1.0, 1e-10, 1e-14, 1e-25, 0.0])
def test_no_cosine_is_above_one(size):
    """Squares of small gradients have products that float32 does not hold."""
    squares = np.full(2, size, np.float32) ** 2
    noise = Noise(squares, squares[None], squares[None], np.zeros((1, 2)), np.zeros((1, 8)))
    assert np.abs(noise.cosines()).max() <= 1 + 1e-6
    kept = summarise(noise)["steps_kept"]
    assert (kept, summarise(noise)["cosine"]) == (2, pytest.approx(1)) if size > 1e-20 else kept == 0


def test_costs_grow_as_the_formulas_say():
    small, large = (eqx.filter_eval_shape(eg.RHN, 4, n, key=jax.random.key(0)) for n in (1024, 2048))

    def growth(estimator):
        return math.log2(multiply_adds(estimator, large) / multiply_adds(estimator, small))

    expected = {eg.RTRL(): 4, eg.OK(rank=4, window=0): 3, eg.KF(copies=4): 3, eg.UORO(): 2, eg.KTP(rank=4): 2}
    for estimator, power in expected.items():
        assert growth(estimator) == pytest.approx(power, abs=0.05)
    cell = eg.RHN(4, 128, key=jax.random.key(0))
    assert multiply_adds(eg.OK(rank=16, window=16), cell) < 0.3 * multiply_adds(eg.OK(rank=16, window=0), cell)


def test_estimators_are_spelt():
    assert parse_estimator("ok:rank=3,window=0,mix=signs") == eg.OK(rank=3, window=0, mix="signs")
    assert parse_estimator("tbptt:horizon=7") == eg.TBPTT(horizon=7, stride=1)
    for text, word in {"okk": '"ok"', "ok:rnk=3": '"rank"', "ok:rank=x": "whole number"}.items():
        with pytest.raises(eg.InputError, match=word):
            parse_estimator(text)


@pytest.mark.slow
def test_the_command_on_a_run_and_without_one(tmp_path):
    succeed("train", *COPY_OK, "--steps", 20, "--out", tmp_path / "run")
    words = ("--steps", 20, "--repetitions", 3, "--estimator", "ok:rank=1,window=0", "--estimator", "tbptt:horizon=2")
    output = succeed("lab", "noise", tmp_path / "run", *words, "--out", tmp_path / "noise")
    assert "cosine" in output
    document = json.loads((tmp_path / "noise" / "noise.json").read_text())
    assert document["settings"]["subject"] == "copy, RHN 6, 20 steps of training, length 1"
    row = document["estimators"]["ok:rank=1,window=0"]
    assert -1 <= row["cosine"] <= 1
    assert row["bound"] > 0
    assert document["estimators"]["tbptt:horizon=2"]["injected"] is None
    assert (tmp_path / "noise" / "noise.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input_is_refused(tmp_path):
    for words, message in {
        ("--estimator", "okay"): "unknown",
        ("--task", "series"): "unknown",
        (str(tmp_path / "nowhere"),): "no folder",
    }.items():
        assert message in refused(*words, "--out", str(tmp_path / "noise"))
    assert not (tmp_path / "noise").exists()


@pytest.mark.parametrize("name", ["noise.png", "noise.json"])
def test_what_is_not_ours_is_not_overwritten(name, tmp_path):
    (tmp_path / name).write_text("mine")
    assert "file made by evergrad: choose another --out" in refused("--out", str(tmp_path))
    assert (tmp_path / name).read_text() == "mine"


def refused(*words):
    done = CliRunner().invoke(app, ["lab", "noise", *words])
    assert done.exit_code == 2, done.output
    return done.stderr
