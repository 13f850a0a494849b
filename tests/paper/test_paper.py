"""The paper's experiments: plans, child processes, verdicts and the page."""

import json
import re
import signal
import time

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

import evergrad as eg
from evergrad.paper import claims, commands, curves, long, page, record, results, setup, summary
from evergrad.paper.claims import BITS, LENGTH, NO, OPEN, YES
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.experiments import (
    EXPERIMENTS,
    experiment,
    lemma2,
    noise,
    noise_claims,
    ours_pareto,
    table1_costs,
    theorems,
)
from evergrad.paper.experiments.common import rate_grid, released_grid
from evergrad.paper.experiments.lines import FIGURES, OURS_16, TBPTT_50, Row
from evergrad.paper.experiments.panels import PANELS
from evergrad.paper.experiments.planned import at_rate, lines, searched
from evergrad.paper.figures import Look, learning_curves
from evergrad.paper.page import shown, write_page
from evergrad.paper.plan import BUDGETS, Line, Plan, Run
from evergrad.paper.rates import choose
from evergrad.paper.results import Found, Trace
from evergrad.paper.runner import needed, run_all
from tests.training_helpers import as_on_the_command_line, environment, evergrad, reports, start, succeed

__all__ = ["as_on_the_command_line"]  # a fixture
TINY = {"cell": "rhn", "units": 4, "batch": 2, "estimator": "ktp", "rank": 2, "learning_rate": 0.01, "report": 20}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return Plan("desk", tmp_path, jobs=2, say=lambda text: None)


def tiny(label="tiny", *, steps=40, seeds=2, **settings):
    return Line(label, "copy", TINY | settings, steps, seeds)


def train(plan, *lines):
    run_all(plan, [run for line in lines for run in line.runs()], Console(quiet=True))


def fake(plan, run, figures, loss=1.0):
    """The reports of a run that never was: {step: figure}."""
    name = {"copy": "length", "text": "valid_bpc"}[run.task]
    folder = plan.path(run)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"step": step, "loss": loss, name: figure}) for step, figure in figures.items()]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "speed.jsonl").write_text("".join(json.dumps({"step": s, "seconds": 2.0}) + "\n" for s in figures))


def result_of(plan, lines, figures, name="fig1"):
    """A result with the same curve for every seed of a line: {label: {step: figure}}, a little apart."""
    for line in lines:
        for i, run in enumerate(line.runs()):
            fake(plan, run, {step: value + 0.1 * i for step, value in figures[line.label].items()})
    results.write(plan, name, lines, {})
    return results.Result(results.place(plan, name))


def trace(label, *values, rate=None, task="copy", step=100):
    """A line with these figures at a step, a seed each."""
    runs = [Found({"id": str(i), "seed": i}, curves.of_points([(0, v), (step, v)])) for i, v in enumerate(values)]
    return Trace(label, rate, task, tuple(runs))


def test_a_run_is_known_by_its_settings():
    one, longer = (Run("copy", TINY | {"seed": 0}, steps) for steps in (10, 20))
    assert one.id == longer.id
    assert len({one.id, *(Run("copy", TINY | {"seed": 0, k: 3}, 10).id for k in ("seed", "rank", "units"))}) == 4


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_experiment_has_a_plan_that_training_accepts(name, budget, tmp_path):
    from evergrad._training.resolve import resolve

    plan = Plan(budget, tmp_path)
    for line in experiment(name).lines(plan):
        for run in line.runs():
            assert resolve(run.task, run.settings).seed == run.settings["seed"]
    assert experiment(name).name == name


def test_the_papers_set_up_is_what_is_trained(tmp_path):
    found = {line.label: line for line in lines(Plan("full", tmp_path), "fig1") if not line.search}
    line = found["16-OK"]
    assert (line.steps, line.seeds) == (2_000_000, 5)
    expected = {"units": 128, "batch": 16, "rank": 16, "window": 0, "mix": "signs", "clip": 1.0}
    assert expected.items() <= line.settings.items()
    assert line.settings["learning_rate"] == pytest.approx(10**-3.5)


def test_every_row_of_the_table_can_be_planned(tmp_path):
    """Every budget has a length for it, a search where a best rate is asked for, and no label is there twice."""
    for name, figure in FIGURES.items():
        assert len({row.label for row in figure.rows}) == len(figure.rows), name
        for row in figure.rows:
            assert {*row.sizes, *row.best} <= {*BUDGETS}
            assert row.rate_of is not None or {*row.best} <= {*row.search}, (name, row.label)
            if row.rate_of is not None:
                assert FIGURES[row.rate_of[0]].row(row.rate_of[1]).search


