"""Divergence is noticed wherever it is met, the last update of a run included: exit code 3, and nothing is exported."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._core.sources import Data, Sequence
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.folder import open_run
from evergrad._training.run import load
from evergrad.export import export_onnx, export_safetensors
from tests.helpers import make_data, make_model
from tests.training_helpers import as_on_the_command_line  # noqa: F401

WORDS = ("--cell", "rnn", "--units", "2", "--batch", "2", "--estimator", "tbptt", "--horizon", "1", "--report", "20")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def diverged(*words):
    done = call(*words)
    assert done.exit_code == 3, f"{done.output} {done.exception!r}"
    assert "NaN" not in done.stdout
    return done.stderr


@pytest.fixture
def book(tmp_path):
    (tmp_path / "book.txt").write_text("the sea and the sand\n" * 40)
    return tmp_path / "book.txt"


@pytest.mark.parametrize("estimator", [eg.RTRL(), eg.TBPTT(horizon=3, stride=3)], ids=repr)
def test_the_last_update_is_looked_at(estimator):
    """The loss of the last step was fine, and the weights after it are not."""
    learner = eg.Learner(make_model("rhn"), estimator, optax.sgd(float("inf")))
    xs, ys, resets = make_data(estimator.past.stride)

    def start():
        return learner.init(batch=2, key=jax.random.key(0))

    message = rf"the weights became non-finite at step {estimator.past.stride - 1} with {type(estimator).__name__}"
    with pytest.raises(eg.DivergedError, match=message) as error:
        learner.run(start(), xs, ys, resets)
    assert np.isfinite(error.value.losses).all()
    source = Sequence(Data(jnp.asarray(xs), jnp.asarray(ys), jnp.asarray(resets), jnp.ones(xs.shape)))
    with pytest.raises(eg.DivergedError, match=message):
        learner.follow(start(), source, jnp.zeros((), jnp.int32), estimator.past.stride)
    if estimator.past.stride == 1:
        with pytest.raises(eg.DivergedError, match=message):
            learner.step(start(), xs[0], ys[0], resets[0])


@pytest.mark.parametrize("way", ["stop", "reset-influence"])
def test_a_run_whose_last_update_diverges_ends_with_3_and_leaves_no_checkpoint_of_it(book, way, tmp_path):
    run = tmp_path / "run"
    words = ("--data", book, "--steps", 1, "--learning-rate", "inf", "--on-divergence", way, "--out", run)
    said = diverged("train", "text", *WORDS, *words)
    assert "the weights became non-finite" in said
    assert "at step 0 with TBPTT" in said
    assert "--learning-rate" in said
    assert not list((run / "checkpoints").glob("*"))


def spoilt(book, run, values):
    """A run of before, whose last checkpoint has such weights in it."""
    done = call("train", "text", *WORDS, "--data", book, "--steps", 20, "--out", run)
    assert done.exit_code == 0, done.output
    _, progress = load(open_run(run))
    bias = progress.state.model.readout.bias.at[:2].set(jnp.asarray(values))
    progress.state = eqx.tree_at(lambda s: s.model.readout.bias, progress.state, bias)
    progress.step = 40
    checkpoints = Checkpoints(run / "checkpoints")
    checkpoints.save(40, progress.arrays(), progress.notes())
    checkpoints.wait()
    checkpoints.close()


def test_a_checkpoint_that_has_diverged_is_of_no_use_to_any_command(book, tmp_path):
    run, model = tmp_path / "run", tmp_path / "model"
    spoilt(book, run, [np.nan, 0])
    for words in (
        ("resume", run, "--steps", 40),
        ("resume", run, "--steps", 60),
        ("evaluate", run),
        ("evaluate", run, "--data", book),
        ("sample", run),
        ("export", run, "--format", "safetensors", "--out", model),
        ("export", run, "--format", "onnx", "--out", model),
    ):
        assert "checkpoint at step 40 are not all finite" in diverged(*words)
    assert not model.exists()


def test_figures_that_are_no_numbers_are_divergence_too(book, tmp_path):
    """Weights that are finite still, and a loss that is not."""
    run = tmp_path / "run"
    spoilt(book, run, [3e38, -3e38])
    assert "valid_bpc is" in diverged("evaluate", run)


@pytest.mark.parametrize("part", ["cell", "readout"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_that_is_no_number_is_exported(part, value, tmp_path):
    model = eg.Model(eg.GRU(3, 4, key=jax.random.key(0)), eg.Linear(4, 2, key=jax.random.key(1)))
    weight = getattr(model, part).weight.at[0, 0].set(value)
    model = eqx.tree_at(lambda m: getattr(m, part).weight, model, weight)
    for export in (export_onnx, export_safetensors):
        with pytest.raises(eg.InputError, match=r"NaN or infinite.*Train anew"):
            export(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
