"""The paper's experiments: plans, child processes, verdicts and the page."""

import dataclasses
import json
import re
import signal
import time

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

import evergrad as eg
from evergrad.paper import claims, commands, rates, results, setup
from evergrad.paper.claims import NO, OPEN, YES
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.experiments import EXPERIMENTS, experiment, fig1_copy, fig3_noise, lemma2, table1_costs
from evergrad.paper.figures import learning_curves
from evergrad.paper.page import write_page
from evergrad.paper.plan import BUDGETS, Line, Plan, Run
from evergrad.paper.runner import needed, run_all
from tests.training_helpers import as_on_the_command_line, environment, evergrad, reports, start, succeed

__all__ = ["as_on_the_command_line"]  # a fixture
TINY = {"cell": "rhn", "units": 4, "batch": 2, "estimator": "ktp", "rank": 2, "report": 20}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return Plan("desk", tmp_path, jobs=2, say=lambda text: None)


def tiny(label="tiny", *, steps=40, seeds=2, **settings):
    return Line(label, "copy", TINY | settings, steps, seeds)


def train(plan, *lines):
    run_all(plan, [run for line in lines for run in line.runs()], Console(quiet=True))


def fake(plan, run, figures):
    """The reports of a run that never was: {step: figure}."""
    name = {"copy": "length", "text": "valid_bpc"}[run.task]
    folder = plan.path(run)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"step": step, "loss": 1.0, name: figure}) for step, figure in figures.items()]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "speed.jsonl").write_text("".join(json.dumps({"step": s, "seconds": 2.0}) + "\n" for s in figures))


def result_of(plan, lines, figures, name="fig1"):
    """A result with the same curve for every seed of a line: {label: {step: figure}}, a little apart."""
    for line in lines:
        for i, run in enumerate(line.runs()):
            fake(plan, run, {step: value + 0.1 * i for step, value in figures[line.label].items()})
    results.write(plan, name, lines, {}, {"processor": "none"})
    return results.Result(results.place(plan, name))


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
    lines = {line.label: line for line in fig1_copy.lines(Plan("full", tmp_path)) if not line.search}
    line = lines["16-OK"]
    assert (line.steps, line.seeds) == (2_000_000, 5)
    expected = {"units": 128, "batch": 16, "rank": 16, "window": 0, "mix": "signs", "clip": 1.0}
    assert expected.items() <= line.settings.items()
    assert line.settings["learning_rate"] == pytest.approx(10**-3.5)


def test_noise_is_measured_on_the_networks_of_the_figures(tmp_path):
    """Not on those of the search for a rate, which have the same label."""
    for budget in ("desk", "full"):
        for line in fig3_noise.trained(Plan(budget, tmp_path)).values():
            assert not line.search
            assert line.settings["learning_rate"] == setup.RELEASED_RATE


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


def test_the_best_rate_is_chosen_when_all_are_done(plan):
    sizes, search = {"desk": (100, 2)}, {"desk": (40, 1)}
    lines = lambda: rates.with_rates(plan, "ok", setup.COPY, setup.ours(8), sizes, search)  # noqa: E731
    assert [line.search for line in lines()] == [True] * 4
    for line, length in zip(lines(), (3, 9, 4, 2), strict=True):
        fake(plan, line.runs()[0], {20: 1, 40: length})
    *tried, best = lines()
    assert best.settings["learning_rate"] == rates.RATES[1]
    assert (best.steps, best.seeds, best.search) == (100, 2, False)
    assert best.runs()[0].id == tried[1].runs()[0].id  # it goes on with the run of the search


