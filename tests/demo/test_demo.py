"""The demo: what it says follows from its results, whichever way they fall out, and it leaves a picture and figures."""

import io
import json

import jax
import pytest
from rich.console import Console

import evergrad as eg
from evergrad._demo import cue as cue_demo
from evergrad._demo.contest import Contest, Entrant
from evergrad._demo.copy import CopyContest, copy_contest
from evergrad._demo.cue import CueContest, cue_contest
from evergrad._demo.show import run_demo
from tests.cli.test_cli_runs import refused
from tests.training_helpers import as_on_the_command_line  # noqa: F401

CONTEST = CueContest(seeds=2, steps=1000, gap=80, gap_to=120)


def curve(*wrong):
    return [{"step": 250 * (i + 1), "asked": 40, "wrong": each} for i, each in enumerate(wrong)]


def result(entrant, milliseconds, *curves):
    """As `Racer.result` gives it."""
    about = {"estimator": entrant.label, "stride": entrant.estimator.past.stride, "reach": entrant.reach}
    seeds = [CONTEST.success(each) for each in curves]
    return about | {"milliseconds_a_step": milliseconds, "seeds": seeds, "curves": list(curves)}


LEARNED, CHANCE = curve(0.5, 0.2, 0.0, 0.0), curve(0.5, 0.4, 0.5, 0.6)


def results(ok, same, below, above, chunked, exact=()):
    times = (1.6, 0.8, 1.5, 3.2, 0.1, 0.2)
    return [
        result(entrant, ms, *curves)
        for entrant, ms, curves in zip(
            CONTEST.entrants, times, (ok, same, below, above, chunked, exact or ok), strict=True
        )
    ]


def test_who_races_is_what_is_promised():
    labels = [entrant.label for entrant in CONTEST.entrants]
    assert labels == [
        "OK(rank=8, window=16)",
        "TBPTT(horizon=31, stride=1)",  # what OK's window holds at its fullest
        "TBPTT(horizon=64, stride=1)",
        "TBPTT(horizon=128, stride=1)",
        "TBPTT(horizon=128, stride=128)",
        "RTRL on MinGRU",
    ]
    for gap in (40, 41, 300):
        _, same, below, above, _, exact = (e.estimator for e in cue_contest(gap, None, None, 1).entrants)
        assert same.horizon <= below.horizon < gap < above.horizon
        assert exact.exact_for(CONTEST.model(CONTEST.entrants[-1], jax.random.key(0)).cell)
    rolling = [e.estimator for e in copy_contest(None, 1).entrants if e.estimator.past.stride == 1]
    assert {type(each) for each in rolling} == {eg.OK, eg.TBPTT}


def test_a_seed_answers_when_nothing_was_wrong_for_two_reports():
    assert CONTEST.success(LEARNED) == 500
    assert CONTEST.success(CHANCE) is None
    assert CONTEST.success(curve(0.0, 0.3, 0.2, 0.0)) is None
    assert CONTEST.success(curve(None, 0.0, 0.0, 0.0)) == 250
    assert CONTEST.total([LEARNED, CHANCE]) == "1 of 2"


def test_every_comparison_names_updates_reach_time_and_seeds():
    said = list(
        CONTEST.sentences(results([LEARNED, LEARNED], *[[CHANCE, CHANCE]] * 2, [LEARNED, CHANCE], [CHANCE] * 2))
    )
    for sentence, entrant in zip(said, CONTEST.entrants, strict=False):
        assert entrant.label in sentence
        assert "of 2 seeds" in sentence
        assert "an update" in sentence
        assert "steps" in sentence
        assert "ms a step" in sentence
    assert "TBPTT answers in 0 of 2 seeds, with a horizon just below the gap in 0 of 2, OK in 2 of 2" in said[6]
    assert "A horizon beyond the gap answers in 1 of 2 seeds, at 2.0 times the time of OK's step" in said[7]
    assert "updates 7 times in all" in said[8]
    assert "the exact gradient costs 0.1 times the time of OK's step, and answers in 2 of 2 seeds" in said[9]


