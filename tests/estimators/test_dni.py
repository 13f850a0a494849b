"""Synthetic gradients: with the truth for a critic the full gradient, with none TBPTT, and on a linear network the right one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import flat_step, initial_state, linearize
from evergrad._core.model import encode
from evergrad._core.parameters import parted
from evergrad._pasts.base import Seen
from evergrad._pasts.foretold import Foretold
from tests.helpers import flat, make_cell, make_data, make_model

WINDOW = 3
INPUTS = jnp.asarray([0, 2, 1, 1, 0, 2])
SOUGHT = jax.random.normal(jax.random.key(5), (2 * WINDOW, 6))  # L_t = sought_t · state_t


def windows_of(cell, critics):
    """The sum of the gradients of two windows of one stream, with these constants foretold at their ends."""
    past, influence = Foretold(WINDOW, WINDOW, 0.0, 1), eg.TBPTT().influence
    state, total = initial_state(cell)[None], 0
    track = past.start(influence, cell, ((), None), 1)

    @jax.jit
    def step(state, track, x, sought):
        state, memory = jax.vmap(lambda state: linearize(cell, state, encode(cell, x), jnp.asarray(False)))(state)
        track = past.remember(influence, cell, track, memory, None)
        return state, past.wait(track, Seen(sought[None], None, (), jnp.asarray(True)))

    for t, (x, sought) in enumerate(zip(INPUTS, SOUGHT, strict=True)):
        if bool(past.is_full(track)):
            track = past.make_room(influence, cell, track, None)
        state, track = step(state, track, x, sought[: state.shape[1]])
        if bool(past.due(track)):
            track = eqx.tree_at(lambda t: t.shared.frozen, track, track.shared.frozen.at[-1].set(critics[t // WINDOW]))
            seen, track = past.waited(track)
            gradient, track = past.gradient(influence, cell, track, state, seen, None)
            total = total + flat(gradient)
    return total


def truth_of(cell):
    """The gradient of Σ L, and the cotangent at the first window's end of the losses behind it."""
    params, rest = parted(cell)

    def loss(params, shift):
        state, total = initial_state(cell), jnp.zeros(())
        for t, (x, sought) in enumerate(zip(INPUTS, SOUGHT, strict=True)):
            state = flat_step(eqx.combine(params, rest), state, encode(cell, x))
            total = total + sought[: len(state)] @ state
            state = state + shift if t == WINDOW - 1 else state
        return total

    slopes, cotangent = jax.jit(jax.grad(loss, (0, 1)))(params, jnp.zeros_like(initial_state(cell)))
    return flat(slopes), cotangent


def test_with_the_true_cotangents_it_is_the_full_gradient():
    cell = make_cell("lstm", units=3, scale=1.5)
    truth, cotangent = truth_of(cell)
    nothing = jnp.zeros_like(cotangent)
    np.testing.assert_allclose(windows_of(cell, [cotangent, nothing]), truth, rtol=0, atol=1e-12)
    own = SOUGHT[WINDOW - 1, : len(cotangent)]  # planted: the exit's own loss counted twice
    assert float(abs(windows_of(cell, [cotangent + own, nothing]) - truth).max()) > 1e-3
    assert float(abs(windows_of(cell, [0.1 * cotangent, nothing]) - truth).max()) > 1e-3  # and the original's scale


def test_a_critic_that_is_never_fitted_is_tbptt_bit_for_bit():
    model, data = make_model("rhn", scale=1.5), make_data(8, resets=0.2)
    one, two = (
        eg.gradients(model, estimator, *data, key=jax.random.key(0))[1]
        for estimator in (eg.DNI(window=3, rate=0), eg.TBPTT(horizon=3))
    )
    assert eqx.tree_equal(one, two)


class Linear(eg.KroneckerCell):
    """h' = z."""

    def activate(self, z, state):
        return z


MATRIX = jnp.asarray([[0.6, 0.3], [-0.2, 0.5]])


def linear_critic(window, rate, fits, streams=64):
    """The mean of A over the second half of a run on h' = hM + x, L = ½‖h‖²; x is white."""
    past, cell = Foretold(window, window, rate, 5), Linear(2, 2, key=jax.random.key(0))
    weight = jnp.concatenate([jnp.eye(2), MATRIX, jnp.zeros((1, 2))])
    cell = eqx.tree_at(lambda c: c.weight, cell, weight)

    def one_window(carry, key):
        state, track = carry
        for x in jax.random.normal(key, (window, streams, 2)):
            state, memory = jax.vmap(lambda h, x: linearize(cell, h, x, jnp.asarray(False)))(state, x)
            track = past.remember(None, cell, track, memory, None)
            track = past.wait(track, Seen(state / streams, None, (), jnp.asarray(True)))  # of the mean over streams
        seen, track = past.waited(track)
        _, track = past.gradient(None, cell, track, state, seen, None)
        return (state, track), track.shared.weight

    start = jnp.zeros((streams, 2)), past.start(None, cell, ((), None), streams)
    weights = jax.jit(lambda keys: jax.lax.scan(one_window, start, keys)[1])(jax.random.split(jax.random.key(0), fits))
    return np.asarray(weights[fits // 2 :].mean(0))


def test_the_fixed_point_on_a_linear_network():
    """ĉ(h) = h (P − 1) with P = 1 + M P Mᵀ: all the future's losses, the exit's own left out."""
    found, p = linear_critic(2, 0.05, 6000), np.eye(2)
    for _ in range(200):
        p = np.eye(2) + MATRIX @ p @ MATRIX.T
    wanted = p - np.eye(2)
    assert np.linalg.norm(found[:2] - wanted) < 0.05 * np.linalg.norm(wanted)
    assert np.abs(found[2]).max() < 0.05
    assert np.linalg.norm(found[:2] - p) > 0.5 * np.linalg.norm(wanted)  # what it were with the exit's own


def test_a_reset_leaves_nothing_to_foretell():
    """What arrives behind a reset at a window's first step is nothing, and the critic is taught that."""
    cell = make_cell("rhn", units=3)
    past = Foretold(1, 1, 0.5, 1)
    track = past.start(None, cell, ((), None), 2)
    state = jnp.full((2, 3), 0.5)
    track = eqx.tree_at(lambda t: t.streams, track, state)
    reset = jnp.asarray([True, True])
    state, memory = jax.vmap(lambda s, r: linearize(cell, s, encode(cell, jnp.asarray(1)), r))(state, reset)
    track = past.remember(None, cell, track, memory, None)
    seen = Seen(jnp.ones((2, 3)), None, (), jnp.asarray(True))
    _, track = past.gradient(None, cell, track, state, seen, None)
    assert float(abs(track.shared.weight).max()) == 0


@pytest.mark.parametrize("settings", [{"window": 0}, {"rate": 2.0}, {"refresh": 0}])
def test_settings_that_cannot_be(settings):
    with pytest.raises(eg.InputError):
        eg.DNI(**settings)