def test_a_search_does_not_shorten_the_run_that_it_shares(plan):
    line, searched = tiny("x", seeds=1, steps=40), dataclasses.replace(tiny("x", seeds=1, steps=20), search=True)
    result = result_of(plan, [line, searched], {"x": {10: 1.0, 20: 2.0, 40: 4.0}})
    assert result.at("x", 40) == [4.0]
    (short,) = result.lines(search=True)
    assert short["runs"][0]["steps"] == 20
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
    measure = lambda: made.append(1) or {"value": len(made)}  # noqa: E731
    assert [plan.measured("x", {"a": 1}, measure)["value"] for _ in range(2)] == [1, 1]
    assert plan.measured("x", {"a": 2}, measure)["value"] == 2


CURVES = [(np.array([10, 20, 30]), np.array([1.0, 2.0, 3.0])), (np.array([10, 20, 30]), np.array([1.0, 3.0, 4.0]))]


@pytest.mark.parametrize(
    ("ours", "higher", "verdict"),
    [(2.0, True, YES), (9.0, True, YES), (1.5, True, NO), (2.5, False, YES), (1.0, False, YES), (3.5, False, NO)],
)
def test_within_the_released_range_or_better(plan, ours, higher, verdict):
    result = result_of(plan, [tiny("ours", seeds=1)], {"ours": {10: ours, 20: ours}})
    made = claims.against_released(result, "ours", CURVES, [20, 30], higher=higher, digits=2, unit="x")
    assert [claim.verdict for claim in made] == [verdict, OPEN]
    assert made[0].paper == "2.00–3.00 (2 released runs)"


def test_better_is_judged_at_equal_data(plan):
    lines = [tiny("slow", seeds=1), tiny("fast", seeds=1, rank=1)]
    result = result_of(plan, lines, {"slow": {10: 1.0, 20: 5.0, 30: 9.0}, "fast": {10: 2.0, 20: 6.0}})
    said = {"higher": True, "digits": 1, "unit": "length", "said": "so"}
    assert claims.better(result, "fast", "slow", **said).verdict == YES  # at step 20, not at their ends
    assert claims.better(result, "slow", "fast", **said).verdict == NO
    assert claims.better(result, "slow", "fast", **said, margin=2).verdict == YES
    assert claims.better(result, "slow", "missing", **said).verdict == OPEN
    assert claims.better(result, "slow", "slow", **said).verdict == OPEN  # equal so far
    early = claims.better(result, "fast", "slow", **said, least=7)
    assert (early.verdict, "from 7 on" in early.ours) == (OPEN, True)
    assert (
        "at 20 steps, 0.2 % of the paper's 10,000"
        in claims.better(result, "fast", "slow", **said, published_steps=10_000).ours
    )


@pytest.mark.parametrize(("gap", "verdict"), [(0.15, YES), (0.05, OPEN)])
def test_seeds_that_overlap_decide_nothing(plan, gap, verdict):
    """Two seeds each, 0.1 apart."""
    result = result_of(plan, [tiny("one"), tiny("two", rank=1)], {"one": {10: 5 + gap}, "two": {10: 5.0}})
    claim = claims.better(result, "one", "two", higher=True, digits=2, unit="length", said="so")
    assert (claim.verdict, "overlap" in claim.ours) == (verdict, verdict == OPEN)


def test_each_is_met_with_its_best_rate(plan):
    lines = [tiny(label, seeds=1, rank=i + 1) for i, label in enumerate(("ours", "same", "slow", "slow, best rate"))]
    lengths = {"ours": 5.0, "same": 4.0, "slow": 3.0, "slow, best rate": 6.0}
    result = result_of(plan, lines, {label: {10: 1.0, 20: length} for label, length in lengths.items()})
    unit = {"higher": True, "digits": 1, "unit": "length"}
    same, slow = rates.at_best_rate(result, "ours", {"same": "so", "slow": "thus"}, **unit)  # "same" has no other rate
    assert "slow, best rate" in slow.what
    assert (same.paper, same.verdict, slow.paper, slow.verdict) == ("so", YES, "thus", NO)


