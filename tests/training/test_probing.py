"""`--probe`: the figures of a report are those of exact gradients, and the run is none the wiser."""

import json

import jax
import numpy as np
import pytest

import evergrad as eg
from evergrad._training import probing
from evergrad._training.build import make_job
from evergrad._training.reports import rows
from evergrad._training.resolve import resolve
from evergrad.lab.noise import measure
from tests.training_helpers import COPY_OK, TINY, as_on_the_command_line, evergrad, succeed  # noqa: F401

STEPS = ("--steps", "60", "--report", "10")


def reports(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_figures_are_those_of_exact_gradients():
    """Within four standard errors, and not those of another estimator, of which the same cannot be said."""
    settings = {"units": 8, "batch": 2, "length": 4, "estimator": "tbptt", "horizon": 2, "stride": 1, "probe": 1}
    job = make_job(resolve("copy", settings | {"probe_directions": 2_000, "probe_steps": 40}))
    _, position = job.start()
    model = jax.tree.map(lambda a: 3 * a, job.learner.model)
    found = probing.probed(job, model, position, 0)
    data = probing.emitted(job.source, position, 40)
    exact = {}
    for horizon in (2, 1):
        estimator = eg.TBPTT(horizon=horizon, stride=1)
        noise = measure(model, {"it": estimator}, data, repetitions=2, key=jax.random.key(0))["it"]
        exact[horizon] = float(noise.errors.mean(0).sum() / noise.truth.sum())
    assert abs(found["probe_error"] - exact[2]) < 4 * found["probe_error_se"]
    assert abs(found["probe_error"] - exact[1]) > 4 * found["probe_error_se"]
    assert 0 < found["probe_cosine"] < 1


def test_a_run_that_is_probed_learns_the_same(tmp_path):
    """Reports are the same but for the figures, which are made at the first report and at every multiple."""
    alone, probed = tmp_path / "alone", tmp_path / "probed"
    succeed("train", *COPY_OK, *STEPS, "--out", alone)
    said = succeed("train", *COPY_OK, *STEPS, "--probe", "25", "--probe-directions", "4", "--out", probed)
    assert "cosine " in said
    old, new = reports(alone), reports(probed)
    for a, b in zip(old, new, strict=True):
        assert {k: v for k, v in a.items() if k != "checksum"}.items() <= b.items()
    cosines = {row["step"]: row["probe_cosine"] for row in new if "probe_cosine" in row}
    assert [*cosines] == [10, 30, 50]
    assert len({*cosines.values()}) == 3
    assert rows(probed / "metrics.jsonl")


def test_where_there_is_no_target_nothing_is_said():
    """An episode of the cue task asks after 200 steps at the earliest; a probe of 20 sees no question."""
    job = make_job(resolve("cue", {"units": 4, "batch": 2, "gap": 200, "gap_to": 201, "probe": 1, "probe_steps": 20}))
    _, position = job.start()
    weights = probing.emitted(job.source, position, 20).weight
    found = probing.probed(job, job.learner.model, position, 0)
    assert not np.asarray(weights).any()
    assert set(found.values()) == {None}
    assert probing.in_words(found) == []


def test_a_series_is_not_read_beyond_its_end(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("a\n" + "\n".join(str(value) for value in np.sin(np.arange(60))))
    job = make_job(
        resolve("series", {"data": str(path), "estimator": "snap1", "batch": 1, "probe": 1, "probe_steps": 20})
    )
    rows_there = job.task.steps
    assert probing.has_room(job, rows_there - 20)
    assert not probing.has_room(job, rows_there - 19)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--estimator", "tbptt", "--horizon", "4", "--probe", "10"), "later than their losses"),
        (("--probe-steps", "10"), "about --probe"),
        (("--probe", "0"), "must be 1 or more"),
        (("--probe", "10", "--probe-directions", "1"), "must be 2 or more"),
    ],
)
def test_what_cannot_be_probed_is_refused(tmp_path, given, words):
    done = evergrad("train", "copy", *TINY, *STEPS, *given, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "run").exists()