@pytest.mark.slow
def test_runs_are_made_once_and_go_on(plan):
    line = tiny()
    train(plan, line)
    first = reports(plan.path(line.runs()[0]))
    assert [row["step"] for row in first] == [20, 40]
    assert not needed(plan, line.runs())
    log = plan.log(line.runs()[0]).read_text()
    train(plan, line)
    assert plan.log(line.runs()[0]).read_text() == log  # no process was started
    train(plan, tiny(steps=60, seeds=1))
    assert reports(plan.path(line.runs()[0]))[:2] == first
    assert plan.reached(line.runs()[0]) == 60
    assert plan.reached(line.runs()[1]) == 40


@pytest.mark.slow
def test_a_diverged_run_is_noted_and_left(plan):
    line = tiny(seeds=1, optimiser="sgd", learning_rate=1e30, clip=1e30, steps=60)
    train(plan, line)
    assert "loss" in plan.diverged(line.runs()[0]).read_text()
    assert not needed(plan, line.runs())


def test_a_refused_run_is_said(plan):
    with pytest.raises(eg.InputError, match="rank"):
        train(plan, tiny(seeds=1, rank=99))


@pytest.mark.slow
def test_stopped_by_a_signal_and_gone_on_with(tmp_path):
    words = ("paper", "run", "figA7", "--budget", "desk", "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    process = start(*words)
    runs = tmp_path / "runs"
    deadline = time.monotonic() + 120
    while not list(runs.glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "goes on from here" in output
    (run,) = [path for path in runs.iterdir() if path.is_dir()]
    assert list((run / "checkpoints").iterdir())
    from evergrad._training.folder import open_run

    assert not open_run(run).is_locked()  # nobody was left behind


ROW = Row("ok", setup.ours(8), {}, {"desk": (100, 2)}, {"desk": 40})


@pytest.fixture
def row(monkeypatch):
    """A figure of one line."""
    from evergrad.paper.experiments.lines import Figure

    monkeypatch.setitem(FIGURES, "one", Figure(setup.COPY, 1000, (ROW,)))
    return ROW


def fake_rates(plan, row, lengths, losses=(1.0,) * 4):
    """Lengths at both halves of a search, for the four rates."""
    for rate, (half, full), loss in zip(setup.RATES, lengths, losses, strict=True):
        (run,) = at_rate(plan, FIGURES["one"], row, rate, 40, 1).runs()
        fake(plan, run, {20: half, 40: full}, loss)


def test_the_best_rate_is_chosen_when_all_are_done(plan, row):
    assert [line.search for line in lines(plan, "one")] == [True] * 4
    fake_rates(plan, row, [(1, 3), (2, 9), (1, 4), (1, 2)])
    *tried, best = lines(plan, "one")
    assert best.settings["learning_rate"] == setup.RATES[1]
    assert (best.steps, best.seeds, best.search, best.best) == (100, 2, False, True)
    assert best.runs()[0].id == tried[1].runs()[0].id  # it goes on with the run of the search


def test_a_search_whose_halves_disagree_goes_on(plan, row):
    fake_rates(plan, row, [(3, 3), (2, 9), (1, 4), (1, 2)])
    tried, choice = searched(plan, "one", row)
    assert ([line.steps for line in tried], choice) == ([80] * 4, None)


def test_ties_are_broken_by_the_loss_and_the_edge_is_said(plan, row):
    fake_rates(plan, row, [(2, 3), (2, 3), (2, 3), (1, 2)], (0.3, 0.2, 0.4, 0.1))
    choice = searched(plan, "one", row)[1]
    assert (choice.rate, choice.tied, choice.edge, choice.agrees) == (setup.RATES[1], True, False, True)
    edge = choose({rate: curves.of_points([(10, -i), (20, -i)]) for i, rate in enumerate(setup.RATES)}, "copy")
    assert (edge.rate, edge.edge, edge.agrees) == (setup.RATES[0], True, True)
    assert "the edge of the paper's grid" in edge.in_words()
    assert not choose({setup.RATES[0]: curves.of_points([(10, 1.0)])}, "copy").edge  # nothing else was tried
    assert choose({}, "copy") is None


def test_rates_are_compared_where_all_have_come(plan):
    far, near = curves.of_points([(10, 1.0), (20, 9.0)]), curves.of_points([(10, 2.0)])
    assert (choose({0.1: far, 0.01: near}, "copy").rate, choose({0.1: far, 0.01: near}, "text").rate) == (0.01, 0.1)


def test_a_rate_that_wins_a_short_search_is_compared_again_with_those_that_went_on():
    def curve(*figures):
        return curves.of_points([(10 * (i + 1), figure) for i, figure in enumerate(figures)])

    found = {0.3: curve(9, 9), 0.1: curve(8, 10, 10, 10), 0.03: curve(5, 7, 12, 13), 0.01: curve(1, 2)}
    choice = choose(found, "copy")
    assert (choice.rate, choice.steps, choice.figures) == (0.03, 40, {0.1: 10, 0.03: 13})
    assert (choice.first.rate, choice.first.steps) == (0.1, 20)
    assert "of 2 rates at 40 steps" in choice.in_words()
    assert "after 10^-1 of 4 at 20" in choice.in_words()
    assert [choice.compared(rate) for rate in (0.3, 0.03, 1.0)] == [(9, 20), (13, 40), None]
    given_up = choose({0.3: curve(9, 11), 0.1: curve(8, 10, 20), 0.03: curve(5, 7, 12)}, "copy")
    assert (given_up.rate, given_up.steps) == (0.3, 20)  # the others went on without the best: they decide nothing


def test_the_longer_of_two_runs_is_taken(plan):
    line, shorter = tiny("x", seeds=1, steps=40), tiny("x", seeds=1, steps=20)
    result = result_of(plan, [line, shorter], {"x": {10: 1.0, 20: 2.0, 40: 4.0}})
    assert (result.best("x").at(40), result.best("x").reached) == ([4.0], 40)
    assert results.seconds([result, result]) == 6.0


def test_a_network_that_was_trained_again_is_another(plan):
    """Else what was measured of the former one would be taken for its."""
    (run,) = tiny(seeds=1).runs()
    fake(plan, run, {10: 1.0, 20: 2.0})
    before = plan.trained(run)
    rows = (plan.path(run) / "metrics.jsonl").read_text()
    (plan.path(run) / "metrics.jsonl").write_text(rows.replace('"loss": 1.0', '"loss": 0.99'))
    assert (before["step"], plan.trained(run)["step"], before == plan.trained(run)) == (20, 20, False)


def test_measurements_are_made_once(plan):
    made = []

    def measure():
        return made.append(1) or {"value": len(made)}

    assert [plan.measured("x", {"a": 1}, measure)["value"] for _ in range(2)] == [1, 1]
    assert plan.measured("x", {"a": 2}, measure)["value"] == 2


CURVES = [curves.of_points([(10, 1.0), (20, 2.0), (30, 3.0)]), curves.of_points([(10, 1.0), (20, 3.0), (30, 4.0)])]
THEIRS = results.of_released("released", "copy", CURVES)


@pytest.mark.parametrize(
    ("difference", "how", "expected"),
    [
        (1.0, {}, YES),
        (-1.0, {}, NO),
        (0.0, {}, OPEN),  # equal
        (-1.0, {"least": -1.0}, YES),  # as good
        (0.0, {"least": 0.1}, NO),  # far better
        (2.0, {"least": -1.0, "most": 1.0}, NO),  # a baseline that is better than published
        (1.0, {"share": 0.099}, OPEN),
        (1.0, {"share": 0.1}, YES),
        (-1.0, {"share": 0.05}, OPEN),
        (1.0, {"overlap": True}, OPEN),
        (float("nan"), {}, OPEN),
    ],
)
def test_the_verdict(difference, how, expected):
    assert claims.verdict(difference, **how) == expected


HOW = {"unit": LENGTH, "budget": 1000, "figure": "Figure 1"}


@pytest.mark.parametrize(
    ("one", "two", "how", "expected", "words"),
    [
        ((9,), (5,), {}, YES, "9 against 5 symbols at 500 steps"),
        ((5,), (9,), {}, NO, ""),
        ((5,), (5,), {}, OPEN, "so far: level"),
        ((9, 5), (6, 4), {}, OPEN, "the seeds overlap"),
        ((9, 7), (6, 4), {}, YES, "8 (7–9, 2 seeds) against 5 (4–6, 2 seeds)"),
        ((9, 7), (8,), {}, OPEN, "overlap"),
        ((7,), (9,), {"as_good": 2.0}, YES, ""),
        ((9,), (7,), {"by": 3.0}, NO, ""),
        ((9,), (5,), {"smallest": 12}, OPEN, "from 12 on"),
        ((9,), (5,), {"budget": 10_000}, OPEN, "so far: ahead"),
        ((5,), (9,), {"budget": 10_000}, OPEN, "so far: behind"),
        ((5,), (9,), {"budget": 10_000, "early": 600}, NO, "at 500 steps"),
        ((), (9,), {}, OPEN, "not run"),
    ],
)
def test_one_line_against_another(one, two, how, expected, words):
    first, second = trace("one", *one, step=500), trace("two", *two, step=600)
    claim = claims.better(first, second, said="so", names=("one", "two"), **HOW | how)
    assert (claim.verdict, words in claim.ours) == (expected, True), claim.ours


def test_lines_are_compared_at_equal_data():
    slow = Trace("slow", None, "copy", (Found({"seed": 0}, curves.of_points([(100, 1), (200, 5), (900, 9)])),))
    fast = Trace("fast", None, "copy", (Found({"seed": 0}, curves.of_points([(100, 2), (200, 6)])),))
    assert claims.better(fast, slow, said="so", **HOW).verdict == YES  # at step 200, not at their ends


@pytest.mark.parametrize(
    ("ours", "both", "steps", "expected"),
    [
        (40, True, 1000, YES),
        (46, True, 1000, NO),
        (46, False, 1000, YES),
        (38, False, 1000, NO),
        (42, True, 999, OPEN),
    ],
)
def test_a_number_published_for_the_end(ours, both, steps, expected):
    made = claims.at_the_end(trace("x", ours, step=steps), 42, tolerance=3, both_sides=both, **HOW)
    assert (made.verdict, made.share) == (expected, steps / 1000)
    assert ("better than published by 4" in made.ours) == (ours == 46 and both)


@pytest.mark.parametrize(
    ("ours", "higher", "verdict"),
    [
        ((2.0,), True, YES),
        ((9.0,), True, YES),
        ((1.0,) * 3, True, NO),
        ((1.0,), True, OPEN),  # one seed is not called late
        ((2.5,), False, YES),
        ((3.5,) * 3, False, NO),
    ],
)
def test_within_the_released_range_or_better(ours, higher, verdict):
    line = trace("ours", *ours, step=20)
    unit = LENGTH if higher else BITS
    made = claims.against_released(line, THEIRS, unit=unit, budget=100, name="ours", figure="")
    assert (made.verdict, "not called late" in made.ours) == (verdict, verdict == OPEN)
    assert made.paper == ("2–3 (2 released runs)" if higher else "2.00–3.00 (2 released runs)")
    young = claims.against_released(line, THEIRS, unit=unit, budget=1000, name="ours", figure="")
    assert young.verdict == OPEN
    missing = claims.against_released(line, None, unit=unit, budget=100, name="ours", figure="")
    assert (missing.verdict, "--reference" in missing.ours) == (OPEN, True)


def test_nothing_is_judged_below_a_tenth_of_the_papers_training(tmp_path):
    """Not in any figure, whatever the curves look like."""
    for name in ("fig1", "fig2", "fig4", "figA1", "figA8"):
        plan = Plan("desk", tmp_path, "ptb", say=lambda text: None)
        found = [line for line in lines(plan, name) if not line.search]
        short = FIGURES[name].steps // 11
        result = result_of(plan, found, {line.label: {10: 1.0, short: 9.0 + i} for i, line in enumerate(found)}, name)
        made = [claim for claim in experiment(name).section(result, None).claims if "within" not in claim.what]
        assert {claim.verdict for claim in made} <= {OPEN}, name
        plt.close("all")


def test_between_validations_nothing_is_repeated(plan):
    line = Line("text", "text", TINY | {"valid_every": 20}, 60, 1)
    result = result_of(plan, [line], {"text": {10: 4.0, 20: 3.0, 30: 3.0, 40: 2.0}})
    (curve,) = result.best("text").curves
    assert curve.steps.tolist() == [10, 20, 40]
    assert curve.at(30) == pytest.approx(2.5)
    assert curve.at(41) is None


def test_released_curves_are_read(tmp_path):
    (tmp_path / "x.csv").write_text("run,step,T,running_bits\n1,10,3,0.2\n1,20,4,0.2\n2,10,5,0.1\n")
    first, second = curves.released(tmp_path, "x", after=1)
    assert (first.steps.tolist(), first.values.tolist(), second.values.tolist()) == ([11, 21], [3.0, 4.0], [5.0])
    assert curves.released(None, "x") == curves.released(tmp_path, "y") == []
    for content in ("run,step,T\n1,ten,3\n", "run,step,length\n1,10,3\n", "run,step,T\n1\n"):
        (tmp_path / "z.csv").write_text(content)
        with pytest.raises(eg.InputError, match="needs the columns run, step, and T or valid_bpc"):
            curves.released(tmp_path, "z")


def test_the_legend_covers_no_data():
    found = [trace(f"a line with a rather long name, {i}", i, i + 1, step=20) for i in range(1, 7)]
    figure = learning_curves(found, Look("steps"), theirs=THEIRS)
    figure.canvas.draw()
    (axes,), (legend,) = figure.axes, figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert len(legend.get_texts()) == 7
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.get_lines()[2:]}
    assert len(looks) == 6
    assert len({line.get_marker() for line in axes.get_lines()[2:]}) == 6  # told apart without colour
    plt.close(figure)


def test_the_page_is_whole(plan):
    class Odd(Experiment):
        name, title = "odd", "An <odd> experiment"

        def section(self, result, reference):
            figure, _ = plt.subplots()
            made = [claims.Claim("a < b", "n^2", "2", NO, "Figure 9", 0.5, "a is less")]
            made += [claims.Claim("new", claims.NEW, "3", YES, plain="it is new")]
            return Section([Picture("odd", figure, "caption")], made, [Grid("grid", ("a",), [("b & c",)])], ["remark"])

    result = result_of(plan, [tiny("x")], {"x": {10: 1.0, 20: 5.0}}, "odd")
    (result.folder / "notes.txt").write_text("We tried two rates.\n\nNeither helped.\n")
    path = plan.out / "report.html"
    write_page([(Odd(), result, Odd().section(result, None))], path)
    page = path.read_text()
    assert (result.folder / "odd.png").read_bytes().startswith(b"\x89PNG")
    assert re.findall(r'src="([^"]{0,22})', page) == ["data:image/png;base64,"]
    assert not re.search(r"https?://|<script|<link|url\(", page)
    assert 'name="viewport"' in page
    for text in (
        "a &lt; b",
        "An &lt;odd&gt;",
        "b &amp; c",
        "1 are not",
        "What does not hold, or only in part: a is less.",
        "What is better now: it is new.",
        "Figure 9",
        "50 %",
        "n<sup>2</sup>",
        "<details",
        "Neither helped.",
        "remark",
        "rank 2",
    ):
        assert text in page, text


def test_table_1_is_judged_by_the_powers(plan):
    """Made-up times and bytes that follow the formulas exactly, but for one."""
    found = {}
    for law in table1_costs.laws("desk"):
        for axis, over in enumerate(table1_costs.variables(law)):
            sizes = law.points(over)
            found[f"{law.name} {over}"] = {
                what: {str(at): 1e-6 * at ** powers[axis] for at in sizes}
                for what, powers in (("time", law.time), ("memory", law.memory))
            }
    found["UORO n"]["time"] = {"128": 1.0, "256": 8.0}
    results.write(plan, "table1", [], found)
    section = experiment("table1").section(results.Result(results.place(plan, "table1")), None)
    wrong = [claim for claim in section.claims if claim.verdict != YES]
    assert [claim.what for claim in wrong] == ["UORO: time grows with n"]
    assert wrong[0].ours.startswith("n^3.00 (n = 128, 256")
    assert len(section.claims) == 20
    plt.close("all")


def test_results_of_another_version_are_named(plan):
    results.write(plan, "table1", [], {"RTRL": {}})
    with pytest.raises(eg.InputError, match="made by another version: run `evergrad paper run table1` again"):
        commands.report(plan.out / "results" / "desk", None)


def test_lemma_2(plan):
    lemma = experiment("lemma2")
    commands.run(plan, ["lemma2"], Console(quiet=True))
    result = results.Result(results.place(plan, "lemma2"))
    assert [claim.verdict for claim in lemma.section(result, None).claims] == [YES] * 4
    plt.close("all")


def test_nothing_is_judged_where_networks_are_shrunk(tmp_path):
    for budget in ("quick", "desk"):
        plan = Plan(budget, tmp_path, say=lambda text: None)
        found = [line for line in lines(plan, "fig1") if not line.search]
        result_of(plan, found, {line.label: {10: 1.0, 200_000: 40.0 - 9 * i} for i, line in enumerate(found)})
        page = commands.report(tmp_path / "results" / budget, None)[0].read_text()
        assert ("✓ reproduced" in page) == (budget == "desk")


def test_the_rank_that_lemma_2_speaks_of():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 3, 4))
    two = lemma2.product(*x) + lemma2.product(*y)
    assert lemma2.discriminant(two) > 1e-6
    assert abs(lemma2.discriminant(lemma2.target(x, y))) < 1e-12


