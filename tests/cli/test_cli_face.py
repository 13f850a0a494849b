"""What the command line says of itself: the version, defaults as values, one task at a time; reached and set."""

import dataclasses
import inspect
import json
import shutil

import equinox as eqx
import jax
import numpy as np
import pytest

import evergrad
import evergrad as eg
from evergrad._registry import ESTIMATORS, defaults_in_words
from evergrad._training import evaluation
from evergrad._training.folder import open_run
from evergrad._training.resolve import resolve
from evergrad._training.settings import TASKS, fields, otherwise, text
from evergrad._training.tasks import make_task
from tests.tiny_run import call, finished, succeed  # noqa: F401
from tests.training_helpers import TEXT_KTP, as_on_the_command_line  # noqa: F401


def test_the_version():
    assert succeed("--version").strip() == f"evergrad {evergrad.__version__}"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_defaults_in_the_registry_are_those_of_the_constructors(name):
    entry = ESTIMATORS[name]
    made = inspect.signature(entry.load()).parameters
    assert tuple(made[p].default for p in entry.parameters) == entry.defaults


def test_defaults_are_values():
    assert defaults_in_words("rank") == "8 (ok); 16 (ktp)"
    assert defaults_in_words("window") == "16 (ok); 8 (dni); else 0"
    assert defaults_in_words("stride") == "the horizon"
    said = succeed("train", "copy", "--help")
    assert "estimator's own" not in said
    assert "the task's" not in said


@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("text", "series")])
def test_the_readout_that_is_shown_is_the_tasks(task):
    made = make_task(resolve(task, {})).readout(3, jax.random.key(0))
    assert otherwise(fields(task)["readout"], task) == type(made).__name__.lower()


def test_help_of_one_task_does_not_speak_of_another():
    about = {task: text(fields(task)["data"], task) for task in ("text", "series")}
    assert "CSV" not in about["text"]
    assert "txt" not in about["series"]


def test_help_breaks_its_lines_where_the_terminal_ends():
    """A paragraph of the source is a line, however long: 200 columns, where the source has 120."""
    said = [line.strip() for line in succeed("evaluate", "--help").splitlines()]
    (line,) = [line for line in said if line.startswith("copy: bits per symbol")]
    assert "text: bits" in line


def test_evaluate_of_copy_has_strings_of_the_length_reached_only(finished, monkeypatch):  # noqa: F811
    made, frozen = [], evaluation._frozen
    monkeypatch.setattr(
        evaluation, "_frozen", lambda model, task, *rest, **how: made.append(task) or frozen(model, task, *rest, **how)
    )
    found = evaluation.evaluate(open_run(finished), None, steps=40)
    (task,) = made
    assert (task.source.length, task.source.longest, task.source.jitter) == (found["length"], found["length"], 1)
    _, position = task.source.emit(task.source.start(batch=50, key=jax.random.key(0)))
    assert {int(own) for own in np.asarray(position.own)} == {found["length"]}


def test_info_tells_reached_from_set(finished):  # noqa: F811
    said = succeed("info", finished)
    reached, settings = said.split("when the run was made")
    assert "at step 30" in reached
    assert "running_bits" in reached
    assert "threshold" not in reached
    assert "threshold" in settings


def test_info_says_at_which_step_a_validation_was(tmp_path):
    run = tmp_path / "run"
    succeed("train", *TEXT_KTP, "--steps", 40, "--report", 10, "--valid-every", 30, "--out", run)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert b"valid_bpc" in lines[-1]
    said = succeed("info", run).split("when the run was made")[0]
    assert "(at step" not in said
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:2]))  # the first report is validated, the second is not
    said = succeed("info", run).split("when the run was made")[0]
    assert "at step 20" in said
    assert [line for line in said.splitlines() if "valid_bpc" in line and "(at step 10)" in line]
    assert said.count("(at step") == 1


def test_to_open_a_run_is_no_reason_for_a_warning(finished, caplog):  # noqa: F811
    with caplog.at_level("WARNING", logger="absl"):
        eg.open_run(finished)
    assert caplog.text == ""


def test_open_run_goes_on_as_the_run_would(finished, tmp_path):  # noqa: F811
    learner, state, task = eg.open_run(finished)
    assert int(state.time) == 30
    after, _ = learner.fit(state, task.source, 10, position=task.position)
    shutil.copytree(finished, tmp_path / "run")
    succeed("resume", tmp_path / "run", "--steps", 40)
    assert eqx.tree_equal(after, eg.open_run(tmp_path / "run")[1])
    with pytest.raises(eg.InputError, match="there is no folder"):
        eg.open_run(tmp_path / "none")


def test_lab_noise_says_what_an_untrained_network_shows_and_how_far_it_is(tmp_path):
    done = call(
        *(
            "lab",
            "noise",
            "--units",
            3,
            "--steps",
            6,
            "--repetitions",
            2,
            "--estimator",
            "uoro",
            "--out",
            tmp_path / "n",
        )
    )
    assert done.exit_code == 0, done.output
    assert "has not been trained" in done.stdout
    assert "uoro: 6 of 6 steps" in done.stderr
    assert json.loads((tmp_path / "n" / "noise.json").read_text())["product"] == "evergrad"


def test_lengths_have_an_axis_of_whole_numbers(finished, monkeypatch):  # noqa: F811
    from evergrad._training import plots

    seen = []
    monkeypatch.setattr(plots, "save", lambda figure, path: seen.append(figure.axes[1].get_yticks()))
    plots.plot_run(dataclasses.replace(open_run(finished)))
    assert all(float(tick).is_integer() for tick in seen[0])
