"""A follower's gradients are the learner's, taken apart by streams and heads."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from tests.helpers import crossed, make_data, make_model

KEY = jax.random.key(3)
STEPS, BATCH = 12, 2


def followed(estimator, cell, xs, resets):
    """The states and outputs of all steps."""
    follower = eg.Follower(estimator)
    step = eqx.filter_jit(follower.step)
    state, found = follower.init(cell, batch=BATCH, key=KEY), []
    for x, reset in zip(xs, resets, strict=True):
        state, h = step(cell, state, x, reset)
        found.append((state, h))
    return eqx.filter_jit(follower.gradient), eqx.filter_jit(follower.summed), found


ESTIMATORS = [eg.RTRL(), eg.RTRL(window=3), eg.OK(rank=2, window=2), eg.SnAp1(window=2), eg.TBPTT(horizon=3, stride=1)]


def one_of_every_past(estimator, cell):
    """No window, a window, and a horizon."""
    return cell == "lstm" and estimator in (ESTIMATORS[0], ESTIMATORS[2], ESTIMATORS[4])


@pytest.mark.parametrize(
    ("estimator", "cell"), crossed([(e, c) for e in ESTIMATORS for c in ("lstm", "rhn")], one_of_every_past)
)
def test_streams_and_heads_add_up_to_the_learners_gradient(estimator, cell):
    model = make_model(cell, scale=2.0)
    xs, ys, resets = make_data(STEPS, batch=BATCH)
    resets[3, 0] = resets[6, 1] = True
    _, exact = eg.gradients(model, estimator, xs, ys, resets, key=KEY)
    gradient, summed, found = followed(estimator, model.cell, xs, resets)

    def loss(h, y):
        return model.readout.loss(model.readout(h), y)

    deltas = jax.jit(jax.vmap(jax.grad(loss)))
    for t in (1, 4, 7, STEPS - 1):
        state, h = found[t]
        delta = deltas(h, jnp.asarray(ys[t]))
        whole = np.asarray(gradient(model.cell, state, delta).weight)
        np.testing.assert_allclose(whole.mean(0), np.asarray(exact.cell.weight)[t], atol=1e-10)
        np.testing.assert_allclose(summed(model.cell, state, delta).weight, whole.sum(0), atol=1e-12)
        near, far = delta * 0.3, delta * 0.7
        halves = [np.asarray(gradient(model.cell, state, d).weight) for d in (near, far)]
        np.testing.assert_allclose(halves[0] + halves[1], whole, atol=1e-12)
        one = np.asarray(gradient(model.cell, state, delta.at[0].set(0.0)).weight)
        np.testing.assert_allclose(one[0], 0)
        np.testing.assert_allclose(one[1], whole[1], atol=1e-12)


def test_weights_in_the_output_count_too():
    """eLSTM's output gate has weights of its own: against jax.grad of the unrolled network."""
    cell = eg.ELSTM(3, 4, key=KEY)
    xs = jax.random.normal(KEY, (6, 1, 3))

    def last(cell):
        state = cell.initial()
        for x in xs[:, 0]:
            state = cell.step(state, x)
        return cell.output(state, xs[-1, 0]).sum()

    follower = eg.Follower(eg.RTRL())
    state, step = follower.init(cell, batch=1, key=KEY), eqx.filter_jit(follower.step)
    for x in xs:
        state, h = step(cell, state, x)
    found = eqx.filter_jit(follower.gradient)(cell, state, jnp.ones_like(h))
    exact = eqx.filter_jit(eqx.filter_grad(last))(cell)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=1e-10)


def test_what_cannot_be_is_refused():
    with pytest.raises(eg.InputError, match="stride=1"):
        eg.Follower(eg.TBPTT(horizon=4))
    with pytest.raises(eg.InputError, match="key"):
        eg.Follower(eg.RTRL()).init(eg.LSTM(2, 3, key=KEY), batch=1)