def test_lemma_2_as_the_paper_prints_it_is_wrong(monkeypatch):
    right = lemma2.target
    monkeypatch.setattr(lemma2, "target", lambda x, y: right(x, y) + lemma2.product(y[0], x[1], x[1] - x[2]))
    found = lemma2.sequence((1, 10, 100))
    assert found["bias"] > 0.1
    assert found["variance"][-1] > 0.1


def test_the_command_line(tmp_path):
    listed = succeed("paper", "list")
    assert all(name in listed for name in (*EXPERIMENTS, *BUDGETS))
    assert "200,000" in succeed("paper", "list", "--budget", "desk")
    output = succeed("paper", "run", "lemma2", "--out", tmp_path)
    assert "report.html" in output
    assert "1 experiment" in succeed("paper", "report", "--out", tmp_path)
    for words, message in {
        ("run", "fgi1"): 'Did you mean "fig1"?',
        ("run", "fig1", "--budget", "dsk"): 'Did you mean "desk"?',
        ("run", "fig2", "--data", str(tmp_path / "nowhere")): "--data",
        ("report", "--out", str(tmp_path / "nowhere")): "no results",
        ("report", "--reference", str(tmp_path / "nowhere")): "--reference",
        ("run", "lemma2", "--reference", str(tmp_path)): "has none of copy_ok_n128_r16_b16.csv",
        ("run", "fig2", "--data", __file__): "give the folder",
        ("run", "fig1", "--steps", "10"): "name it by --line",
        ("run", "fig1", "--line", "TBPTT-5"): "TBPTT-50",
        ("export", str(tmp_path), "--to", str(tmp_path / "long")): "has no runs",
        ("report", "--out", str(tmp_path), "--long", str(tmp_path)): "evergrad paper export",
    }.items():
        done = evergrad("paper", *words)
        assert done.returncode == 2, words
        assert message in done.stderr


