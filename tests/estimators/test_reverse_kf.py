"""R-KF-RTRL: the mean over all signs of all steps is the exact influence."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import initial_state
from evergrad._core.model import encode
from tests.helpers import crossed, linearized, make_cell, one_step, stepped


def steps_of(cell, count):
    """The memories of some steps of one stream, from a state that is not zero."""
    hidden, memories = 0.3 * jnp.ones_like(initial_state(cell)), []
    for t in range(count):
        hidden, memory = linearized(cell, hidden, encode(cell, jnp.asarray(t % cell.inputs)), jnp.asarray(False))
        memories.append(memory)
    return memories


def mean_and_truth(cell, monkeypatch):
    """Over all signs of two steps, given where the keys would be."""
    monkeypatch.setattr(jax.random, "rademacher", lambda signs, shape, dtype: signs.reshape(shape))
    memories, q, estimator = steps_of(cell, 2), cell.weight.shape[1], eg.ReverseKF()
    signs = jnp.asarray(list(itertools.product([1.0, -1.0], repeat=2 * q))).reshape(-1, 2, q)

    def estimate(signs):
        carried = estimator.influence.init(cell)
        for memory, nu in zip(memories, signs, strict=True):
            carried = one_step(estimator, carried, cell, memory, nu)
        return estimator.influence.materialise(carried, cell).weight

    carried = eg.RTRL().influence.init(cell)
    for memory in memories:
        carried = stepped(eg.RTRL(), carried, cell, memory, None)
    return jax.jit(jax.vmap(estimate))(signs).mean(0), carried.weight


@pytest.mark.parametrize("name", crossed(["rnn", "rhn", "leaky"], lambda name: name == "rhn"))
def test_the_mean_over_all_signs_is_the_influence(name, monkeypatch):
    mean, truth = mean_and_truth(make_cell(name, units=2, scale=1.5), monkeypatch)
    np.testing.assert_allclose(mean, truth, rtol=0, atol=1e-12)
