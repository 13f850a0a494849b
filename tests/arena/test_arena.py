"""The arena: tasks whose optimum is what they say, rows that say what was compared, and sentences that follow from them."""

import json
import math
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._registry import ESTIMATORS
from evergrad._tasks.repeat import Repeat
from evergrad.arena import results
from evergrad.arena.budgets import BUDGETS, wanted
from evergrad.arena.challenges import BALANCE, CHALLENGES, scored
from evergrad.arena.clock import estimator_of
from evergrad.arena.entrants import HORIZONS, entrants
from evergrad.arena.markdown import markdown
from evergrad.arena.trial import DONE, LAST, Stand, Terms
from tests.cli.test_cli_runs import refused
from tests.training_helpers import evergrad, succeed

KEY = jax.random.key(0)
SAID = dict.fromkeys(
    ("tasks", "lags", "cells", "units", "estimators", "horizons", "seeds", "steps_per_lag", "least_steps")
)
SAID |= {"first_seed": 0, "batch": 16, "rate": None}


def emitted(source, steps, batch=2):
    position, found = source.start(batch=batch, key=KEY), []
    for _ in range(steps):
        data, position = source.emit(position)
        found.append(data)
    return jax.tree.map(lambda *a: np.stack(a), *found), position


@pytest.mark.parametrize(("length", "gap"), [(1, 0), (4, 0), (3, 5)])
def test_what_is_to_be_said_again_was_shown_a_lag_before(length, gap):
    source = Repeat(length=length, gap=gap)
    data, position = emitted(source, 6 * (source.lag + length))
    asked = np.argwhere(data.weight > 0)
    assert len(asked) == scored(position) > 2 * length
    for t, b in asked:
        assert data.x[t, b, 1] == 1
        assert data.x[t - source.lag, b, 0] == 2 * data.y[t, b] - 1
    shown = data.x[:, :, 0] != 0
    assert shown.sum() >= len(asked)


@pytest.mark.parametrize("task", list(CHALLENGES))
def test_every_task_can_be_made_for_a_lag_and_knows_its_levels(task):
    """No model is better than the optimum, nor is one that is not trained better than knowing nothing, beyond chance."""
    made = CHALLENGES[task].at(8)
    assert made.optimum < made.ignorance
    cell = BALANCE if task == "balance" else "mingru"
    model = made.model(cell, 4, KEY)
    assert isinstance(model, eg.Model)
    data, _ = emitted(made.source, 20)
    assert data.x.shape[-1] == made.inputs or data.x.ndim == 2
    assert made.excess(made.optimum) == 0
    assert made.excess(made.ignorance) == pytest.approx(1)


def test_everyone_starts_with_the_same_weights_and_streams():
    terms = Terms("chain", 8, 40)
    stands = [Stand(terms, e) for e in entrants(CHALLENGES["chain"], 8, ("lstm",), 4, [eg.OK(rank=2, window=2)], (8,))]
    assert len(stands) == 2
    (one, first), (other, second) = (stand.start(7) for stand in stands)
    assert np.array_equal(one.model.cell.weight, other.model.cell.weight)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), first, second))
    assert {stand.about["initial"] for stand in stands} == {"chrono:8"}


def test_all_estimators_of_the_registry_are_there_with_every_horizon():
    found = entrants(CHALLENGES["cue"], 8, ("lstm", "mingru"), 8, None, HORIZONS)
    dense = {type(each.estimator).__name__ for each in found if each.cell == "lstm"}
    assert dense >= {"RTRL", "OK", "KTP", "KF", "UORO", "SnAp1", "EProp", "Fixed", "TBPTT", "ARTBP", "DNI"}
    leaky = entrants(CHALLENGES["cue"], 8, ("leaky",), 8, None, ())
    assert {type(each.estimator).__name__ for each in leaky} >= {"KeRNL", "RFLO"}
    assert dense <= {entry.name for entry in ESTIMATORS.values()}
    for cell in ("lstm", "mingru"):
        rolling = [each.horizon for each in found if each.cell == cell and each.rolling]
        assert rolling == [8, 16, 32, 64, 128, 256, 512]
    exact = [each for each in found if each.cell == "mingru" and isinstance(each.estimator, eg.RTRL)]
    assert [each.label for each in exact] == ["RTRL"]
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    for each in found:
        assert estimator_of(each.label) == each.estimator