@pytest.mark.slow
def test_everything_at_the_quick_budget(tmp_path):
    succeed("paper", "run", "all", "--budget", "quick", "--out", tmp_path)
    page = (tmp_path / "results" / "quick" / "report.html").read_text()
    assert all(f'id="{name}"' in page for name in EXPERIMENTS)


def test_exponents_are_raised():
    assert shown("10^-3.5 of n^2 & m") == "10<sup>−3.5</sup> of n<sup>2</sup> &amp; m"
    assert shown("a ^ b") == "a ^ b"


def test_the_tables_beside_the_curves(plan):
    rates = [tiny("x", seeds=1, learning_rate=rate) for rate in setup.RATES[:2]]
    result = result_of(plan, rates, {"x": {10: 1.0, 20: 5.0}})
    (grid,) = rate_grid(result, LENGTH)
    assert grid.rows == [("x", "5", "5", "–", "–", result.choice("x").in_words())]
    assert released_grid([trace("ours", 7.0, step=20)], THEIRS, [20, 999], LENGTH)[0].rows == [("20", "2–3", "7")]


def test_a_figure_is_as_good_as_its_claims():
    assert summary.together([YES, YES]) == YES
    assert summary.together([YES, OPEN]) == OPEN
    assert summary.together([NO, OPEN]) == summary.together([YES, NO]) == summary.PARTLY
    made = [claims.Claim("x", "1", "2", v, "Figure 9", s, "a") for v, s in ((YES, 0.5), (NO, 0.001))]
    (found,) = summary.figure_rows(made)
    assert (found.share, found.verdict) == ("0.1 % to 50 %", summary.PARTLY)


