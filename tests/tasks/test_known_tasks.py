"""Tasks whose best prediction is known: somebody who sees the inputs only, and knows the task, has the loss that is
promised, and the best constant has that of knowing nothing."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._tasks import Add, AnBn, Chain, Chaos, Rotation, Trace
from evergrad._tasks.add import loss_knowing
from evergrad._tasks.chaos import SYSTEMS
from evergrad._tasks.generated import unscored
from evergrad._tasks.trace import BITS, PATTERNS
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve
from evergrad._training.settings import KNOWN
from evergrad.lab.balance import Balance, BalanceCell, Itself, influence_on_the_first
from tests.helpers import crossed

BATCH = 6


def streams(task, steps, batch=BATCH):
    """All steps as [steps, batch], and the position after them."""
    start = task.start(batch=batch, key=jax.random.key(0))
    run = jax.jit(lambda start: jax.lax.scan(lambda position, _: task.emit(position)[::-1], start, length=steps))
    position, data = run(start)
    assert int(position.scored) == int((data.weight > 0).sum())
    return jax.tree.map(np.asarray, data), position


def close(losses, expected, episodes):
    """Within five standard errors, taken over so many stretches of time, which are nearly independent."""
    means = np.array([part.mean() for part in np.array_split(np.asarray(losses).ravel(order="F"), episodes)])
    assert abs(means.mean() - expected) < 5 * means.std() / episodes**0.5 + 1e-12


def test_add_has_three_levels():
    levels = [loss_knowing(t1=a, t2=b) for a, b in ((False, False), (True, False), (True, True))]
    assert levels == pytest.approx([0.6616, 0.5192, 0.4544], abs=1e-4)
    task = Add(3, 7)
    assert (task.ignorance(), task.optimum()) == (levels[0], levels[-1])
    data, _ = streams(task, 6000)
    assert data.weight[:7].sum() == 0
    assert data.weight[7:].all()
    x, y = data.x, data.y[7:]
    near, far = x[4:-3], x[:-7]
    assert x.mean() == pytest.approx(0.5, abs=0.02)
    with np.errstate(divide="ignore"):

        def loss(p):
            return -np.where(y == 1, np.log(p), np.log(1 - p))

        for p, level in ((0.625 + 0 * near, 0), (0.375 + 0.5 * near, 1), (0.5 + 0.5 * near - 0.25 * far, 2)):
            close(loss(p), levels[level], 200)
        shifted = 0.5 + 0.5 * x[3:-4] - 0.25 * far  # who looks one step beside t₁ does not have the optimum
    assert loss(np.clip(shifted, 0.05, 0.95)).mean() > levels[1]


def test_strings_of_as_and_bs():
    task = AnBn(5)
    data, _ = streams(task, 4000)
    assert not data.reset.any()
    counts, losses = np.zeros((BATCH, 2), int), []
    for x, y in zip(data.x, data.y, strict=True):
        counts += np.eye(3, dtype=int)[x][:, :2]
        counts[x == 2] = 0
        a, b = counts.T
        ends = np.where(b > 0, np.where(b == a, 2, 1), -1)  # what follows a b is certain
        hazard = 1 / (5 - a + 1)  # of a's to end where they have not ended before
        p = np.where(ends >= 0, ends == y, np.where(x == 2, y == 0, np.where(y == 1, hazard, (1 - hazard) * (y == 0))))
        losses.append(-np.log(p))
    close(np.stack(losses), task.optimum(), 200)
    assert task.optimum() == pytest.approx(math.log(5) / 7)
    shares = np.bincount(data.y.ravel()) / data.y.size
    assert -(shares * np.log(shares)).sum() == pytest.approx(task.ignorance(), rel=0.01)


def test_the_chain():
    task = Chain(5)
    data, _ = streams(task, 300)
    shown, asked = data.x[..., 0], data.weight == 1
    np.testing.assert_array_equal(shown != 0, data.reset)
    np.testing.assert_array_equal(data.x[..., 1], data.weight)
    times, stream = np.nonzero(asked)
    assert len(times) > 250
    np.testing.assert_array_equal(2 * data.y[asked] - 1, shown[times - 5, stream])
    assert (shown[asked] == 0).all()
    assert len(set(data.reset.argmax(0))) > 2  # streams are not in step
    assert abs(data.y[asked].mean() - 0.5) < 5 * 0.5 / len(times) ** 0.5
    assert (task.optimum(), task.ignorance()) == (0, math.log(2))


def test_rotation_memory():
    task = Rotation(dimensions=4, episode=9, seed=3)
    rotation = np.asarray(task.rotation)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(4), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    assert not np.allclose(rotation, Rotation(4, 9, seed=4).rotation)
    data, _ = streams(task, 60)
    np.testing.assert_array_equal(data.reset, data.x[..., -1] == 1)
    for stream in range(BATCH):
        vector, scored = None, data.weight[:, stream] > 0
        for x, y, begins in zip(data.x[:, stream], data.y[:, stream], data.reset[:, stream], strict=True):
            vector = x[:-1] if begins else vector if vector is None else rotation @ vector
            if vector is not None:
                np.testing.assert_allclose(y, vector, atol=1e-10)
        assert scored.argmax() == data.reset[:, stream].argmax()
        assert (np.diff(np.flatnonzero(data.reset[:, stream])) == 9).all()
    scored = data.weight > 0
    assert (data.y[scored] ** 2).sum(-1).mean() == pytest.approx(task.ignorance())


def test_trace_patterning():
    task = Trace(isi=3, isi_to=6, iti=4, iti_to=8, discount=0.8, seed=1)
    assert int(task.good.sum()) == 10
    data, _ = streams(task, 8000)
    pattern, reward, y = data.x[..., :BITS], data.x[..., BITS], data.y[..., 0]
    assert set(pattern.sum(-1).ravel()) == {0, 3}
    rates = data.x[..., BITS + 1 :].mean((0, 1))
    np.testing.assert_allclose(rates, 1 / (10 * np.arange(1, 6)), rtol=0.1)
    good, since, guesses = np.zeros(BATCH, bool), np.full(BATCH, 99), []
    table = {tuple(row): bool(g) for row, g in zip(PATTERNS, task.good, strict=True)}
    for shown, rewarded in zip(pattern, reward, strict=True):
        since += 1
        for stream in np.flatnonzero(shown.sum(-1)):
            good[stream], since[stream] = table[tuple(shown[stream])], 0
        good &= rewarded == 0
        worth = [np.mean([0.8 ** (t - s - 1) for t in (3, 4, 5, 6) if t > s] or [0]) for s in np.minimum(since, 6)]
        guesses.append(np.where(good & (since < 6), worth, 0.0))
    scored = data.weight > 0
    assert scored[30:].all()
    errors = ((np.stack(guesses) - y) ** 2)[30:]
    close(errors, task.optimum(), 200)
    close((y - y[30:].mean())[30:] ** 2, task.ignorance(), 200)
    assert 0 < task.optimum() < 0.2 * task.ignorance()
    assert Trace(isi=5, isi_to=5).optimum() < 1e-15  # nothing is left to chance


def test_chaotic_series():
    for system, step in (("henon", 1e-9), ("mackey", None), ("lorenz", None)):
        data, _ = streams(Chaos(system, every=50, batch=3, seed=2), 400, batch=3)
        np.testing.assert_array_equal(data.y[:-1], data.x[1:])
        np.testing.assert_array_equal(np.flatnonzero(data.reset[:, 0]), np.arange(0, 400, 50))
        assert len({*data.x[-1, :, 0]}) == 3
        if step:  # two values say the third, to the last digits
            now, before, after = data.x[1:, 0, 0], data.x[:-1, 0, 0], data.y[1:, 0, 0]
            terms = np.stack([np.ones_like(now), now, now**2, before], 1)
            fitted = terms @ np.linalg.lstsq(terms, after, rcond=None)[0]
            assert np.abs(fitted - after).max() < step
            alone = terms[:, :3] @ np.linalg.lstsq(terms[:, :3], after, rcond=None)[0]
            assert ((alone - after) ** 2).mean() > 0.01  # and one does not
    task = Chaos("henon", batch=2)
    assert np.abs(np.asarray(task.values).mean(0)).max() < 1e-10
    np.testing.assert_allclose(np.asarray(task.values).std(0), 1)
    assert (task.optimum(), task.ignorance()) == (0, 1)
    raw = SYSTEMS["mackey"](400, 2, np.random.default_rng(0), 17)
    for delay, right in ((17, True), (16, False)):
        old = raw[100 - 1 - delay : 399 - delay]
        made = 0.9 * raw[99:-1] + 0.2 * old / (1 + old**10)
        assert bool(np.abs(made - raw[100:]).max() < 1e-12) is right
    x = SYSTEMS["lorenz"](20_000, 2, np.random.default_rng(0), 17)
    assert x.std() == pytest.approx(7.9, abs=0.5)  # of the attractor, whose two wings are alike
    assert abs(x.mean()) < 1.0


def test_influence_balancing():
    """Gradients that reach back less than some tens of steps have the wrong sign; exact ones find the balance."""
    cell = BalanceCell()
    seen = np.asarray(influence_on_the_first(cell, 400))
    assert (seen[:30] > 0).all()
    assert seen[-1] == pytest.approx(2 * (10 - 13), abs=1e-6)
    model = eg.Model(BalanceCell(theta=cell.best), Itself())
    xs, ys = np.zeros((400, 1, 1)), np.ones((400, 1, 1))
    assert float(model.losses(xs, ys)[-1, 0]) < 1e-10

    def trained(estimator):
        learner = eg.Learner(eg.Model(BalanceCell(), Itself()), estimator, optax.sgd(1e-4))
        task, state = Balance(), learner.init(batch=1, key=jax.random.key(0))
        state, _, _ = learner.follow(state, task, task.start(batch=1, key=jax.random.key(1)), 3000, room=3000)
        return float(state.model.cell.theta)

    assert trained(eg.RTRL()) == pytest.approx(cell.best, rel=0.1)
    assert trained(eg.TBPTT(horizon=10, stride=1)) > 0


def test_a_run_reports_how_far_it_is_above_the_optimum():
    for name in KNOWN:
        task = make_job(resolve(name, {"units": 4, "batch": 2, "cell": "mingru"})).task
        position = eqx.tree_at(lambda p: p.scored, task.start(None, batch=2, key=jax.random.key(0)), jnp.int32(10))
        for loss, excess in ((task.source.optimum(), 0), (task.source.ignorance(), 1)):
            row = task.figures(position, loss / 4, steps=20)  # 40 steps of streams, 10 of them scored
            assert row["excess"] == pytest.approx(excess)
            assert row["loss"] == pytest.approx(loss)
            assert (task.standstill(row) is None) is (excess == 0)
            assert "optimum" in task.headline(row)
        assert task.figures(unscored(position), 0.0, 20)["excess"] is None


def test_settings_that_cannot_be_are_refused():
    for make, message in (
        (lambda: Add(4, 4), "t2 must be a whole number >= 5"),
        (lambda: Trace(isi=9, isi_to=8), "isi_to must be a whole number >= 9"),
        (lambda: Trace(discount=1.5), "discount must be above 0"),
        (lambda: Rotation(dimensions=1), "dimensions must be a whole number >= 2"),
        (lambda: AnBn(1), "largest must be a whole number >= 2"),
        (lambda: Chain(0), "lag must be a whole number >= 1"),
        (lambda: Chaos("henin"), 'Did you mean "henon"'),
        (lambda: BalanceCell(3, 3), "minuses must be a whole number >= 4"),
    ):
        with pytest.raises(eg.InputError, match=message):
            make()
    assert resolve("add", {"t2": 12}).t1 == 6
    assert resolve("chain", {"cell": "lru"}).estimator == "rtrl"
    assert resolve("chain", {"cell": "lru", "estimator": "uoro"}).estimator == "uoro"
    assert resolve("cue", {"cell": "leaky"}).initial == "orthogonal"


CELLS = {"add": "mingru", "trace": "columnar", "rotation": "lru", "anbn": "rglru", "chain": "leaky", "chaos": "elstm"}
FURTHER = {"copy": ("rtu", "minlstm"), "cue": ("indrnn",)}


@pytest.mark.parametrize(
    ("task", "cell"),
    crossed(
        [*CELLS.items(), *((task, cell) for task, cells in FURTHER.items() for cell in cells)],
        lambda task, cell: task == "rotation",
    ),
)
def test_runs_from_the_command_line(task, cell, tmp_path):
    words = ["--cell", cell, "--units", "6", "--steps", "40", "--report", "20", "--batch", "4"]
    words += ["--estimator", "tbptt", "--horizon", "2"] if cell == "leaky" else []
    done = CliRunner().invoke(app, ["train", task, *words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [20, 40]
    assert task not in CELLS or rows[-1]["excess"] > 0
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--steps", "20"])
    assert done.exit_code == 0, done.output
