"""A run so small that its commands can be called in this process, again and again."""

import pytest
from typer.testing import CliRunner

from evergrad._cli import app
from tests.training_helpers import command_line_config

TINY = ("copy", "--cell", "rnn", "--units", 2, "--batch", 1, "--estimator", "tbptt", "--horizon", 2)
STEPS = ("--steps", 30, "--report", 10, "--checkpoint-every", 10)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def succeed(*words) -> str:
    done = call(*words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout


def refused(*words) -> str:
    done = call(*words)
    assert done.exit_code == 2, f"{done.output} {done.exception!r}"
    assert isinstance(done.exception, SystemExit)
    return done.stderr


def contents(folder) -> dict:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """With the checkpoints 10, 20 and 30."""
    run = tmp_path_factory.mktemp("finished") / "run"
    with command_line_config():
        succeed("train", *TINY, *STEPS, "--out", run)
    return run