def test_a_sentence_says_three_things_and_how_many_more_there_are():
    made = [claims.Claim("w", "1", "1", YES, "Figure 1", plain=f"claim {i}") for i in range(5)]
    said = summary.sentences([*made, claims.Claim("w", "1", "2", NO, "Figure 2", plain="another")])
    assert said[1] == "What holds: claim 0; claim 1; claim 2; and 2 more, in the table."
    assert said[2] == "What does not hold, or only in part: another."
    assert said[3] == "What is open: nothing so far."


@pytest.mark.slow
def test_runs_are_exported_and_taken_into_the_page(plan, tmp_path):
    """Also of a run that has not come to its end; a shorter one does not take the place of a longer one."""
    line = tiny()
    train(plan, line)
    to = tmp_path / "long"
    one, two = long.export(plan.out, to, commit="abc")
    assert (one["steps"], one["seed"], two["seed"], one["starts"][0]["from"]) == (40, 0, 1, 0)
    assert one["starts"][0]["commit"] == record.commit()  # as it was written down, not as it was told
    assert one["starts"][0]["processor"]
    first, _ = long.records(to)
    assert curves.read(first["path"]).steps.tolist() == [20, 40]
    path = to / "curves" / f"{one['id']}.json"
    path.write_text(json.dumps(one | {"steps": 60}))
    assert [each["seed"] for each in long.export(plan.out, to, commit=None)] == [1]


