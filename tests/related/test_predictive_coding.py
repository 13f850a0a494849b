"""P-TNCN: at small β, with E₁ = W₁ᵀ and the upper layer silent, layer 1 is trained by β times TBPTT(1)'s gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import predictive_coding as pc
import pytest

import evergrad as eg

SYMBOLS, UNITS, STEPS, BATCH = 4, 5, 6, 2


def tied(sign=1.0):
    """E₁ = W₁ᵀ, and nothing comes down from layer 2."""
    net = pc.PTNCN(SYMBOLS, UNITS, key=jax.random.key(0))
    return eqx.tree_at(lambda n: (n.E1, n.U), net, (sign * net.W1.T, jnp.zeros_like(net.U)))


def data():
    return np.random.default_rng(1).integers(0, SYMBOLS, (2, STEPS, BATCH))


def changes(net, beta):
    """What every step would change, with frozen weights: M₁, V₁ (over β) and W₁, [T, …]."""

    def one(state, data):
        _, state, change = pc.step(net, state, *data, beta=beta, gamma=0.0)
        return state, (change.M1 / beta, change.V1 / beta, change.W1)

    return jax.lax.scan(one, net.rest(BATCH), tuple(jnp.asarray(a) for a in data()))[1]


def tbptt(net):
    """The same parts of TBPTT(1)'s gradient on an `eg.RNN` with these weights."""
    key = jax.random.key(0)
    weight = jnp.concatenate([net.M1, net.V1, jnp.zeros((1, UNITS))])
    cell = eqx.tree_at(lambda c: c.weight, eg.RNN(SYMBOLS, UNITS, key=key), weight)
    readout = eqx.tree_at(
        lambda r: (r.weight, r.bias), eg.Softmax(UNITS, SYMBOLS, key=key), (net.W1, jnp.zeros(SYMBOLS))
    )
    _, gradients = eg.gradients(eg.Model(cell, readout), eg.TBPTT(horizon=1, stride=1), *data(), key=key)
    of_x, of_h, _ = jnp.split(gradients.cell.weight, [SYMBOLS, SYMBOLS + UNITS], axis=1)
    return of_x, of_h, gradients.readout.weight


def far(a, b):
    a, b = (jax.flatten_util.ravel_pytree(tree)[0] for tree in (a, b))
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


def test_at_small_beta_it_is_tbptt_of_one_step_and_errors_sent_the_wrong_way_are_seen():
    wanted = tbptt(tied())
    errors = [far(changes(tied(), beta), wanted) for beta in (1e-3, 1e-4)]
    assert errors[0] < 1e-2
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)  # O(β)
    assert far(changes(tied(sign=-1.0), 1e-4), wanted) > 0.5
    assert far(changes(pc.PTNCN(SYMBOLS, UNITS, key=jax.random.key(0)), 1e-4), wanted) > 0.1


def test_without_correction_the_states_are_those_of_a_plain_network():
    net, (xs, ys) = tied(), data()
    state = net.rest(BATCH)
    for x, y in zip(xs, ys, strict=True):
        _, state, change = pc.step(net, state, jnp.asarray(x), jnp.asarray(y), beta=0.0)
        assert float(jnp.abs(change.V1).max()) == 0.0
    plain = jnp.zeros((BATCH, UNITS))
    for x in xs:
        plain = jnp.tanh(jnp.eye(SYMBOLS)[x] @ net.M1 + plain @ net.V1)
    assert jnp.allclose(state[0], plain)


def test_errors_travel_by_the_transposed_rule_and_sizes_are_equal():
    net, (xs, ys) = tied(), data()
    _, _, change = pc.step(net, net.rest(BATCH) + 0.1, jnp.asarray(xs[0]), jnp.asarray(ys[0]))
    assert jnp.allclose(change.E1, change.W1.T)
    assert jnp.allclose(change.E2, change.W2.T)
    rival = pc.Rival(103, 0, 1e-3, eg.TBPTT(horizon=1, stride=1)).learner.model
    sizes = [sum(a.size for a in jax.tree.leaves(m)) for m in (pc.PTNCN(103, pc.UNITS, key=jax.random.key(0)), rival)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
