"""`Learner.fit`: one loop, with callbacks."""

import equinox as eqx
import jax
import jaxtyping
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core import fitting
from evergrad._tasks import Copy
from evergrad._tasks.copy import SYMBOLS

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_a_user():
    """Without the run-time type checks that the tests switch on, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


XS, YS = (jax.random.normal(KEY, (40, 2, size)) for size in (3, 2))


@pytest.fixture(scope="module")
def learner():
    model = eg.Model(eg.RNN(3, 4, key=KEY), eg.Linear(4, 2, key=KEY))
    return eg.Learner(model, eg.RTRL(), optax.adam(1e-2))


def begun(learner, **how):
    return learner.init(batch=2, key=KEY, **how)


def test_it_is_run_with_functions_called_as_it_goes(learner):
    seen = []
    state, position = learner.fit(
        begun(learner), (XS, YS), 40, callbacks=[lambda now: seen.append((now.step, now.loss))], every=15
    )
    after, out = learner.run(begun(learner), XS, YS)
    assert [step for step, _ in seen] == [15, 30, 40]
    means = [float(part.mean()) for part in np.split(np.asarray(out.losses), [15, 30])]
    np.testing.assert_allclose([loss for _, loss in seen], means, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert int(position) == 40


def test_how_often_one_is_called_changes_nothing_and_it_can_stop(learner, monkeypatch):
    whole, _ = learner.fit(begun(learner), (XS, YS), 30, every=10, callbacks=[lambda now: None])
    monkeypatch.setattr(fitting.Pace, "took", lambda self, *_: setattr(self, "length", 3))
    part, position = learner.fit(
        begun(learner), (XS, YS), 40, every=10, callbacks=[lambda now: now.stop() if now.step == 30 else None]
    )
    assert eqx.tree_equal(whole, part)
    rest, _ = learner.fit(part, (XS, YS), 10, position=position)
    assert int(rest.time) == 40


def test_a_source_begins_where_its_start_says():
    source = Copy()
    model = eg.Model(eg.RNN(SYMBOLS, 4, key=KEY), eg.Softmax(4, SYMBOLS, key=KEY))
    learner = eg.Learner(model, eg.TBPTT(horizon=2), optax.sgd(0.1))
    state, position = learner.fit(learner.init(batch=2, key=KEY), source, 8, key=KEY)
    same, _, _ = learner.follow(learner.init(batch=2, key=KEY), source, source.start(batch=2, key=KEY), 8)
    assert eqx.tree_equal(state, same)
    with pytest.raises(eg.InputError, match=r"position=..., or key="):
        learner.fit(learner.init(batch=2, key=KEY), source, 8)
    learner.fit(state, source, 4, position=position)


def test_callbacks_of_ours(learner, tmp_path, capsys):
    early = eg.EarlyStop(patience=2, every=5, of=lambda now: abs(now.step - 12))
    callbacks = [eg.Log(10), eg.Checkpoint(tmp_path / "{step}", every=10), early]
    state, _ = learner.fit(begun(learner), (XS, YS), 40, callbacks=callbacks)
    assert (int(state.time), early.best_step, early.best_loss) == (20, 10, 2)
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said] == ["step 10/40", "step 20/40"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["10", "20"]
    assert eqx.tree_equal(eg.load(tmp_path / "20", learner), state)
    assert eqx.tree_equal(eg.load(tmp_path / "10", learner).model, early.best)


def test_tensorboard(learner, tmp_path):
    pytest.importorskip("tensorboardX")
    learner.fit(begun(learner), (XS, YS), 20, callbacks=[eg.TensorBoard(tmp_path, 10, extra=lambda now: {"two": 2.0})])
    (file,) = tmp_path.iterdir()
    assert b"two" in file.read_bytes()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda fit: fit((XS, YS), 41), r"there are 40 steps in the data"),
        (lambda fit: fit((XS, YS), 0), "steps must be a whole number >= 1"),
        (lambda fit: fit([XS, YS], 4), r"pass \(xs, ys\)"),
        (lambda fit: fit((XS,), 4), "resets and weights may be left out"),
        (lambda fit: fit((XS, YS), 4, callbacks=[3]), r"callbacks=\[3\].*eg.Log\(\)"),
        (lambda fit: fit((XS.swapaxes(0, 1), YS), 4), r"swapaxes\(0, 1\)"),
        (lambda fit: eg.EarlyStop(patience=0), "patience must be"),
        (lambda fit: eg.Log(0), "every must be"),
    ],
)
def test_what_is_refused(learner, call, match):
    with pytest.raises(eg.InputError, match=match):
        call(lambda *given, **how: learner.fit(begun(learner), *given, **how))