def exported(tmp_path, steps, length, **changes):
    """An exported run of TBPTT-50 in Figure 1."""
    settings = FIGURES["fig1"].settings(FIGURES["fig1"].row(TBPTT_50)) | {"learning_rate": setup.RATES[0]} | changes
    curves.write(tmp_path / "x.csv", curves.Curve(np.array([steps]), np.array([length]), np.array([0.1])), "copy")
    one = {"id": "x", "task": "copy", "settings": settings, "seed": 0, "steps": steps, "seconds": 1.0}
    return one | {"path": tmp_path / "x.csv"}


def test_an_exported_run_belongs_to_the_line_of_its_settings(plan, tmp_path):
    results.write(plan, "fig1", [], {})
    folder = results.place(plan, "fig1")
    result = results.Result(folder, [exported(tmp_path, 2_000_000, 33.0)])
    assert [(t.label, t.reached) for t in result.traces()] == [(TBPTT_50, 2_000_000)]
    made = [c for c in experiment("fig1").section(result, None).claims if c.what.startswith("TBPTT-50 at 10^-2.5:")]
    assert [claim.verdict for claim in made] == [YES]
    for changes in ({"stride": 1}, {"horizon": 51}, {"batch": 17}, {"units": 127}):
        found = results.Result(folder, [exported(tmp_path, 2_000_000, 33.0, **changes)]).labels()
        assert found == (["TBPTT-50, stride 1"] if "stride" in changes else [])
    plt.close("all")


