"""The meter for reach finds a lag that is known; probes find what exact RTRL finds."""

import itertools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.planner import Rates
from evergrad._tasks.repeat import Repeat
from evergrad._training.reports import rows
from evergrad.extend import Data
from evergrad.lab.noise import measure
from evergrad.lab.reached import Cost, Reach, in_words, read
from tests.cli.test_cli_runs import refused
from tests.helpers import make_data, make_model
from tests.training_helpers import succeed

KEY = jax.random.key(0)
RATES = Rates(products=1e10, thin=1e9, touched=1e9, operation=1e-6)


class Delay(eg.Cell):
    """Holds the last d products w x: a loss on the oldest has its whole gradient at lag d − 1."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    scale: jax.Array

    def initial(self):
        return jnp.zeros(self.units)

    def step(self, state, x):
        return jnp.concatenate([self.scale * x[:1], state[:-1]])

    def output(self, state):
        return state


@pytest.mark.parametrize("lag", [1, 4, 9])
def test_a_known_lag_is_found(lag):
    readout = eg.Linear(12, 1, key=KEY)
    weight = jnp.zeros((12, 1)).at[lag - 1].set(1.0)
    readout = eqx.tree_at(lambda r: (r.weight, r.bias), readout, (weight, jnp.zeros(1)))
    model = eg.Model(Delay(inputs=1, units=12, scale=jnp.ones(1)), readout)
    xs = np.random.default_rng(0).normal(size=(40, 2, 1))
    found = eg.lab.reach(model, xs, np.zeros((40, 2, 1)), key=KEY, samples=6)
    assert found.horizon() == lag
    np.testing.assert_allclose(found.shares[: lag - 1], 0, atol=1e-12)
    assert found.shares[lag - 1] == pytest.approx(1)


def test_what_a_horizon_has_is_what_tbptt_has():
    """‖g − g_J‖² against the gradients of TBPTT(J, 1) and of RTRL, at the steps looked at: all of the second half."""
    model = make_model("rhn", scale=2.5)
    xs, ys, resets = make_data(16)
    found = eg.lab.reach(model, xs, ys, resets, key=KEY, samples=8)

    def grad(e):
        return np.asarray(eg.gradients(model, e, xs, ys, resets, key=KEY)[1].cell.weight)[8:]

    exact = grad(eg.RTRL())
    for horizon in (1, 2, 5):
        missing = ((grad(eg.TBPTT(horizon=horizon, stride=1)) - exact) ** 2).sum()
        assert found.shares[horizon - 1] == pytest.approx(1 - missing / (exact**2).sum(), abs=1e-9)
    assert "99 % of this gradient" in str(found) or "older than" in str(found)


def test_the_words_follow_the_figures():
    short = Reach(np.array([0.6, 0.95, 0.995, 0.999, 1.0, *[1.0] * 20]), np.zeros(25), 8, 25)
    assert "last 3 steps" in str(short)
    assert "TBPTT(horizon=4, stride=1)" in str(short)
    long = Reach(np.linspace(0, 0.9, 50), np.zeros(50), 8, 50)
    assert long.horizon() is None
    assert "without a horizon" in str(long)


def test_the_sentence_says_what_a_horizon_would_cost():
    found = Reach(
        np.linspace(0.1, 1, 40), np.zeros(40), 8, 100, np.arange(1, 41), Cost(10, "OK(rank=8, window=16)", 3200)
    )
    assert str(found).endswith(
        "TBPTT(horizon=64, stride=1) would do, at a fifth of the multiply-adds of OK(rank=8, window=16)."
    )
    assert [in_words(ratio) for ratio in (0.5, 0.34, 0.126, 0.7, 1.0, 2.34)] == [
        "half",
        "a third of",
        "1/8 of",
        "0.7 of",
        "about as many as",
        "2.3 times",
    ]
    model = make_model("lstm")
    xs, ys, resets = make_data(16)
    assert eg.lab.reach(model, xs, ys, resets, key=KEY).cost is not None


@pytest.mark.parametrize("lag", [4, 8])
def test_probes_find_a_known_lag(lag):
    """All of the gradient is `lag` steps old: nothing of it within lag / 2 steps, all within lag."""
    readout = eg.Linear(12, 1, key=KEY)
    weight = jnp.zeros((12, 1)).at[lag - 1].set(1.0)
    readout = eqx.tree_at(lambda r: (r.weight, r.bias), readout, (weight, jnp.zeros(1)))
    model = eg.Model(Delay(inputs=1, units=12, scale=jnp.ones(1)), readout)
    xs = np.random.default_rng(0).normal(size=(128, 2, 1))
    found = eg.lab.reach(model, xs, np.zeros((128, 2, 1)), key=KEY, probes=4)
    assert found.at.tolist() == [1, 2, 4, 8, 16, 32]
    np.testing.assert_allclose(found.shares, found.at >= lag, atol=1e-9)
    assert found.horizon() == lag


def test_probes_find_what_tbptt_has():
    """Σ over the basis directions instead of random ones: the shares of TBPTT's own gradients at the same steps."""
    model = make_model("rhn", scale=2.5)
    xs, ys, resets = make_data(32)
    found = eg.lab.reach(model, xs, ys, resets, key=KEY, probes=3_000)

    def grad(e):
        return np.asarray(eg.gradients(model, e, xs, ys, resets, key=KEY)[1].cell.weight)

    exact = grad(eg.RTRL())
    for i, lag in enumerate(found.at):
        at = [t for t in range(16, 32) if t % lag == lag - 1]
        missing = ((grad(eg.TBPTT(horizon=int(lag), stride=1)) - exact)[at] ** 2).sum()
        share = 1 - missing / (exact[at] ** 2).sum()
        assert abs(found.shares[i] - share) < 5 * found.error[i] + 1e-9
        assert found.error[i] < 0.1


