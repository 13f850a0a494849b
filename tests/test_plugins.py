"""A package of somebody else's adds a cell, an estimator and a readout, and finds them at every door."""

import json
import subprocess
import sys
import textwrap

import pytest

from tests.training_helpers import ROOT, environment

ENTRIES = """
from evergrad.extend import PARAMETERS, Parameter, register

register("cell", "halving", "theirs.parts:Halving")
register("readout", "tempered", "theirs.parts:Tempered")
register("estimator", "fading", "theirs.parts:Fading", window=PARAMETERS["window"],
         fade=Parameter(float, "What is left of the influence after a step", above=0))
"""

PARTS = """
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

import evergrad as eg
from evergrad.extend import Cost, Influence, Window


class Halving(eg.KroneckerCell):
    def activate(self, z, state):
        return (0.5 * state[0] + 0.5 * jnp.tanh(z[0]),)


class Tempered(eg.Readout):
    units: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    targets: ClassVar[str] = "classes"
    weight: jax.Array
    bias: jax.Array

    def __init__(self, units, classes, *, key=None, initial="normal"):
        made = eg.Softmax(units, classes, key=key, initial=initial)
        self.units, self.classes, self.weight, self.bias = units, classes, made.weight, made.bias

    def predict(self, z):
        return jax.nn.softmax(0.5 * z)

    def loss(self, z, y):
        return -jax.nn.log_softmax(0.5 * z)[y]

    def check(self, y, lead, weights):
        eg.Softmax(self.units, self.classes, key=jax.random.key(0)).check(y, lead, weights)


class Fading(eg.Estimator):
    fade: float = eqx.field(static=True)
    window: int = eqx.field(static=True)
    recommended: ClassVar[str] = "somebody wanted it."

    def __init__(self, *, fade=0.9, window=0):
        self.fade, self.window = fade, window

    @property
    def past(self):
        return Window(self.window)

    @property
    def influence(self):
        return Faded(self.fade)


class Faded(Influence):
    fade: float = eqx.field(static=True)
    unbiased: ClassVar[bool] = False

    def init(self, cell):
        return eg.RTRL().influence.init(cell)

    def absorb(self, carried, cells, memories, key):
        faded = jax.tree.map(lambda a: self.fade * a, carried)
        return eg.RTRL().influence.absorb(faded, cells, memories, key)

    def contract(self, carried, cell, delta):
        return eg.RTRL().influence.contract(carried, cell, delta)

    def materialise(self, carried, cell):
        return eg.RTRL().influence.materialise(carried, cell)

    def cost(self, sizes, block):
        return Cost(touched=sizes.m * sizes.parameters)
"""

RIVER = """
import sys

import evergrad as eg
from evergrad.river import OnlineRNNRegressor
from theirs.parts import Fading

model = OnlineRNNRegressor(units=3, cell="halving", estimator=Fading(fade=0.8), seed=0)
for t in range(12):
    model.learn_one({"a": t % 3}, float(t % 3))
model.save(sys.argv[1])
again = OnlineRNNRegressor.load(sys.argv[1])
assert again.estimator == Fading(fade=0.8), again.estimator
assert again.predict_one({"a": 1}) == model.predict_one({"a": 1})
print("river and saving know it")
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """An installed distribution: a package and what pip would have written of its entry points."""
    site = tmp_path_factory.mktemp("site")
    (site / "theirs").mkdir()
    (site / "theirs" / "__init__.py").touch()
    (site / "theirs" / "entries.py").write_text(textwrap.dedent(ENTRIES))
    (site / "theirs" / "parts.py").write_text(textwrap.dedent(PARTS))
    about = site / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[evergrad]\ntheirs = theirs.entries\n")
    return site


def python(site, *words):
    env = environment() | {"PYTHONPATH": f"{site}:{ROOT}"}
    found = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=env, timeout=300)
    assert found.returncode == 0, found.stderr
    return found.stdout


def evergrad(site, *words):
    return python(site, "-m", "evergrad", *words)


COMMANDS = """
import json
import sys

from typer.testing import CliRunner

from evergrad._cli import app

for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    print(json.dumps(done.stdout))
"""


def commands(site, *lines):
    """What each says, one after the other in one process."""
    words = json.dumps([[*map(str, line)] for line in lines])
    return [json.loads(line) for line in python(site, "-c", COMMANDS, words).splitlines()]


def test_help_lists_what_others_registered_without_importing_jax(theirs):
    shown = evergrad(theirs, "train", "copy", "--help")
    for word in ("halving", "fading", "tempered", "--fade", "What is left of the influence"):
        assert word in shown
    look = (
        "import sys; import evergrad._training.settings as s; print('jax' in sys.modules, 'fade' in s.fields('copy'))"
    )
    assert python(theirs, "-c", look).split() == ["False", "True"]


def test_a_run_with_all_three_is_trained_resumed_measured_and_planned(theirs, tmp_path):
    chosen = ["--cell", "halving", "--readout", "tempered", "--estimator", "fading", "--fade", "0.8", "--window", "2"]
    sizes = ["--units", "4", "--batch", "2", "--steps", "20", "--report", "10"]
    noise = ["lab", "noise", tmp_path / "run", "--estimator", "fading:fade=0.5", "--steps", "20", "--repetitions", "2"]
    _, about, resumed, measured, planned = commands(
        theirs,
        ["train", "copy", *chosen, *sizes, "--out", tmp_path / "run"],
        ["info", tmp_path / "run"],
        ["resume", tmp_path / "run", "--steps", "30"],
        [*noise, "--out", tmp_path / "noise"],
        ["plan", "--cell", "halving", "--units", "4"],
    )
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert "fading" in json.dumps(settings)
    assert "0.8" in json.dumps(settings)
    assert "done: 30 steps" in resumed
    assert "Fading(window=2, fade=0.8)" in about or "fading" in about
    assert "fading" in measured
    assert "Fading(" in planned


def test_river_knows_them(theirs, tmp_path):
    assert "river and saving know it" in python(theirs, "-c", RIVER, tmp_path / "model.safetensors")


def test_names_that_are_taken_or_mean_something_else_are_refused(theirs):
    refused = {
        "register('cell', 'lstm', 'a:B')": "there is evergrad:LSTM of that name",
        "register('animal', 'dog', 'a:B')": "choose one of cell, estimator",
        "register('estimator', 'x', 'a:B', rank=Parameter(int, 'Other'))": "means something else already",
    }
    code = "from evergrad.extend import Parameter, register\n"
    code += "".join(f"try:\n    {call}\nexcept ValueError as error:\n    print(error)\n" for call in refused)
    for line, words in zip(python(theirs, "-c", code).splitlines(), refused.values(), strict=True):
        assert words in line