def test_a_failure_is_said_as_plainly():
    said = list(CONTEST.sentences(results([CHANCE] * 2, [CHANCE] * 2, [CHANCE] * 2, [LEARNED] * 2, [CHANCE] * 2)))
    assert "This time nothing was shown: OK answers in 0 of 2 seeds" in said[6]
    assert not any("cannot assign credit" in sentence for sentence in said)


def test_a_demo_leaves_a_picture_and_its_figures(tmp_path, monkeypatch):
    """Tiny: nobody learns anything."""
    monkeypatch.setattr(cue_demo, "UNITS", 3)
    monkeypatch.setattr(CueContest, "chunk", 20)
    small = [eg.OK(rank=2, window=2), *(eg.TBPTT(horizon=h, stride=s) for h, s in ((3, 1), (4, 1), (12, 1), (12, 12)))]
    entrants = [*map(Entrant, small), Entrant(eg.RTRL(), "MinGRU")]
    monkeypatch.setattr(CueContest, "entrants", property(lambda self: entrants))
    shown = io.StringIO()
    contest = CueContest(seeds=2, steps=40, gap=6, gap_to=8)
    run_demo(contest, tmp_path, Console(file=shown, width=80))
    assert (tmp_path / "cue.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "cue.json").read_text())
    assert (document["product"], document["seeds"], document["steps"]) == ("evergrad", 2, 40)
    for found, estimator in zip(document["results"], [*small, eg.RTRL()], strict=True):
        assert found["updates_per_sample"] == pytest.approx(1 / estimator.past.stride)
        assert found["milliseconds_a_step"] > 0
        assert [[row["step"] for row in curve] for curve in found["curves"]] == [[20, 40]] * 2
    first, second = (curve[0]["asked"] for curve in document["results"][0]["curves"])
    assert all(found["curves"][0][0]["asked"] == first for found in document["results"])  # the same streams for all
    assert min(first, second) > 0
    widest = max(len(line) for line in shown.getvalue().splitlines() if "TBPTT" in line and not line.startswith("seed"))
    assert widest <= 80
    assert "All of it took" in shown.getvalue()


def test_copy_has_a_rolling_line_and_says_what_each_side_had():
    contest = CopyContest(seeds=1, steps=1000)
    curves = [[{"step": 500, "length": 2}, {"step": 1000, "length": 3}]]
    said = list(contest.sentences([result_of_copy(contest, entrant, curves) for entrant in contest.entrants]))
    assert "TBPTT(horizon=25, stride=1) copies strings of up to 3 bits after 1,000 steps" in said[1]
    assert "one update in 25 steps, reaches back 1 to 25 steps, 1.00 ms a step" in said[2]


def result_of_copy(contest: Contest, entrant: Entrant, curves):
    about = {"estimator": entrant.label, "stride": entrant.estimator.past.stride, "reach": entrant.reach}
    return about | {"milliseconds_a_step": 1.0, "seeds": [contest.success(each) for each in curves], "curves": curves}


def test_what_cannot_be_shown_is_refused(tmp_path):
    for words, message in {
        ("cpoy",): 'Did you mean "copy"?',
        ("cue", "--gap", "20"): "--gap 20 is less than 40: OK's window remembers up to 31 steps",
        ("cue", "--gap", "80", "--gap-to", "70"): "--gap-to 70 is less than --gap 80",
        ("cue", "--steps", "100"): "--steps 100: give 500 or more",
        ("copy", "--gap", "80"): "copy has no --gap",
    }.items():
        assert message in refused("demo", *words, "--out", tmp_path)
    (tmp_path / "cue.json").write_text("mine")
    assert "no JSON file made by evergrad" in refused("demo", "--out", tmp_path)
