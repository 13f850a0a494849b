"""Out to ONNX and PyTorch's layout and in again, by the command line."""

import numpy as np
import pytest

from evergrad._training.folder import open_run
from evergrad._training.run import load
from evergrad.export import read_model
from tests.training_helpers import (
    TINY,
    as_on_the_command_line,  # noqa: F401
    evergrad,
    reports,
    succeed,
    write_series,
)

STEPS = ("--steps", 60, "--report", 30)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An LSTM that has seen a wave, and the wave."""
    place = tmp_path_factory.mktemp("export")
    data = write_series(place / "wave.csv")
    succeed("train", "series", *TINY, "--cell", "lstm", "--rank", 2, "--data", data, *STEPS, "--out", place / "run")
    return place / "run", data


def weights(run):
    model = load(open_run(run))[1].state.model
    return [np.asarray(a) for a in (model.cell.weight, model.readout.weight, model.readout.bias)]


@pytest.mark.slow  # one of its steps is among the examples of tests/cli/test_cli_commands.py
@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_a_model_goes_out_and_comes_in_to_learn_on(trained, kind, tmp_path):
    run, data = trained
    file = tmp_path / f"model.{kind}"
    assert str(file) in succeed("export", run, "--format", kind, "--out", file)
    exported = read_model(file)
    np.testing.assert_allclose(np.asarray(exported.cell.weight), weights(run)[0], atol=1e-6)

    still, moving = tmp_path / "still", tmp_path / "moving"
    given = ("import", "series", file, "--batch", 2, "--rank", 2, "--data", data, *STEPS)
    succeed(*given, "--learning-rate", 1e-12, "--out", still)
    for ours, theirs in zip(weights(still), weights(run), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    succeed(*given, "--out", moving)
    assert np.abs(weights(moving)[0] - weights(run)[0]).max() > 1e-3
    assert [row["step"] for row in reports(moving)] == [30, 60]
    file.unlink()
    succeed("resume", moving, "--steps", 90)  # the file is not needed any more


def refused(*arguments):
    done = evergrad(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_does_not_fit_is_refused(trained, tmp_path):
    run, data = trained
    file, out = tmp_path / "model.safetensors", tmp_path / "new"
    succeed("export", run, "--format", "safetensors", "--out", file)
    given = ("--data", data, *STEPS, "--out", out)
    assert "reads 2 numbers and predicts 2" in refused("import", "series", file, "--columns", "c0", *given)
    assert "leave --units out" in refused("train", "series", "--weights", file, "--units", 7, *given)
    assert ".onnx or a .safetensors" in refused("import", "series", tmp_path / "model.pt", *given)
    assert "is not a file" in refused("import", "series", tmp_path / "none.onnx", *given)
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:100])
    assert "cut short" in refused("import", "series", tmp_path / "cut.safetensors", *given)
    assert not out.exists()
