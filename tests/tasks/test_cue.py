"""The cue and the question: its streams are what they say, its score counts wrong answers, and credit beyond a horizon
is what decides it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._tasks import Cue
from evergrad._tasks.cue import CUES, INPUTS, unasked
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve
from tests.helpers import cast

BATCH, GAPS = 5, (6, 9)


def streams(task, steps):
    """All steps as [steps, BATCH], and the position after them."""
    start = task.start(batch=BATCH, key=jax.random.key(0))
    position, data = jax.lax.scan(lambda position, _: task.emit(position)[::-1], start, length=steps)
    return jax.tree.map(np.asarray, data), position


def test_episodes_are_a_cue_distractors_and_a_question():
    data, _ = streams(Cue(gap=GAPS[0], gap_to=GAPS[1]), 4000)
    assert data.x.shape == (4000, BATCH, INPUTS)
    cue, question, distractor = data.x[..., :CUES], data.x[..., CUES], data.x[..., -1]
    np.testing.assert_array_equal(data.reset, cue.sum(-1) == 1)
    np.testing.assert_array_equal(data.weight, question)
    assert set(np.unique(distractor)) == {-1, 1}
    gaps, shown = [], []
    for stream in range(BATCH):
        asked = np.flatnonzero(question[:, stream])
        begun = np.flatnonzero(data.reset[:, stream])
        assert (begun[1:] == asked[: len(begun) - 1] + 1).all()  # the next cue follows the question
        gaps += [*(asked - begun[: len(asked)])]
        shown += [*cue[begun[: len(asked)], stream].argmax(-1)]
        np.testing.assert_array_equal(data.y[asked, stream], cue[begun[: len(asked)], stream].argmax(-1))
    counts = np.bincount(gaps)[GAPS[0] :]
    assert set(gaps) == {6, 7, 8, 9}
    assert np.abs(counts / len(gaps) - 0.25).max() < 5 * (0.25 * 0.75 / len(gaps)) ** 0.5
    for draws in (shown, distractor.ravel() > 0):
        assert abs(np.mean(draws) - 0.5) < 5 * 0.5 / len(draws) ** 0.5


def test_streams_are_not_in_step_and_do_not_tell_each_other():
    data, _ = streams(Cue(gap=20, gap_to=30), 40)
    first = data.reset.argmax(axis=0)
    assert len(set(first)) > 2  # of 30 steps to begin at, five streams may share one
    assert (data.x[..., -1].std(axis=1) > 0).mean() > 0.8


def test_without_resets_nothing_else_changes():
    with_resets, without = (streams(Cue(gap=4, gap_to=6, resets=resets), 60)[0] for resets in (True, False))
    assert not without.reset.any()
    for name in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(without, name), getattr(with_resets, name))


def test_the_score_counts_answers_that_are_less_likely_than_not():
    task = Cue(gap=1, gap_to=1)
    position = task.start(batch=3, key=jax.random.key(0))
    asking = eqx.tree_at(lambda p: p.asking, position, jnp.array([True, True, False]))
    heard = task.hear(asking, -jnp.log(jnp.array([0.49, 0.51, 0.1])), None)
    assert (int(heard.asked), int(heard.wrong)) == (2, 1)
    again = task.hear(heard, -jnp.log(jnp.array([0.49, 0.3, 0.1])), None)
    assert (int(again.asked), int(again.wrong)) == (4, 3)
    assert (int(unasked(again).asked), int(unasked(again).wrong)) == (0, 0)


def test_gaps_that_cannot_be_are_refused():
    for gaps, message in {
        (0, 5): "gap must be a whole number >= 1",
        (8, 7): "gap_to must be a whole number >= 8",
    }.items():
        with pytest.raises(eg.InputError, match=message):
            Cue(gap=gaps[0], gap_to=gaps[1])


def test_settings_of_a_run():
    usual = resolve("cue", {})
    assert (usual.gap, usual.gap_to, usual.initial, usual.resets) == (80, 120, "chrono:120", True)
    assert resolve("cue", {"gap": 10}).gap_to == 15
    assert resolve("cue", {"gap": 10, "cell": "rnn"}).initial == "orthogonal"
    assert resolve("cue", {"gap": 10, "initial": "fan_in"}).initial == "fan_in"
    task = make_job(resolve("cue", {"gap": 10, "units": 6, "batch": 4})).task
    position = eqx.tree_at(lambda p: (p.asked, p.wrong), task.start(None, batch=4, key=jax.random.key(0)), (8, 2))
    figures = task.figures(position, np.log(2) / 10, steps=20)
    assert figures == {"loss": pytest.approx(1.0), "wrong": 0.25, "asked": 8}  # 80 losses, 8 of them questions
    assert task.figures(unasked(task.start(None, batch=4, key=jax.random.key(0))), 0.0, 20)["wrong"] is None


def wrong_in_the_end(estimator, steps=1000, gap=24, gap_to=32):
    """Share of wrong answers over the last 400 steps: LSTM 16, 8 streams, Adam 1e-2, float32."""
    keys = jax.random.split(jax.random.key(0), 4)
    cell = eg.LSTM(INPUTS, 16, key=keys[0], initial=f"chrono:{gap_to}")
    model = cast(eg.Model(cell, eg.Softmax(16, CUES, key=keys[1])), jnp.float32)
    learner = eg.Learner(model, estimator, optax.adam(1e-2), clip=1.0)
    task, state = Cue(gap=gap, gap_to=gap_to), learner.init(batch=8, key=keys[2])
    state, position, _ = learner.follow(state, task, task.start(batch=8, key=keys[3]), steps, room=steps)
    _, position, _ = learner.follow(state, task, unasked(position), 400, room=steps)
    return int(position.wrong) / int(position.asked)


def test_with_the_same_remembered_steps_only_an_influence_learns_beyond_them():
    """About 110 questions: chance is 0.5 ± 0.05, and a cut at 0.3 is four standard errors away from it."""
    assert wrong_in_the_end(eg.OK(rank=4, window=8)) < 0.05
    assert wrong_in_the_end(eg.RTRL(window=8)) < 0.05
    assert wrong_in_the_end(eg.TBPTT(horizon=8, stride=1)) > 0.3
    assert wrong_in_the_end(eg.TBPTT(horizon=40, stride=1)) < 0.05