def test_probes_agree_with_exact_rtrl():
    """At 2,000 directions within a tenth, and within four of their own standard errors."""
    model = make_model("rhn", scale=2.0)
    xs, ys, resets = make_data(24, batch=1)
    data = Data(*(jnp.asarray(a) for a in (xs, ys, resets, np.ones(xs.shape))))
    estimators = {"snap1": eg.SnAp1(), "tbptt": eg.TBPTT(horizon=2, stride=1), "rtrl": eg.RTRL()}
    found = eg.lab.probe(model, estimators, xs, ys, resets, probes=2_000, key=KEY)
    assert found["rtrl"].error < 1e-20
    assert found["rtrl"].cosine == pytest.approx(1)
    for name in ("snap1", "tbptt"):
        exact = measure(model, {name: estimators[name]}, data, repetitions=2, key=KEY)[name]
        error = float(exact.errors.mean(0).sum() / exact.truth.sum())
        assert found[name].error == pytest.approx(error, rel=0.1)
        assert abs(found[name].error - error) < 4 * found[name].error_error
        assert found[name].error != pytest.approx(1.3 * error, rel=0.1)


def test_all_basis_directions_give_the_gradient(monkeypatch):
    """Σ over the unit directions of (g·e)² is ‖g‖²: the derivative along a direction is exact."""
    model = make_model("rnn", scale=2.0)
    xs, ys, resets = make_data(6)
    exact = np.asarray(eg.gradients(model, eg.RTRL(), xs, ys, resets, key=KEY)[1].cell.weight)
    size = model.cell.weight.size
    module = __import__("evergrad._core.probes", fromlist=["direction"])

    def unit(cell, i):
        return eqx.tree_at(
            lambda c: c.weight, eg.parameters(cell), jnp.zeros(size).at[i].set(1.0).reshape(cell.weight.shape)
        )

    monkeypatch.setattr(module, "direction", unit)
    data = tuple(jnp.asarray(a) for a in (xs, ys, resets, np.ones(xs.shape)))
    slopes = module._exact.__wrapped__(model, data, jnp.arange(size))
    np.testing.assert_allclose(slopes.T.reshape(exact.shape), exact, atol=1e-12)


