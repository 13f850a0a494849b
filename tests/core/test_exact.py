"""The exact oracle: what is exact equals differentiation of the unrolled loss, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from tests.helpers import CELLS, crossed, flat, make_data, make_model, relative_error

STEPS, BATCH = 24, 3


def summed(model, estimator, xs, ys, resets, **kwargs):
    losses, gradients = eg.gradients(model, estimator, xs, ys, resets, key=jax.random.key(7), **kwargs)
    return losses, jax.tree.map(lambda a: a.sum(0), gradients)


def by_backpropagation(model, xs, ys, resets, **kwargs):
    return eqx.filter_jit(eqx.filter_grad(lambda model: model.losses(xs, ys, resets, **kwargs).mean(1).sum()))(model)


WINDOWS = [(0, "linear"), (0, "softmax"), (1, "softmax"), (5, "softmax"), (STEPS + 1, "softmax")]
UNLIKE = ("rhn", "reset-before-gru")  # the two cells that differ most


def among_the_first(window, readout, cell):
    """All of them on one cell, without a window and with one on another."""
    return cell == "rhn" or (
        cell in ("lstm", "reset-before-gru") and (window, readout) in ((0, "softmax"), (5, "softmax"))
    )


@pytest.mark.parametrize(
    ("window", "readout", "cell"), crossed([(*each, cell) for each in WINDOWS for cell in CELLS], among_the_first)
)
def test_rtrl_is_full_backpropagation(cell, window, readout):
    model = make_model(cell, units=4, readout=readout, scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.1, readout=readout)
    assert resets.any()
    losses, gradient = summed(model, eg.RTRL(window=window), xs, ys, resets)
    assert relative_error(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10
    assert relative_error(losses, model.losses(xs, ys, resets)) < 1e-12


class Compass(eg.Cell):
    """A direction that is turned: no derivative at zero, where it never is; weights in its output; a start of its own."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    turn: jax.Array
    push: jax.Array
    seen: jax.Array
    north: jax.Array

    def __init__(self, inputs, units, *, key):
        self.inputs, self.units = inputs, units
        shapes = (units, units), (units, inputs), (units, units), (units,)
        draws = zip(jax.random.split(key, 4), shapes, strict=True)
        self.turn, self.push, self.seen, self.north = (jax.random.normal(key, shape) for key, shape in draws)

    def initial(self):
        return self.north / jnp.linalg.norm(self.north)

    def step(self, state, x):
        turned = self.turn @ state + self.push @ x
        return turned / jnp.linalg.norm(turned)

    def output(self, state):
        return self.seen @ state


EXACT = [eg.RTRL(), eg.RTRL(window=5), eg.TBPTT(horizon=STEPS, stride=1), eg.TBPTT(horizon=STEPS, stride=STEPS)]


@pytest.mark.parametrize("estimator", crossed(EXACT, lambda estimator: estimator in (EXACT[1], EXACT[2]), repr))
def test_weights_wherever_a_cell_has_them(estimator):
    """In its step and in its output; a start is a constant, to the unrolled loss too."""
    model = eg.Model(Compass(3, 4, key=jax.random.key(0)), eg.Softmax(4, 3, key=jax.random.key(1)))
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.1)
    _, gradient = summed(model, estimator, xs, ys, resets)
    expected = by_backpropagation(model, xs, ys, resets)
    assert float(abs(expected.cell.seen).max()) > 1e-3
    assert not expected.cell.north.any()
    assert relative_error(gradient, expected) < 1e-10


def learned(model, estimator, xs, ys, resets):
    learner = eg.Learner(model, estimator, optax.adam(3e-2), clip=1.0)
    state = learner.init(batch=xs.shape[1], key=jax.random.key(0))
    return learner.run(state, xs, ys, resets)[0].model


@pytest.mark.parametrize("cell", crossed(CELLS, lambda cell: cell in UNLIKE))
def test_a_window_learns_the_same_while_weights_change(cell):
    """A remembered step is carried back, and folded, with the weights that it was taken with."""
    model = make_model(cell, units=4, scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.1)
    exact = learned(model, eg.RTRL(), xs, ys, resets)
    for estimator in (eg.RTRL(window=5), eg.TBPTT(horizon=STEPS, stride=1)):
        assert relative_error(learned(model, estimator, xs, ys, resets), exact) < 1e-10


@pytest.mark.parametrize("cell", crossed(["rhn", "lstm"], lambda cell: cell == "rhn"))
def test_ok_with_a_window_learns_what_rtrl_learns(cell):
    model = make_model(cell, units=6, scale=1.5)
    xs, ys, resets = make_data(6, BATCH, resets=0.1, seed=3)
    exact = learned(model, eg.RTRL(), xs, ys, resets)
    assert relative_error(learned(model, eg.OK(rank=6, window=2), xs, ys, resets), exact) < 1e-6