def trial(estimator="OK(rank=8, window=16)", lag=100, errors=(0.0,), ms=1.0, horizon=None, **other):
    about = {"task": "chain", "lag": lag, "steps": 10, "batch": 16, "rate": 0.003, "clip": 1.0, "initial": "chrono:9"}
    about |= {"cell": "lstm", "units": 32, "estimator": estimator, "rolling": horizon is not None, "exact": False}
    about |= {
        "unbiased": horizon is None,
        "horizon": horizon,
        "stride": 1,
        "updates_per_sample": 1.0,
        "multiply_adds": 9,
    }
    about |= {"report": 1, "milliseconds_a_step": ms} | other
    return [about | {"seed": i, "error": e, "diverged": e is None, "curve": [e]} for i, e in enumerate(errors)]


LEARNED, CHANCE = (0.0, 0.05, 0.99), (1.0, 0.98, 0.09)


def contest(rolling=CHANCE):
    trials = trial(errors=LEARNED) + trial(lag=200, errors=LEARNED) + trial(lag=400, errors=CHANCE)
    for lag, errors in ((100, LEARNED), (200, rolling), (400, CHANCE)):
        trials += trial("TBPTT(horizon=32)", lag, (1.0,) * 3, 0.5, 32)
        trials += trial("TBPTT(horizon=64)", lag, errors, 1.1, 64)
        trials += trial("TBPTT(horizon=128)", lag, LEARNED, 2.2, 128)
    return results.lines(results.rows(trials))


def test_the_rival_is_rolling_tbptt_of_no_less_time_a_step():
    (bite,) = results.bites(contest())
    assert {row.estimator for row in bite.rivals.values()} == {"TBPTT(horizon=64)"}
    assert bite.lags == [200]
    assert bite.sentence.endswith(
        "learns up to a lag of 200, where rolling TBPTT of no less time a step does not: at 200 in 2 of 3 seeds "
        "(1 ms a step), TBPTT(horizon=64) (1.1 ms a step) in 1 of 3."
    )


def test_times_are_those_of_the_lag_that_is_spoken_of():
    """A line that is slower at another lag is no reason to name a time above its rival's."""
    trials = trial(lag=100, ms=5.0) + trial(lag=200, ms=1.0)
    for lag in (100, 200):
        trials += trial("TBPTT(horizon=64)", lag, (1.0,), 1.5, 64)
    (bite,) = results.bites(results.lines(results.rows(trials)))
    assert bite.lags == [200]
    assert "at 200 in 1 of 1 seeds (1 ms a step), TBPTT(horizon=64) (1.5 ms a step) in 0 of 1" in bite.sentence


def test_what_was_not_shown_is_not_said():
    (bite,) = results.bites(contest(rolling=LEARNED))
    assert bite.lags == []
    assert "rolling TBPTT of no less time a step learns wherever it does" in bite.sentence
    quicker = trial(ms=2.0) + trial("TBPTT(horizon=64)", errors=(1.0,), ms=1.9, horizon=64)
    (alone,) = results.bites(results.lines(results.rows(quicker)))
    assert "no rolling TBPTT of as much time a step was tried" in alone.sentence
    (lost,) = results.bites(results.lines(results.rows(trial(errors=(1.0, None)))))
    assert "learns at none of the lags 100 (0 of 2 seeds)" in lost.sentence
    (few,) = results.bites(results.lines(results.rows(trial(errors=CHANCE))))
    assert "learns at none of the lags 100 (1 of 3 seeds)" in few.sentence
    late = trial(errors=CHANCE) + trial(lag=200, errors=LEARNED)
    (jumped,) = results.bites(results.lines(results.rows(late)))
    assert "learns at 200 but not at all shorter lags; no rolling" in jumped.sentence


def test_the_table_has_a_line_for_every_row_and_says_what_follows():
    trials = trial(errors=LEARNED, ms=0.0123) + trial("TBPTT(horizon=64)", errors=(1.0, None), ms=1.5, horizon=64)
    head, rule, ours, theirs, empty, *said = markdown(trials)
    assert head.count("|") == rule.count("|") == ours.count("|")
    assert ours == (
        "| chain | 100 | lstm 32 | `OK(rank=8, window=16)` | to the beginning, 1 | 2 of 3 | 0.000 to 0.990 | 9 | 0.012 |"
    )
    assert theirs == "| chain | 100 | lstm 32 | `TBPTT(horizon=64)` | 64, 1 | 0 of 2 | 1.000 to diverged | 9 | 1.50 |"
    assert (empty, len(said)) == ("", 1)
    assert said[0].startswith("* chain, lstm 32: OK(rank=8, window=16)")