def test_curves_are_thinned():
    steps = np.arange(1000, 101_500, 1000)
    kept = curves.thinned(curves.Curve(steps, steps * 1.0, steps * 1.0))
    assert kept.steps.tolist() == [*range(1000, 51_000, 1000), 60_000, 70_000, 80_000, 90_000, 100_000, 101_000]


def test_one_named_line(plan):
    line = commands.one_line(plan, ["fig1"], TBPTT_50, 2_000_000, commands.parse_rate("10^-2.5"), 2)
    (run,) = line.runs()
    assert (run.steps, run.settings["seed"], run.settings["learning_rate"]) == (2_000_000, 2, setup.RATES[0])
    assert commands.one_line(plan, ["fig1"], OURS_16, None, None, 0).steps == 200_000
    with pytest.raises(eg.InputError, match="say how long by --steps"):
        commands.one_line(plan, ["fig1"], "exact RTRL", None, None, 0)
    with pytest.raises(eg.InputError, match='Did you mean "TBPTT-50"'):
        commands.one_line(plan, ["fig1"], "TBPT-50", None, None, 0)
    with pytest.raises(eg.InputError, match="is of one figure"):
        commands.one_line(plan, ["fig1", "fig2"], TBPTT_50, None, None, 0)
    for text in ("ten", "10^-x", "0", "1", "-1", "10^5", "(-1)^0.5", "-1^0.5"):
        with pytest.raises(eg.InputError, match="--rate"):
            commands.parse_rate(text)


def noisy(cosines, *, trained=1_000_000, learned=40.0):
    rows = {
        name: {"cosine": c, "injected": 0.1, "injected_error": 0.01, "bound": 0.1, "verdict": "met"}
        for name, c in cosines
    }
    return {"subject": "s", "steps": 9, "repetitions": 2, "trained": trained, "learned": learned, "estimators": rows}


def panels(**how):
    return {panel.key: noisy([(panel.ours, 0.9), (panel.ok, 0.8), (panel.kf, 0.5)], **how) for panel in PANELS}


def sizes(apart):
    """Two sizes whose cosines differ by this much in every pair, and by far more from network to network."""
    small = np.linspace(0.1, 0.9, 20)
    both = {"8": small, "512": small - apart + 0.001 * (-1) ** np.arange(20)}
    return {
        n: {label: {"cosines": (c if "KF" in label else c * 0 + 1).tolist()} for label in noise.UNTRAINED}
        for n, c in both.items()
    }


def judged(apart=0.0, **how):
    untrained = {"estimators": {"2-OK": {"cosine": 1.0}}}
    return noise_claims.claims({"figA2": untrained, "figA5": sizes(apart)} | panels(**how))


def test_young_networks_are_young_in_every_figure():
    about = [claim for claim in judged() if claim.share is not None and claim.paper != claims.NEW]
    assert {claim.figure for claim in about} == {panel.figure for panel in PANELS}
    assert OPEN not in {claim.verdict for claim in about}
    young = [claim for claim in judged(trained=499_000, learned=19.0) if claim.share is not None]
    assert {claim.verdict for claim in young} == {OPEN}  # what we claim ourselves too
    far = next(claim for claim in judged() if claim.figure == "Figure 3")
    assert (far.verdict, "by 0.1 or more" in far.what) == (YES, True)


def test_sizes_are_compared_in_pairs():
    """A difference that the spread over networks would hide."""
    for apart, verdict in ((0.0, YES), (0.01, NO)):
        found = [claim for claim in judged(apart) if "the same at all sizes" in claim.what]
        assert [claim.verdict for claim in found] == [verdict] * 2


