"""How runs start and how their rate goes on, what runs from before that do, and what is said when nothing is learned."""

import dataclasses
import math
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._cells.initial import INITIAL
from evergrad._training import standstill
from evergrad._training.build import make_job, make_optimiser
from evergrad._training.folder import open_run
from evergrad._training.resolve import resolve
from evergrad._training.settings import SCHEDULES, fields
from evergrad.paper.experiments import experiment
from evergrad.paper.plan import Plan
from tests.cli.test_cli_runs import refused, succeed
from tests.training_helpers import (
    as_older_versions_did,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    change_settings,
)

TINY = {"units": 6, "batch": 2, "estimator": "tbptt", "horizon": 3, "stride": 1}
WORDS = ("--units", 6, "--batch", 2, "--estimator", "tbptt", "--horizon", 3, "--stride", 1, "--report", 20)


def test_a_run_starts_as_it_says():
    keys = jax.random.split(jax.random.split(jax.random.key(0), 3)[0])
    for initial, spread in {"normal": "normal", "fan_in": "fan_in", "chrono:50": "fan_in"}.items():
        model = make_job(resolve("copy", TINY | {"initial": initial})).learner.model
        np.testing.assert_array_equal(model.cell.weight, eg.RHN(4, 6, key=keys[0], initial=initial).weight)
        np.testing.assert_array_equal(model.readout.weight, eg.Softmax(6, 4, key=keys[1], initial=spread).weight)
    named = {form.partition(":")[0] for form in INITIAL}
    assert all(name in fields("copy")["initial"].metadata["help"] for name in named)


@pytest.mark.parametrize("cell", ["rhn", "lstm"])
def test_a_run_from_before_starts_as_it_did(cell):
    settings = dataclasses.replace(resolve("copy", TINY | {"cell": cell}), initial=None, schedule=None)
    job = make_job(settings)
    keys = jax.random.split(jax.random.split(jax.random.key(0), 3)[0])
    np.testing.assert_array_equal(job.learner.model.cell.weight, getattr(eg, cell.upper())(4, 6, key=keys[0]).weight)
    np.testing.assert_array_equal(job.learner.model.readout.weight, eg.Softmax(6, 4, key=keys[1]).weight)
    now = make_job(dataclasses.replace(settings, schedule="constant"))
    assert jax.tree.structure(job.start()[0].optimiser) == jax.tree.structure(now.start()[0].optimiser)