def test_all_sign_vectors_give_the_gradient_and_the_exact_figures(monkeypatch):
    """One unit, three weights, eight directions θ̇: the mean of (g·θ̇) θ̇ is g, and the figures of a biased estimator are exact."""
    keys = jax.random.split(KEY, 2)
    cell = eg.RNN(1, 1, key=keys[0], initial="fan_in")
    cell = eqx.tree_at(lambda c: c.weight, cell, jnp.asarray([[0.7], [1.3], [-0.2]]))
    model = eg.Model(cell, eg.Linear(1, 1, key=keys[1], initial="fan_in"))
    xs, ys = (np.random.default_rng(i).normal(size=(9, 2, 1)) for i in (0, 1))
    module = __import__("evergrad._core.probes", fromlist=["direction"])
    signs = jnp.asarray(list(itertools.product([1.0, -1.0], repeat=3)))

    def numbered(cell, i):
        return eqx.tree_at(lambda c: c.weight, eg.parameters(cell), signs[i][:, None])

    monkeypatch.setattr(module, "direction", numbered)
    data = tuple(jnp.asarray(a) for a in (xs, ys, np.zeros((9, 2), bool), np.ones((9, 2))))
    slopes = module._exact.__wrapped__(model, data, jnp.arange(8))
    estimated = module._estimated.__wrapped__(model, eg.TBPTT(horizon=2, stride=1), data, jnp.arange(8), KEY)
    exact, biased = (
        np.asarray(eg.gradients(model, e, xs, ys, key=KEY)[1].cell.weight)[..., 0]
        for e in (eg.RTRL(), eg.TBPTT(horizon=2, stride=1))
    )
    np.testing.assert_allclose(np.asarray(slopes).T @ signs / 8, exact, atol=1e-12)
    found = module._of(np.asarray(slopes), estimated)
    assert found.error == pytest.approx(((biased - exact) ** 2).sum() / (exact**2).sum(), rel=1e-10)
    assert found.error > 0.01
    cosine = (biased * exact).sum() / np.sqrt((biased**2).sum() * (exact**2).sum())
    assert found.cosine == pytest.approx(cosine, rel=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, d: eg.lab.reach(m, *d, samples=1, key=KEY), "samples"),
        (lambda m, d: eg.lab.reach(m, *d), "key"),
        (lambda m, d: eg.lab.probe(m, {"t": eg.TBPTT(horizon=3)}, *d, key=KEY), "stride=1"),
        (lambda m, d: eg.lab.reach(m, *d, weights=np.zeros((8, 2)), key=KEY), "has a target"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(eg.InputError, match=words):
        call(make_model("rhn"), make_data(8))


def test_on_the_command_line(tmp_path):
    """A copy network of length T looks back at most 2T + 2 steps, where its streams begin."""
    run, out = tmp_path / "run", tmp_path / "reach"
    sizes = ["--units", "6", "--batch", "2", "--length", "4", "--jitter", "1", "--steps", "20", "--report", "20"]
    succeed("train", "copy", *sizes, "--estimator", "tbptt", "--out", run)
    said = succeed("lab", "reach", run, "--steps", "60", "--samples", "8", "--out", out)
    found = json.loads((out / "reach.json").read_text())
    assert f"last {found['horizon_99']} steps" in said
    assert len(found["shares"]) <= 10
    assert (out / "reach.png").stat().st_size > 5_000
    said = succeed("lab", "probe", run, "--estimator", "snap1", "--estimator", "rtrl", "--steps", "20", "--probes", "8")
    assert "rtrl: cosine 1.000 ± 0.000" in said
    said = succeed("lab", "reach", "--cell", "gru", "--units", "4", "--length", "3", "--steps", "40", "--samples", "4")
    assert "copy, GRU 4, untrained" in said
    assert "of this gradient" in said
    assert "has not been trained" in said


def test_a_plan_takes_what_is_known_of_the_reach(tmp_path):
    run, out = tmp_path / "run", tmp_path / "reach"
    sizes = ["--units", "6", "--batch", "2", "--length", "4", "--jitter", "1", "--steps", "20", "--report", "20"]
    succeed("train", "copy", *sizes, "--estimator", "tbptt", "--out", run)
    succeed("lab", "reach", run, "--steps", "60", "--probes", "8", "--out", out)
    found = read(out / "reach.json")
    assert found.at.tolist() == [1, 2, 4, 8]
    said = succeed("plan", "--units", "64", "--reach", out / "reach.json")
    assert (
        f"Recommended: TBPTT(horizon={found.advised}, stride=1): a horizon of {found.advised} steps was found" in said
    )
    (out / "reach.json").write_text('{"shares": [1, 2]}')
    assert "is no reach.json" in refused("plan", "--reach", out / "reach.json")


def test_a_plan_without_a_known_end_recommends_no_horizon():
    cell = eg.LSTM(4, 32, key=KEY)
    usual = eg.plan(cell, batch=4, rates=RATES)
    assert eg.plan(cell, batch=4, rates=RATES, reach=None).recommended == usual.recommended
    near = eg.plan(cell, batch=4, rates=RATES, reach=4)
    assert near.recommended.estimator == eg.TBPTT(horizon=4, stride=1)
    far = eg.plan(cell, batch=4, rates=RATES, reach=100_000)
    assert far.recommended.estimator == usual.recommended.estimator
    assert "times as long" in far.why
    with pytest.raises(eg.InputError, match="reach"):
        eg.plan(cell, batch=4, rates=RATES, reach=0)


def test_a_run_is_looked_at_under_way(tmp_path):
    """Also where a run is cut: the lines are the same, each step once."""
    sizes = ["--units", "4", "--batch", "2", "--report", "20", "--reach-every", "15", "--estimator", "tbptt"]
    said = succeed("train", "copy", *sizes, "--steps", "60", "--out", tmp_path / "whole")
    assert "of this gradient" in said
    succeed("train", "copy", *sizes, "--steps", "40", "--out", tmp_path / "cut")
    succeed("resume", tmp_path / "cut", "--steps", "60")
    whole, cut = (rows(tmp_path / name / "reach.jsonl") for name in ("whole", "cut"))
    assert [row["step"] for row in whole] == [15, 30, 45, 60]
    assert whole == cut
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == (tmp_path / "cut" / "metrics.jsonl").read_bytes()


def test_a_network_that_was_trained_to_copy_looks_back_as_far_as_it_must():
    """A bit said again 12 steps after it was shown: 13 steps with both ends. Untrained, the network does not look so far."""
    task = Repeat(length=1, gap=11)
    model = eg.Model(eg.MinGRU(2, 16, key=KEY, initial="chrono:12"), eg.Softmax(16, 2, key=KEY, initial="fan_in"))
    learner = eg.Learner(model, eg.RTRL(), optax.adam(0.03), clip=1.0)
    state = learner.init(batch=16, key=KEY)
    state, *_ = learner.follow(state, task, task.start(batch=16, key=KEY), 1500)

    def looked(model):
        position, data = task.start(batch=4, key=KEY), []
        for _ in range(150):
            each, position = task.emit(position)
            data.append(each)
        stretch = jax.tree.map(lambda *a: np.stack(a), *data)
        return eg.lab.reach(model, stretch.x, stretch.y, stretch.reset, weights=stretch.weight, key=KEY)

    trained = looked(state.model)
    assert trained.horizon() == 13
    assert trained.shares[11] < 0.9
    assert looked(model).horizon() < 13