def test_theorem_1_is_judged_by_its_standard_error():
    found = {"figA3": panels()["figA3"]}
    for verdict, expected in (("met", YES), ("above", NO)):
        found["figA3"]["estimators"]["16-OK"]["verdict"] = verdict
        assert [c.verdict for p in PANELS for c in noise_claims._theorem_1(found, p)] == [expected]
    del found["figA3"]["estimators"]["16-OK"]["injected_error"]
    assert [c.verdict for p in PANELS for c in noise_claims._theorem_1(found, p)] == [OPEN]


def test_theorem_2_and_section_3_6(plan):
    commands.run(Plan("quick", plan.out, say=lambda text: None), ["theorems"], Console(quiet=True))
    result = results.Result(plan.out / "results" / "quick" / "theorems")
    made = experiment("theorems").section(result, None).claims
    assert [claim.verdict for claim in made] == [YES] * 5
    result.measured["random"]["signs"][1]["variance"] *= 1.02
    result.measured["cases"]["parallel"]["variance"] = 0.1
    made = experiment("theorems").section(result, None).claims
    assert [claim.verdict for claim in made] == [NO, YES, NO, YES, YES]


def test_a_biased_approximation_is_found_out(monkeypatch):
    from evergrad._core import low_rank

    right = low_rank.compress
    monkeypatch.setattr(low_rank, "compress", lambda d, rank, mix, key: 0.99 * right(d, rank, mix, key))
    found = theorems.drawn(np.diag([30.0, 2.0, 2.0]), 2, 2000, "signs")
    assert found["bias"] > theorems.CUT**2


def test_the_noise_of_the_data():
    """Against the per-stream gradients themselves, by backpropagation."""
    import jax
    import jax.numpy as jnp

    from evergrad._core.sources import Data
    from evergrad.lab.batch_noise import beside_the_data
    from evergrad.lab.subject import Subject

    model = eg.Model(
        eg.RNN(inputs=3, units=4, key=jax.random.key(0)), eg.Softmax(units=4, classes=3, key=jax.random.key(1))
    )
    x = jax.random.randint(jax.random.key(2), (6, 3), 0, 3, jnp.int32)
    y, reset = jnp.roll(x, 1), jnp.zeros((6, 3), bool).at[0].set(True)
    subject = Subject(model, Data(x, y, reset, jnp.ones((6, 3))), "made up")
    found = beside_the_data(subject, {"exact": eg.RTRL()}, repetitions=1, key=jax.random.key(3))

    def gradient(t, b):
        of = jax.grad(lambda cell: eg.Model(cell, model.readout).losses(x[:, b : b + 1], y[:, b : b + 1])[t, 0])
        return np.concatenate([np.ravel(a) for a in jax.tree.leaves(of(model.cell))])

    each = np.array([[gradient(t, b) for b in range(3)] for t in range(6)])
    assert found["data"] == pytest.approx(float(each.var(axis=1, ddof=1).sum(-1).mean() / 3), rel=1e-4)
    assert found["gradient"] == pytest.approx(float((each.mean(1) ** 2).sum(-1).mean()), rel=1e-4)
    assert found["estimators"]["exact"] < 1e-8 * found["gradient"]


def test_how_runs_were_started_is_said(plan, tmp_path):
    """A run that lost its influence on the way, and one whose record a person wrote."""
    results.write(plan, "fig1", [], {})
    starts = [{"from": 0, "told": "by hand, from memory"}, {"from": 1_000, "influence": "empty"}]
    run = exported(tmp_path, 2_000_000, 33.0) | {"starts": starts}
    said = page._starts(results.Result(results.place(plan, "fig1"), [run]))
    who = "TBPTT-50 at 10^-2.5, seed 0"
    assert said == [
        f"{who}: the record of what it was made with was written by hand, from memory.",
        f"{who}: continued at step 1,000 with an empty influence, from an exported network.",
    ]
    assert not page._starts(results.Result(results.place(plan, "fig1"), [run | {"starts": [{"from": 0}]}]))


def test_what_was_measured_of_a_young_network_is_open():
    """Our own claims too: the same points, of a network at the paper's length and of one below a tenth of it."""
    names = ("ok:rank=8,window=16", "ok:rank=8,window=0,mix=signs", "kf:copies=8", "kf:copies=1", "kf:copies=2")
    names += ("uoro:window=0", "ok:rank=8,window=16,mix=signs", "ok:rank=8,window=0")
    errors = (0.1, 0.4, 0.5, 4.0, 2.0, 80.0, 0.2, 0.3)
    points = {n: {"error": e, "multiply_adds": 1.0, "cosine": 0.9} for n, e in zip(names, errors, strict=True)}
    old, young = (ours_pareto._claims("ptb", {"points": points, "step": step}) for step in (1_000_000, 99_000))
    assert {claim.verdict for claim in old} == {YES}
    assert {claim.verdict for claim in young} == {OPEN}
