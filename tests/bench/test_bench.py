"""The benchmark: what it fits, what it judges, what it shows and writes, and what it refuses. Nothing here is timed."""

import io
import itertools
import json
import sys
import textwrap

import pytest
from rich.console import Console
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._core.machine import processor
from evergrad.bench import goals, growth, peers, report, settings, timing
from evergrad.bench.authors import AUTHORS, against_authors
from evergrad.bench.row import Row
from tests.training_helpers import as_on_the_command_line  # noqa: F401

pytestmark = pytest.mark.optimised

TINY = settings.Setting("tiny", units=6, batch=2, rank=2, symbols=3, cell="GRU", window=3)


def shown(tables):
    console = Console(file=io.StringIO(), width=200)
    console.print(*tables)
    return console.file.getvalue()


@pytest.mark.parametrize("planted", [0.0, 1.0, 2.3, 4.0])
def test_a_fit_recovers_a_planted_exponent(planted):
    assert growth.exponent({n: 3e-7 * n**planted for n in (128, 256, 512)}) == pytest.approx(planted, abs=1e-9)


def test_a_fit_passes_within_the_tolerance_and_not_beyond():
    def fit(fitted):
        return growth.Fit("UORO", "time", "n", 2.0, fitted, {})

    assert fit(2.34).passed
    assert fit(1.66).passed
    assert not fit(2.36).passed
    assert not fit(1.64).passed


@pytest.mark.parametrize(
    ("measured", "bound", "at_least", "passed"),
    [(1.5, 1.6, False, True), (1.7, 1.6, False, False), (6.0, 5.0, True, True), (4.0, 5.0, True, False)],
)
def test_a_row_passes_on_the_right_side_of_its_bound(measured, bound, at_least, passed):
    row = Row("1", "what", measured, bound, at_least)
    assert row.passed is passed
    assert ("pass" in shown(report.tables([row], []))) is passed
    assert ("fail" in shown(report.tables([row], []))) is not passed


def test_what_has_no_goal_neither_passes_nor_fails():
    row = Row("8", "overhead", 70.0, None, unit="µs a step")
    assert row.passed is None
    assert not {"pass", "fail"} & set(shown(report.tables([row], [])).split())


def test_every_law_of_the_papers_table_is_measured_at_three_sizes_or_more_from_128_up():
    table = {"RTRL": (4, 3), "UORO": (2, 2), "KF": (3, 2), "OK": (3, 2), "KTP": (2, 1), "TBPTT": (2, 1)}
    assert {law.name.split("(")[0]: (law.time[0], law.memory[0]) for law in growth.LAWS} == table
    for law in growth.LAWS:
        assert len(law.units) >= 3
        assert min(law.units) == 128
        assert [n for n, _ in law.points("n").values()] == list(law.units)
        assert len({r for _, r in law.points("n").values()}) == 1
        assert [r for _, r in law.points("r").values()] == list(law.ranks)
        assert len({n for n, _ in law.points("r").values()}) == 1


def test_fits_are_of_what_was_measured(monkeypatch):
    monkeypatch.setattr(growth, "measured", lambda setting, estimator, _: (setting.units**3.0, setting.rank**2.0))
    law = growth.LAWS[3]
    time, memory = growth.fits(law, "n", lambda _: None)
    assert (time.expected, time.fitted) == (3, pytest.approx(3))
    assert memory.fitted == pytest.approx(0, abs=1e-9)
    time, memory = growth.fits(law, "r", lambda _: None)
    assert time.fitted == pytest.approx(0, abs=1e-9)
    assert (memory.expected, memory.fitted, memory.passed) == (1, pytest.approx(2), False)


@pytest.mark.optimised
def test_memory_is_what_one_stream_more_costs_the_compiled_program():
    found = growth.bytes_a_stream(TINY, eg.UORO())
    weights = 4 * (3 + 6 + 1) * 4 * 6  # bytes of one v: a number for each entry of W
    assert weights < found < 6 * weights


