"""The loop: cut anywhere without a trace, and honest about divergence."""

import dataclasses
import functools
import io
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from evergrad._training import loop as loops
from evergrad._training.build import make_job
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.display import Display
from evergrad._training.divergence import Diverged, gradient_norm, influence_norm, without_influence
from evergrad._training.folder import create
from evergrad._training.loop import Loop, begin
from evergrad._training.metrics import Metrics
from evergrad._training.reports import rows
from evergrad._training.resolve import resolve
from evergrad._training.signals import Stop
from tests.training_helpers import as_on_the_command_line  # noqa: F401

ESTIMATORS = {
    "ok": {"estimator": "ok", "rank": 2, "window": 3},
    "ktp": {"estimator": "ktp", "rank": 2},
    "tbptt": {"estimator": "tbptt", "horizon": 4},
}


@functools.cache
def compiled(estimator):
    """One job an estimator, so that its loop is compiled once."""
    given = {"units": 5, "batch": 2, "steps": 60, "report": 20} | ESTIMATORS[estimator]
    return make_job(resolve("copy", given))


def job_of(estimator, **changes):
    job = compiled(estimator)
    return dataclasses.replace(job, settings=dataclasses.replace(job.settings, **changes))


def run(job, folder_path, progress=None):
    """The whole run, and what was shown."""
    folder = create(folder_path, job.settings, {}, None)
    shown = io.StringIO()
    display = Display(Console(file=shown, width=300), job.task, job.learner.estimator, "bits")
    checkpoints, metrics = Checkpoints(folder.checkpoints), Metrics(folder, 0)
    made = Loop(job, progress or begin(job), checkpoints, metrics, display, Stop())
    try:
        made.run()
    finally:
        metrics.close()
        checkpoints.close()
    return made.progress, rows(folder.metrics), shown.getvalue()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_how_a_run_is_cut_into_calls_changes_no_bit_of_it(tmp_path, monkeypatch, estimator):
    job = job_of(estimator)
    results = []
    for name, lengths in (("whole", [20]), ("cut", [7, 1, 11, 2])):
        turn = iter(lengths * 100)
        monkeypatch.setattr(loops.Pace, "took", lambda self, *_, turn=turn: setattr(self, "length", next(turn)))
        results.append(run(job, tmp_path / name)[:2])
    (whole, whole_rows), (cut, cut_rows) = results
    assert whole_rows == cut_rows
    assert [row["step"] for row in whole_rows] == [20, 40, 60]
    assert eqx.tree_equal(whole.arrays(), cut.arrays())


def poisoned(job):
    """A run, five steps old, whose influence is so large that the next update ruins the weights."""
    progress = begin(job)
    progress.state, progress.position, losses = job.learner.follow(
        progress.state, job.task.source, progress.position, 5, room=job.settings.report
    )
    progress.step, progress.loss_steps, progress.loss_sum = 5, 5, float(losses.mean(axis=1).sum())
    carried = jax.tree.map(lambda a: jnp.full_like(a, 1e19), progress.state.track.carried)
    progress.state = eqx.tree_at(lambda s: s.track.carried, progress.state, carried)
    return progress


def test_non_finite_weights_stop_the_run_and_say_what_is_known(tmp_path):
    job = job_of("ktp")
    with pytest.raises(Diverged, match=r"the weights became non-finite at step 5 with KTP\(rank=2") as stopped:
        run(job, tmp_path / "run", poisoned(job))
    for part in ("norms: influence", "gradient", "--learning-rate", "reset-influence"):
        assert part in str(stopped.value)
    assert Checkpoints(tmp_path / "run" / "checkpoints", read_only=True).steps() == []


def test_an_exploding_loss_stops_the_run_at_the_report(tmp_path, monkeypatch):
    job = job_of("ktp")
    monkeypatch.setattr(job.task, "explosive", 1.0)
    with pytest.raises(Diverged, match=r"the loss exploded to [12](\.\d+)? bits/symbol at step 20 with KTP"):
        run(job, tmp_path / "run")


def test_reset_influence_goes_on_from_the_last_report_and_is_counted(tmp_path):
    job = job_of("ktp", on_divergence="reset-influence")
    progress, found, shown = run(job, tmp_path / "run", poisoned(job))
    assert progress.step == 60
    assert [row["influence_resets"] for row in found] == [1, 1, 1]
    assert "on from step 0 with zero influence (reset number 1)" in shown
    clean, clean_rows, _ = run(job_of("ktp"), tmp_path / "clean")
    assert [row["loss"] for row in found] == [row["loss"] for row in clean_rows]
    assert eqx.tree_equal(progress.state, clean.state)


def test_reset_influence_gives_up_if_that_does_not_help(tmp_path, monkeypatch):
    job = job_of("ktp", on_divergence="reset-influence")
    monkeypatch.setattr(job.task, "explosive", 1.0)
    with pytest.raises(Diverged, match="again, with the influence just reset, at step 20"):
        run(job, tmp_path / "run")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_influence_is_the_beginning_with_other_weights(estimator):
    job = job_of(estimator)
    state, position = job.start()
    fresh = jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, state)
    state, _, _ = job.learner.follow(state, job.task.source, position, 7, room=job.settings.report)
    cleared = without_influence(job.learner, state)
    assert influence_norm(cleared) == 0
    assert eqx.tree_equal(cleared.track, fresh.track)
    assert eqx.tree_equal(cleared.model, state.model)


def test_the_gradient_norm_is_that_of_the_next_gradient():
    job = job_of("tbptt")
    state, position = job.start()
    source, model = job.task.source, jax.tree.map(jnp.array, state.model)
    probe = jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, position)
    xs, ys, resets = [], [], []
    for _ in range(4):
        data, probe = source.emit(probe)
        xs, ys, resets = [*xs, data.x], [*ys, data.y], [*resets, data.reset]

    def loss(m):
        return m.losses(jnp.stack(xs), jnp.stack(ys), jnp.stack(resets)).mean(axis=1).sum()

    gradient = eqx.filter_grad(loss)(model)
    expected = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(gradient)))
    assert gradient_norm(job.learner, state, source, position) == pytest.approx(expected / 4, rel=1e-5)


def test_reports_have_what_was_promised(tmp_path):
    _, found, shown = run(job_of("ok"), tmp_path / "run")
    assert {"step", "loss", "length"} <= found[0].keys()
    assert found[0]["length"] == 1
    assert 0.5 < found[0]["loss"] < 2.5
    assert "step 20/60" in shown
    assert "steps/s" in shown
    assert "length 1" in shown
    assert "MiB" in shown
    speed = [json.loads(line) for line in (tmp_path / "run" / "speed.jsonl").read_text().splitlines()]
    assert [row["step"] for row in speed] == [20, 40, 60]


def test_on_a_terminal_there_is_a_bar(tmp_path):
    job = job_of("ok")
    shown = io.StringIO()
    display = Display(Console(file=shown, force_terminal=True, width=160), job.task, job.learner.estimator, "bits")
    display.start(0, 60)
    display.moved(30, 123.0, 1.5, {"length": 4})
    display.stop()
    for part in ("30/60", "123 steps/s", "loss 1.5 bits", "length 4", "OK(rank=2", "MiB", "cpu"):
        assert part in shown.getvalue(), part


def test_settings_are_data_only():
    settings = job_of("ok").settings
    assert json.loads(json.dumps(dataclasses.asdict(settings))) == dataclasses.asdict(settings)