@pytest.mark.parametrize("cell", crossed(CELLS, lambda cell: cell in UNLIKE))
@pytest.mark.parametrize(("horizon", "stride"), [(STEPS, STEPS), (STEPS + 3, 1)])
def test_tbptt_with_a_long_horizon_is_full_backpropagation(cell, horizon, stride):
    model = make_model(cell, units=4, scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.1)
    _, gradient = summed(model, eg.TBPTT(horizon=horizon, stride=stride), xs, ys, resets)
    assert relative_error(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10


@eqx.filter_jit
def one_step(model, state, x, reset):
    state = jnp.where(reset[:, None, None], 0, state)
    return jax.vmap(model.cell.step)(state, jax.nn.one_hot(x, 3, dtype=state.dtype))


@eqx.filter_jit  # a program for every number of steps, of which there are few
@eqx.filter_grad
def of_the_last_losses(model, state, xs, ys, resets, stride):
    total = 0.0
    for s in range(len(xs)):
        state = one_step(model, state, xs[s], resets[s])
        if s >= len(xs) - stride:
            total += jax.vmap(model.readout.loss)(jax.vmap(model.readout)(state[:, 0]), ys[s]).mean()
    return total


@pytest.mark.parametrize(("horizon", "stride"), [(1, 1), (4, 4), (7, 3)])
def test_tbptt_sees_exactly_its_horizon(horizon, stride):
    """At every end of a stride: backpropagation through the last `horizon` steps, of the last `stride` losses."""
    model = make_model("lstm", units=4, scale=1.5)
    xs, ys, resets = make_data(20, BATCH, resets=0.05)
    _, gradients = eg.gradients(model, eg.TBPTT(horizon=horizon, stride=stride), xs, ys, resets, key=jax.random.key(0))
    history = [np.stack([model.cell.initial() for _ in range(BATCH)])]
    for t in range(20):
        history.append(one_step(model, history[-1], xs[t], resets[t]))
    for t in range(20):
        got = jax.tree.map(lambda a, t=t: a[t], gradients)
        if (t + 1) % stride:
            assert float(abs(flat(got)).max()) == 0
            continue
        first = max(0, t + 1 - horizon)
        seen = slice(first, t + 1)
        expected = of_the_last_losses(model, history[first], xs[seen], ys[seen], resets[seen], stride)
        assert relative_error(got, expected) < 1e-10


@pytest.mark.parametrize("cell", crossed(["rhn", "lstm", "gru"], lambda cell: cell == "rhn"))
@pytest.mark.parametrize(
    ("rank", "window", "mix"), [(8, 0, "signs"), (8, 0, "sampling"), (6, 2, "sampling"), (6, 2, "signs")]
)
def test_ok_with_room_for_every_step_is_rtrl(cell, rank, window, mix):
    model = make_model(cell, units=6, scale=1.5)
    xs, ys, resets = make_data(rank, BATCH, resets=0.1, seed=3)
    _, exact = eg.gradients(model, eg.RTRL(), xs, ys, resets, key=jax.random.key(0))
    _, got = eg.gradients(model, eg.OK(rank=rank, window=window, mix=mix), xs, ys, resets, key=jax.random.key(1))
    assert relative_error(got, exact) < 1e-6


@pytest.mark.parametrize("estimator", [eg.RTRL(), eg.RTRL(window=3), eg.TBPTT(horizon=30, stride=1)])
@pytest.mark.parametrize("readout", crossed(["softmax", "linear"], lambda readout: readout == "linear"))
def test_a_missing_target_teaches_nothing_and_may_be_anything(estimator, readout):
    model = make_model("lstm", readout=readout, scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.1, readout=readout)
    weights = make_data(STEPS, BATCH, resets=0.6, seed=9)[2].astype(float)
    wrong = ys.copy()
    wrong[weights == 0] = 10**6 if readout == "softmax" else float("nan")
    losses, gradient = summed(model, estimator, xs, wrong, resets, weights=weights)
    assert relative_error(gradient, by_backpropagation(model, xs, ys, resets, weights=weights)) < 1e-10
    assert float(abs(losses[weights == 0]).max()) == 0


def test_the_exact_oracle_notices_a_transposed_jacobian(monkeypatch):
    """An error planted in H: the recurrent weight with its ends exchanged."""
    from evergrad._core import linearize

    right = linearize.recurrent_weight
    monkeypatch.setattr(linearize, "recurrent_weight", lambda cell: right(cell).transpose(2, 1, 0))
    model = make_model("rhn", units=4, scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH)
    _, gradient = summed(model, eg.RTRL(), xs, ys, resets)
    assert relative_error(gradient, by_backpropagation(model, xs, ys, resets)) > 1e-3