def test_starts_that_cannot_be_are_refused_before_anything_is_written(tmp_path):
    for words, message in {
        ("--initial", "chrono"): "needs a time scale",
        ("--initial", "chrono:1"): "must be finite above 2",
        ("--initial", "zeros"): 'initial="zeros" is unknown',
        ("--cell", "rnn", "--initial", "chrono:9"): 'role "keep", and RNN has none',
        ("--schedule", "cosin"): 'Did you mean "cosine"?',
    }.items():
        assert message in refused("train", "copy", *WORDS, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def rates(schedule, steps, stride=1):
    """That of every update, found by plain gradient descent on a slope of 1."""
    settings = resolve("copy", TINY | {"schedule": schedule, "steps": steps, "learning_rate": 0.5, "optimiser": "sgd"})
    optimiser = make_optimiser(settings, stride)
    state, found = optimiser.init(jnp.zeros(())), []
    for _ in range(-(-steps // stride)):
        update, state = optimiser.update(jnp.ones(()), state)
        found.append(-float(update))
    return np.array(found)


def test_schedules_go_over_the_whole_run():
    t = np.arange(40) / 40
    expected = {"constant": np.full(40, 0.5), "linear": 0.5 * (1 - t), "cosine": 0.25 * (1 + np.cos(np.pi * t))}
    for schedule, values in expected.items():
        np.testing.assert_allclose(rates(schedule, 40), values, atol=1e-6)
    warmed = rates("warmup-cosine", 40)
    np.testing.assert_allclose(warmed[:3], [0, 0.25, 0.5], atol=1e-6)  # a twentieth of the updates
    assert (np.diff(warmed[2:]) < 0).all()
    assert set(expected) | {"warmup-cosine"} == set(SCHEDULES)
    np.testing.assert_allclose(rates("linear", 40, stride=4), 0.5 * (1 - np.arange(10) / 10), atol=1e-6)


def interrupted(run, step):
    """As a process that died after a checkpoint would have left it."""
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name.isdigit() and int(checkpoint.name) > step:
            shutil.rmtree(checkpoint)


def test_a_scheduled_run_is_resumed_exactly(tmp_path):
    words = ("train", "cue", *WORDS, "--gap", 4, "--schedule", "cosine", "--steps", 60, "--checkpoint-every", 20)
    succeed(*words, "--out", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    interrupted(tmp_path / "cut", 40)
    succeed("resume", tmp_path / "cut")
    assert_same_result(tmp_path / "cut", tmp_path / "whole")


def test_a_run_from_before_is_resumed_with_what_it_was_made_with(tmp_path):
    """Its settings say nothing of how weights start or rates go on: then it was N(0, 0.01²) and constant."""
    words = ("train", "copy", *WORDS, "--initial", "normal", "--learning-rate", 10**-3.5, "--steps", 60)
    succeed(*words, "--checkpoint-every", 20, "--out", tmp_path / "whole")
    for step in (40, 0):
        old = shutil.copytree(tmp_path / "whole", tmp_path / f"old{step}")
        for name in ("initial", "schedule", "gap", "gap_to", "resets", "layers", "depth"):
            change_settings(old, lambda document, name=name: document["settings"].pop(name))
        as_older_versions_did(old)
        assert open_run(old).settings.initial is None
        interrupted(old, step)
        succeed("resume", old)
        assert_same_result(old, tmp_path / "whole")


def test_the_paper_keeps_its_start_its_rate_and_its_runs(tmp_path):
    plan = Plan("desk", tmp_path)
    runs = {name: [run for line in experiment(name).lines(plan) for run in line.runs()] for name in ("fig1", "fig2")}
    assert runs["fig1"][0].id == "copy-n128-b16-ok-r16-w16-msampling-s0-1ff90a"  # as before there was --initial
    assert runs["fig2"][0].id == "text-n256-b32-ok-r8-w16-msampling-s0-a7e571"
    for run in (*runs["fig1"], *runs["fig2"]):
        words = " ".join(run.arguments())
        assert "--initial normal" in words
        assert "--schedule constant" in words
        assert "--learning-rate" in words


def job_at(task, **given):
    return make_job(resolve(task, TINY | given))


def test_what_has_not_been_left_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("aaab" * 100)
    text = job_at("text", data=str(tmp_path / "text.txt"))
    unigram = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert text.task.unigram == pytest.approx(unigram, abs=0.01)
    for job, idle, learned in (
        (text, {"loss": 0.99 * unigram}, {"loss": 0.9 * unigram}),
        (job_at("copy"), {"length": 1}, {"length": 2}),
        (job_at("cue", gap=4), {"wrong": 0.45}, {"wrong": 0.3}),
    ):
        said = standstill.warning(job.task, job.settings, {"step": 5000, **idle})
        assert said.startswith("note: after 5,000 steps ")
        assert "--learning-rate (now 0.003)" in said
        assert "a longer --horizon (now 3)" in said
        assert standstill.warning(job.task, job.settings, {"step": 5000, **learned}) is None


def test_it_is_said_once_and_not_again_when_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(standstill, "PATIENCE", 30)
    run = tmp_path / "run"
    said = succeed(
        "train", "copy", *WORDS, "--learning-rate", 1e-9, "--steps", 80, "--checkpoint-every", 40, "--out", run
    )
    assert said.count("the strings still have the first length, 1. Try a higher --learning-rate") == 1
    assert "step 40/80" in said.partition("note:")[0].replace(",", "")
    interrupted(run, 40)
    assert "note:" not in succeed("resume", run)