def test_the_front_has_nobody_who_is_slower_and_learns_less():
    slower = [each for lag in (100, 200) for each in trial("KF(copies=8)", lag, LEARNED, 1.5)]
    found = [line.estimator for line in results.front([*contest(), *results.lines(results.rows(slower))])]
    assert found == ["OK(rank=8, window=16)", "TBPTT(horizon=128)"]


def test_an_error_is_of_the_last_reports_and_divergence_is_worse_than_nothing():
    (row,) = results.rows(trial(errors=(None, 0.3)))
    assert row.errors == [2.0, 0.3]
    assert not row.learned
    with pytest.raises(AttributeError):
        _ = row.nothing


def test_a_trial_ends_early_only_when_all_is_learned():
    """MinGRU learns a chain of four steps at once; what ends early is below the bound in its last reports."""
    (entrant,) = entrants(CHALLENGES["chain"], 4, ("mingru",), 8, [eg.RTRL()], ())
    stand = Stand(Terms("chain", 4, 4000, rate=0.03), entrant)
    found = stand.trial(0, lambda: None)
    assert found["error"] <= DONE
    assert len(found["curve"]) < 40
    assert max(found["curve"][-LAST:]) <= DONE
    assert found["curve"][0] > 0.3
    again = stand.trial(0, lambda: None)
    assert again["curve"] == found["curve"]


SMALL = [
    "--tasks",
    "chain",
    "--lags",
    "2,4",
    "--cells",
    "mingru",
    "--units",
    "4",
    "--estimator",
    "rtrl",
    "--horizons",
    "2",
]
SMALL += ["--least-steps", "80", "--steps-per-lag", "10"]


def test_on_the_command_line(tmp_path):
    """What is there is not done again, one more seed is; page and pictures are made of the JSON alone."""
    succeed("arena", "run", *SMALL, "--seeds", "1", "--out", tmp_path)
    before = results.read(tmp_path / "result.json")
    assert len(before) == 4
    for each in before:
        assert {"horizon", "stride", "updates_per_sample", "milliseconds_a_step", "seed"} <= each.keys()
    succeed("arena", "run", *SMALL, "--seeds", "2", "--out", tmp_path)
    after = results.read(tmp_path / "result.json")
    assert len(after) == 8
    assert after[:4] == before
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/png;base64") == 2
    assert "http" not in page.replace("http://www.w3.org", "")
    for words in ("horizon", "updates a sample", "ms a step", "TBPTT(horizon=2)", "Where the horizon bites"):
        assert words in page
    succeed("arena", "time", "--out", tmp_path)
    timed = results.read(tmp_path / "result.json")
    assert [each["error"] for each in timed] == [each["error"] for each in after]
    assert "MemoryChain" in succeed("arena", "list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "chian"], "chain"),
        (["--lags", "4,x"], "whole numbers"),
        (["--budget", "fast"], "quick"),
        (["--cells", "lstn"], "lstm"),
        (["--estimator", "ok:rang=3"], "rank"),
    ],
)
def test_what_cannot_be_is_refused(words, said, tmp_path):
    assert said in refused("arena", "run", *words, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_or_foreign_result_is_left_alone(tmp_path):
    (tmp_path / "result.json").write_text('{"product": "evergrad", "trials": [{"task": "chain"}]}')
    assert "damaged" in refused("arena", "run", *SMALL, "--out", tmp_path)
    (tmp_path / "result.json").write_text("[1, 2]")
    assert "no JSON file made by evergrad" in refused("arena", "run", *SMALL, "--out", tmp_path)
    assert (tmp_path / "result.json").read_text() == "[1, 2]"


def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch):
    """Pressed when the first trial has been written."""
    write, pressed = results.write, []

    def then_ctrl_c(*given):
        write(*given)
        if not pressed:
            pressed.append(signal.raise_signal(signal.SIGINT))

    monkeypatch.setattr(results, "write", then_ctrl_c)
    done = evergrad("arena", "run", *SMALL, "--out", tmp_path)
    assert done.returncode == 128 + signal.SIGINT
    assert "the same command goes on from here" in done.stdout
    assert len(json.loads((tmp_path / "result.json").read_text())["trials"]) == 1


def test_budgets_say_what_they_try():
    for name, budget in BUDGETS.items():
        want = wanted(name, SAID)
        assert tuple(want.tasks) == budget.tasks
        assert want.horizons == HORIZONS
        assert math.isclose(want.rate, budget.rate)