def test_the_median_round_counts_and_cases_take_turns():
    turns, seconds = [], {"a": [1.0, 9.0, 2.0], "b": [5.0, 4.0, 90.0]}

    def case(name):
        return lambda: turns.append(name) or seconds[name][turns.count(name) - 1]

    assert timing.medians({name: case(name) for name in seconds}, rounds=3) == {"a": 2.0, "b": 5.0}
    assert "".join(turns) == "ababab"


def test_exact_gradients_of_unit_local_cells_have_a_goal(monkeypatch):
    monkeypatch.setattr(goals, "training", lambda setting, estimator, steps: setting.learner(estimator))
    monkeypatch.setattr(
        goals, "milliseconds", lambda cases, _: {name: 3.2 if "RTRL" in name else 2.0 for name in cases}
    )
    rows = [*goals._unit_local(goals.QUICK, lambda _: None)]
    assert [row.what.split()[0] for row in rows] == ["LRU", "RTU", "MinGRU"]
    assert {(row.number, row.measured, row.bound, row.passed) for row in rows} == {("10", 1.6, 1.5, False)}


def test_patience_is_three_rounds_at_least_and_more_for_short_ones():
    rounds = itertools.count(1)
    assert timing.patient(lambda: float(next(rounds)), seconds=0.0) == 2.0
    rounds = itertools.count(1)
    assert timing.patient(lambda: float(next(rounds)), seconds=15.0) == 3.0


def test_the_authors_figures_are_those_of_the_issue_and_say_so():
    assert {(s.name, a.cores, a.gpu, a.factor) for s, a in AUTHORS.items()} == {
        ("copy", 280, 50, 50),
        ("ptb", 810, 100, 25),
    }
    cores, gpu = against_authors(settings.COPY, ours=7.0)
    assert (cores.measured, cores.passed, gpu.measured, gpu.passed) == (40.0, False, 7.0, True)
    cores, gpu = against_authors(settings.PTB, ours=30.0)
    assert (cores.measured, cores.passed, gpu.passed) == (27.0, True, True)
    assert all("from the issue" in row.what for row in (cores, gpu))


@pytest.mark.parametrize(("ours", "verdict"), [(1.4, "pass"), (1.6, "fail")])
def test_the_table_of_peers_is_made_of_what_was_measured(ours, verdict):
    row = peers.against_braintrace({peers.THEIRS: 30.0, peers.OURS: ours})
    text = shown(report.tables([row], []))
    assert row.measured == pytest.approx(30 / ours)
    assert "≥ 20 ×" in text
    assert verdict in text
    assert f"{peers.THEIRS}: 30" in text


def test_pytorch_is_beaten_by_ratios():
    ms = {"PyTorch LSTM": 0.5, "evergrad LSTM": 0.6, "evergrad RHN": 0.7}
    rows = list(peers.against_pytorch(settings.COPY, ms))
    assert [round(row.measured, 6) for row in rows] == [1.2, 1.4, 1.166667]
    assert [row.passed for row in rows] == [True, False, False]


CHILD = """
    import json, sys
    import numpy as np
    given = np.load(sys.argv[2])
    print(json.dumps([{loss}]), flush=True)
    for order in sys.stdin:
        print(json.dumps(len(given["xs"]) / 1000), flush=True)
"""


def fake_python(tmp_path, loss):
    """Stands for the Python of braintrace's environment: says the loss it is told to, then 8 ms a step for 8 steps."""
    script, python = tmp_path / "child.py", tmp_path / "python"
    script.write_text(textwrap.dedent(CHILD.format(loss=loss)))
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return python


def turns(python):
    return peers.turns(peers.Peer("a peer", "--peer", "braintrace_run.py", python), TINY, peers.uoro_given(TINY, 8))


