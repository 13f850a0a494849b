"""A run with any estimator leaves a checkpoint that it can go on from."""

import equinox as eqx
import jax
import pytest

from evergrad._registry import ESTIMATORS
from evergrad._training.build import make_job
from evergrad._training.loop import begin
from evergrad._training.resolve import resolve
from tests.helpers import crossed
from tests.training_helpers import TINY, as_on_the_command_line, succeed  # noqa: F401

CELL_FOR = {"rflo": "leaky", "kernl": "rnn"}
SIZES = {"ok": {"rank": 2}, "ktp": {"rank": 2}, "snap": {"order": 1}}
PAIRS = [(CELL_FOR.get(estimator, "gru"), estimator) for estimator in ESTIMATORS] + [
    ("mingru", "rtrl"),
    ("lru", "rtrl"),
]


@pytest.mark.parametrize(("cell", "estimator"), PAIRS)
def test_nothing_of_its_state_is_empty(cell, estimator):
    """Orbax refuses an array without numbers."""
    given = {"units": 4, "batch": 2, "cell": cell, "estimator": estimator}
    arrays = begin(make_job(resolve("copy", given | SIZES.get(estimator, {})))).arrays()
    assert all(leaf.size for leaf in jax.tree.leaves(eqx.filter(arrays, eqx.is_array)))


@pytest.mark.parametrize(
    ("cell", "estimator"), crossed([("rnn", "snap1"), ("mingru", "rtrl")], lambda *pair: pair[0] == "rnn")
)
def test_a_run_is_resumed(cell, estimator, tmp_path):
    words = ["--cell", cell, "--estimator", estimator, *TINY, "--report", "10"]
    succeed("train", "copy", *words, "--steps", "20", "--out", tmp_path / "run")
    assert "done: 30 steps" in succeed("resume", tmp_path / "run", "--steps", "30")