def test_a_smaller_budget_is_said(plan):
    result = result_of(plan, [tiny("x", seeds=2)], {"x": {10: 1.0, 20: 5.0}})
    claim = claims.at_the_end(result, "x", 42, 2000, tolerance=3, higher=True, digits=0, unit="length")
    assert claim.verdict == OPEN
    assert "20 steps, 1 % of the paper's 2,000" in claim.ours
    done = claims.at_the_end(result, "x", 42, 20, tolerance=3, higher=True, digits=0, unit="length")
    assert done.verdict == NO


def test_between_validations_nothing_is_repeated(plan):
    line = Line("text", "text", TINY | {"valid_every": 20}, 60, 1)
    result = result_of(plan, [line], {"text": {10: 4.0, 20: 3.0, 30: 3.0, 40: 2.0}})
    (curve,) = result.curves(result.line("text"))
    assert curve[0].tolist() == [10, 20, 40]
    assert results.value_at(curve, 30) == pytest.approx(2.5)
    assert results.value_at(curve, 41) is None


def test_released_curves_are_read(tmp_path):
    (tmp_path / "x.csv").write_text("run,step,T,running_bits\n1,10,3,0.2\n1,20,4,0.2\n2,10,5,0.1\n")
    first, second = results.released(tmp_path, "x")
    assert (first[0].tolist(), first[1].tolist(), second[1].tolist()) == ([10, 20], [3.0, 4.0], [5.0])
    assert results.released(None, "x") == results.released(tmp_path, "y") == []
    for content in ("run,step,T\n1,ten,3\n", "run,step,length\n1,10,3\n", "run,step,T\n1\n"):
        (tmp_path / "z.csv").write_text(content)
        with pytest.raises(eg.InputError, match="needs the columns run, step, and T or valid_bpc"):
            results.released(tmp_path, "z")


def test_without_released_curves_nothing_is_said_to_be_reproduced(plan):
    result = result_of(plan, [tiny("ours", seeds=1)], {"ours": {10: 1.0, 20: 9.0}})
    (claim,) = claims.against_released(result, "ours", [], [20], higher=True, digits=1, unit="length")
    assert (claim.verdict, "--reference" in claim.ours) == (OPEN, True)


def test_the_legend_covers_no_data(plan):
    lines = [tiny(f"a line with a rather long name, {i}", rank=i) for i in range(1, 7)]
    result = result_of(plan, lines, {line.label: {10: 1.0, 20: i} for i, line in enumerate(lines)})
    figure = learning_curves(result, x="steps", y="length", released=CURVES, released_label="released")
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
            made = [claims.Claim("a < b", "1", "2", NO), claims.Claim("new", claims.NEW, "3", YES)]
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
        "claims: not reproduced (1). Of our own: holds (1).",
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
    results.write(plan, "table1", [], found, {"processor": "none"})
    section = experiment("table1").section(results.Result(results.place(plan, "table1")), None)
    wrong = [claim for claim in section.claims if claim.verdict != YES]
    assert [claim.what for claim in wrong] == ["UORO: time grows with n"]
    assert wrong[0].ours.startswith("n^3.00 (n = 128, 256")
    assert len(section.claims) == 20
    plt.close("all")


def test_results_of_another_version_are_named(plan):
    results.write(plan, "table1", [], {"RTRL": {}}, {"processor": "none"})
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
        lines = [line for line in fig1_copy.lines(plan) if not line.search]
        result_of(plan, lines, {line.label: {10: 1.0, 20_000: 40.0 - i} for i, line in enumerate(lines)})
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
    }.items():
        done = evergrad("paper", *words)
        assert done.returncode == 2, words
        assert message in done.stderr


@pytest.mark.slow
def test_everything_at_the_quick_budget(tmp_path):
    succeed("paper", "run", "all", "--budget", "quick", "--out", tmp_path)
    page = (tmp_path / "results" / "quick" / "report.html").read_text()
    assert all(f'id="{name}"' in page for name in EXPERIMENTS)
