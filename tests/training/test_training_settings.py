"""Where settings come from, and what is refused."""

import dataclasses

import pytest

import evergrad as eg
from evergrad._registry import CELLS, ESTIMATORS
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve
from evergrad._training.settings import Settings, fields, text
from tests.training_helpers import as_on_the_command_line  # noqa: F401


def config(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_text(content)
    return path


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = config(tmp_path, 'units = 24\nlearning-rate = 1\nestimator = "ktp"\ntask = "copy"\n')
    settings = resolve("copy", {"units": 12, "steps": None}, path)
    assert (settings.units, settings.learning_rate, settings.estimator, settings.steps) == (12, 1.0, "ktp", 10_000)


def test_defaults_differ_from_task_to_task_and_foreign_options_are_none():
    assert resolve("copy", {}).batch == 16
    assert resolve("text", {}).batch == 32
    assert resolve("copy", {}).reset_probability is None
    assert resolve("text", {"reset_every": 100}).reset_probability == 0
    assert resolve("text", {"reset_every": 100, "reset_probability": 0.1}).reset_probability == 0.1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("unitz = 3", 'setting in .*run.toml "unitz" is unknown.*Did you mean "units"'),
        ("units = 3.5", "units is 3.5, but must be a whole number"),
        ("units = true", "must be a whole number"),
        ('cell = "lstn"', 'Did you mean "lstm"'),
        ("steps = -4", "steps is -4, but must be 1 or more"),
        ("units = ", "is no TOML"),
        ('task = "text"', "is for the task 'text'"),
        ("length = 3\nahead = 2", '"ahead" is unknown'),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    with pytest.raises(eg.InputError, match=message):
        resolve("copy", {}, config(tmp_path, content))


def test_a_parameter_of_another_estimator_is_refused():
    with pytest.raises(
        eg.InputError, match=r"--rank means nothing to tbptt, which has --horizon, --stride; it belongs to ok"
    ):
        resolve("copy", {"estimator": "tbptt", "rank": 3})


def test_what_was_left_to_the_estimator_is_spelt_out():
    settings = make_job(resolve("copy", {"units": 20})).settings
    assert (settings.rank, settings.window, settings.mix, settings.horizon) == (8, 16, "sampling", None)
    settings = make_job(resolve("copy", {"units": 8, "estimator": "tbptt", "horizon": 7})).settings
    assert (settings.horizon, settings.stride, settings.window) == (7, 7, None)


CELL_FOR = {"rflo": "leaky", "kernl": "rnn"}  # estimators that are for some cells only
PAIRS = [(CELL_FOR.get(estimator, "gru"), estimator) for estimator in ESTIMATORS] + [(cell, "rtrl") for cell in CELLS]


@pytest.mark.parametrize(("cell", "estimator"), PAIRS)
def test_every_name_makes_something(cell, estimator):
    sizes = {"ok": {"rank": 2}, "ktp": {"rank": 2}, "snap": {"order": 1}}.get(estimator, {})
    job = make_job(resolve("copy", {"units": 4, "cell": cell, "estimator": estimator, **sizes}))
    assert type(job.learner.model.cell) is CELLS[cell].load()
    assert type(job.learner.estimator) is ESTIMATORS[estimator].load()


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd", "momentum", "rmsprop"])
def test_every_optimiser_makes_a_state(optimiser):
    job = make_job(resolve("copy", {"units": 4, "estimator": "tbptt", "optimiser": optimiser, "batch": 2}))
    assert job.start()[0].model.cell.units == 4


def test_every_option_has_help_and_a_kind():
    for field in dataclasses.fields(Settings):
        if field.name != "task":
            assert all(text(field, task).endswith(".") for task in field.metadata["tasks"])
            assert field.metadata["kind"] in (int, float, str, bool)
    assert {"length", "threshold", "jitter"} <= {*fields("copy")}