def test_a_peer_gets_our_network_and_takes_turns_from_another_process(tmp_path):
    model, (xs, ys) = TINY.learner(eg.UORO()).model, TINY.data(8)
    loss = float(model.losses(xs[:1], ys[:1]).mean())
    with turns(fake_python(tmp_path, loss)) as case:
        assert [case(), case()] == [0.008, 0.008]


def test_a_peer_with_another_network_is_refused(tmp_path):
    with (
        pytest.raises(eg.InputError, match="is not ours"),
        turns(fake_python(tmp_path, 0.5)),
    ):
        pass


def test_a_peer_that_is_not_there_or_dies_is_explained(tmp_path):
    with pytest.raises(eg.InputError, match="make bench-peers"), turns(tmp_path / "python"):
        pass
    with pytest.raises(eg.InputError, match="has ended"), turns(fake_python(tmp_path, "1 / 0")):
        pass


def bench(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def measurements(monkeypatch):
    """What the command would measure, for a test to fill in."""
    rows, fits = [Row("1", "copy: OK", 1.5, 1.6)], [growth.Fit("UORO", "time", "n", 2.0, 2.1, {128: 1e-3, 256: 4e-3})]
    monkeypatch.setattr(goals, "goals", lambda effort, say, only: [say("OK at copy"), *rows][1:])
    monkeypatch.setattr(growth, "growth", lambda quick, say: fits)
    return rows, fits


def test_the_command_shows_goal_measured_and_verdict_and_writes_them(measurements, tmp_path):
    file = tmp_path / "new folder" / "bench.json"
    done = bench("--quick", "--json", file)
    assert done.exit_code == 0, done.output
    for word in ("1.5 ×", "≤ 1.6 ×", "2.10", "pass", "measuring OK at copy"):
        assert word in done.output
    document = json.loads(file.read_text())
    assert document["about"]["processor"] == processor() != ""
    assert document["about"]["quick"] is True
    assert [(row["measured"], row["bound"], row["passed"]) for row in document["goals"]] == [(1.5, 1.6, True)]
    assert [(fit["fitted"], fit["passed"]) for fit in document["growth"]] == [(2.1, True)]


def test_a_part_alone_is_measured_and_an_unknown_one_refused(monkeypatch):
    monkeypatch.setattr(goals, "_short_steps", lambda *_: iter([Row("8", "short", 1.0, 2.0)]))
    monkeypatch.setattr(growth, "growth", lambda *_: pytest.fail("growth"))
    for name in ("_ok", "_cheap", "_rolling", "_compile", "_uoro", "_networks", "_unit_local"):
        monkeypatch.setattr(goals, name, lambda *_: (pytest.fail("measured") for _ in range(1)))
    assert [row.what for row in goals.goals(goals.QUICK, print, ("short",))] == ["short"]
    assert bench("--only", "short").exit_code == 0
    refused = bench("--only", "long")
    assert refused.exit_code == 2
    assert "--only long: no such part" in refused.output


def test_a_missed_goal_is_shown_written_and_the_exit_code_is_1(measurements, tmp_path):
    measurements[0].append(Row("2", "ptb: OK", 2.5, 2.0))
    done = bench("--json", tmp_path / "bench.json")
    assert done.exit_code == 1
    assert "fail" in done.output
    assert "1 missed" in done.output
    assert [row["passed"] for row in json.loads((tmp_path / "bench.json").read_text())["goals"]] == [True, False]


@pytest.mark.parametrize("command", [(), ("peers",), ("scale",)])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(command, tmp_path, monkeypatch):
    monkeypatch.setattr(goals, "goals", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(peers, "peers", lambda *_, **__: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path, tmp_path / "file" / "bench.json"):
        done = bench(*command, "--json", wrong)
        assert done.exit_code == 2, done.output
        assert f"--json {wrong}" in done.output


@pytest.mark.parametrize(
    "wrong", [("--fast",), ("--json",), ("nothing",), ("peers", "--braintrace", "/nowhere/python")]
)
def test_bad_input_exits_with_2(wrong):
    assert bench(*wrong).exit_code == 2
