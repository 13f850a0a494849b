"""The planner against the compiler, and against the clock."""

import dataclasses
import itertools
import json

import jax
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._core.planner import Rates, measured_rates, predict
from evergrad.bench.growth import program_bytes
from evergrad.bench.settings import COPY, Setting
from evergrad.bench.timing import medians, training
from tests.helpers import crossed
from tests.training_helpers import as_on_the_command_line, succeed  # noqa: F401

LSTM = Setting("lstm", units=48, batch=8, rank=4, symbols=6, cell="LSTM")
MANY = [
    eg.RTRL(),
    eg.KF(copies=8, window=16),
    eg.KTP(rank=16),
    eg.UORO(window=16),
    eg.TBPTT(horizon=25, stride=25),
    eg.OK(rank=8, window=16),
    eg.OK(rank=8, window=0),
]
RATES = Rates(products=5e10, thin=2e10, touched=1e10, operation=1e-6)


def predicted(setting, estimator, rates=RATES):
    cell = setting.learner(estimator).model.cell
    return predict(cell, estimator, batch=setting.batch, outputs=setting.symbols, rates=rates)


@pytest.mark.optimised
@pytest.mark.parametrize("estimator", crossed(MANY, lambda estimator: estimator == eg.OK(rank=8, window=16), repr))
def test_memory_is_that_of_the_compiled_program(estimator):
    ratio = predicted(LSTM, estimator).bytes / program_bytes(LSTM, estimator)
    assert 1 / 1.3 < ratio < 1.3


@pytest.mark.optimised
def test_memory_at_the_papers_size():
    estimator = eg.OK(rank=16, window=16)
    assert 1 / 1.3 < predicted(COPY, estimator).bytes / program_bytes(COPY, estimator) < 1.3


@pytest.mark.slow
@pytest.mark.optimised
def test_times_are_those_measured():
    settings = (COPY, dataclasses.replace(LSTM, units=64))
    rates = measured_rates()
    for setting in settings:
        guess = {repr(e): predicted(setting, e, rates).seconds for e in MANY}
        steps = {repr(e): 4 if isinstance(e, eg.RTRL) else 64 for e in MANY}
        times = medians({repr(e): training(setting, e, steps[repr(e)]) for e in MANY}, rounds=5)
        for name, seconds in times.items():
            assert 0.5 < guess[name] / seconds < 2, (setting, name, guess[name], seconds)
        for a, b in itertools.combinations(times, 2):
            if times[a] > 2 * times[b]:
                assert guess[a] > guess[b], (setting, a, b)


@pytest.mark.slow
def test_budgets_are_kept_and_more_room_is_used():
    cell = eg.RHN(inputs=50, units=256, key=jax.random.key(0))
    small, large = (eg.plan(cell, batch=32, memory=memory, rates=RATES) for memory in (0.2e9, 8e9))
    assert all(option.bytes <= 0.2e9 for option in small.options if option.fits)

    def rank(plan):
        return next(o.estimator.rank for o in plan.options if isinstance(o.estimator, eg.OK))

    assert rank(large) > rank(small)
    assert isinstance(small.recommended.estimator, eg.OK)
    slow = eg.plan(cell, batch=32, seconds=2e-3, rates=RATES)
    assert all(option.seconds <= 2e-3 for option in slow.options if option.fits)
    assert not isinstance(slow.recommended.estimator, eg.OK)


def test_what_is_exact_is_recommended_where_it_fits_and_nothing_where_nothing_does():
    cell = eg.RNN(inputs=1, units=4, key=jax.random.key(0))
    assert isinstance(eg.plan(cell, batch=1, memory=1e9, rates=RATES).recommended.estimator, eg.RTRL)
    nothing = eg.plan(cell, batch=1, memory=10, rates=RATES)
    assert nothing.recommended is None
    assert "nothing fits" in nothing.why
    with pytest.raises(eg.InputError, match="above 0"):
        eg.plan(cell, batch=1, memory=-1, rates=RATES)


def test_a_cell_too_small_for_the_usual_ranks_is_given_smaller_ones():
    """And RFLO, which is for leaky units, is not among the options of an RNN."""
    found = eg.plan(eg.RNN(inputs=1, units=4, key=jax.random.key(0)), batch=1, rates=RATES)
    local = (eg.SnAp1, eg.EProp, eg.Local, eg.SnAp, eg.KeRNL)
    others = (eg.RTRL, eg.KF, eg.UORO, eg.TBPTT, eg.ReverseKF, eg.ARTBP, eg.DNI, eg.Fixed)
    assert {type(o.estimator): getattr(o.estimator, "rank", None) for o in found.options} == {
        **dict.fromkeys((*local, *others)),
        eg.OK: 4,
        eg.KTP: 4,
    }


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("evergrad._core.planner.measured_rates", lambda: RATES)
    given = ("plan", "--cell", "rnn", "--units", 4, "--inputs", 1, "--batch", 1)
    shown = succeed(*given, "--memory", "1GB", "--json", tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["recommended"] in shown
    assert {row["bias"] for row in document["options"]} == {"none", "unbiased", "biased"}
    for wrong, said in {
        ("--memory", "8 apples"): "such as 8GB",
        ("--time-per-step", "fast"): "such as 5ms",
        ("--memory", "10B"): "nothing fits",
        ("--units", "1000000000"): "more than 1,000,000 cannot be planned for",
        ("--units", "100000"): "weights a gate cannot be planned for",
        ("--outputs", "0"): "whole number >= 1",
        ("--cell", "lsmt"): 'Did you mean "lstm"',
    }.items():
        done = CliRunner().invoke(app, [*map(str, given), *wrong])
        assert (done.exit_code, said in done.stderr) == (2, True), done.output


def test_the_command_makes_no_network(monkeypatch):
    cells, plan = [], eg.plan
    monkeypatch.setattr("evergrad._core.planner.measured_rates", lambda: RATES)
    monkeypatch.setattr(eg, "plan", lambda cell, **options: cells.append(cell) or plan(cell, **options))
    done = CliRunner().invoke(app, ["plan", "--units", "8"])
    assert done.exit_code == 0, done.output
    assert [isinstance(cell.weight, jax.core.Tracer) for cell in cells] == [True]


def test_the_command_for_a_stack(tmp_path, monkeypatch):
    """Two layers cost what Python says they do, and more than one; a layer's weights move none below it."""
    monkeypatch.setattr("evergrad._core.planner.measured_rates", lambda: RATES)
    given = ("plan", "--cell", "lstm", "--units", 4, "--inputs", 2, "--batch", 3)

    def bytes_of(*options):
        succeed(*given, *options, "--json", tmp_path / "plan.json")
        options = json.loads((tmp_path / "plan.json").read_text())["options"]
        return {row["estimator"]: row["bytes"] for row in options}

    one, two = bytes_of(), bytes_of("--layers", 2)
    k1, k2 = jax.random.split(jax.random.key(0))
    stack = eg.Stack(eg.LSTM(2, 4, key=k1), eg.LSTM(4, 4, key=k2))
    (exact,) = (o for o in eg.plan(stack, batch=3, outputs=2, rates=RATES).options if isinstance(o.estimator, eg.RTRL))
    assert two[repr(exact.estimator)] == exact.bytes > 2 * one["RTRL(window=4)"]
    done = CliRunner().invoke(app, [*map(str, given), "--layers", "1000"])
    assert (done.exit_code, "--layers 1000: more than 64" in done.stderr) == (2, True), done.output
