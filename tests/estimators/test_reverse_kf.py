"""R-KF-RTRL: the mean over all signs of all steps is the exact influence."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.blocks import Terms
from evergrad._core.linearize import dense_diagonals, initial_state, linearize, transition
from evergrad._core.model import encode
from evergrad._estimators.reverse_kf import injected
from tests.helpers import crossed, make_cell, one_step


def steps_of(cell, count):
    """The memories of some steps of one stream, from a state that is not zero."""
    hidden, memories = 0.3 * jnp.ones_like(initial_state(cell)), []
    for t in range(count):
        hidden, memory = linearize(cell, hidden, encode(cell, jnp.asarray(t % cell.inputs)), jnp.asarray(False))
        memories.append(memory)
    return memories


def mean_and_truth(cell, planted=1.0):
    """Over all signs of two steps."""
    memories, q = steps_of(cell, 2), cell.weight.shape[1]
    terms = [Terms(m.regressor[None], planted * dense_diagonals(m.diagonals)[:, None]) for m in memories]
    signs = jnp.asarray(list(itertools.product([1.0, -1.0], repeat=2 * q))).reshape(-1, 2, q)

    def estimate(signs):
        b, a = jnp.zeros((initial_state(cell).size, len(cell.weight))), jnp.zeros(q)
        for memory, term, nu in zip(memories, terms, signs, strict=True):
            b, a = injected(transition(cell, memory).matmul(b), a, term, 0, nu)
        return jnp.einsum("mp,q->mpq", b, a)

    mean = jnp.where(cell.mask[None], jax.jit(jax.vmap(estimate))(signs).mean(0), 0)
    carried = eg.RTRL().influence.init(cell)
    for memory in memories:
        carried = one_step(eg.RTRL(), carried, cell, memory, None)
    return mean, carried.weight


@pytest.mark.parametrize("name", crossed(["rnn", "rhn", "leaky"], lambda name: name == "rhn"))
def test_the_mean_over_all_signs_is_the_influence(name):
    mean, truth = mean_and_truth(make_cell(name, units=2, scale=1.5))
    np.testing.assert_allclose(mean, truth, rtol=0, atol=1e-12)


def test_a_planted_error_is_noticed():
    mean, truth = mean_and_truth(make_cell("rnn", units=2, scale=1.5), planted=1.01)
    assert float(abs(mean - truth).max()) > 1e-4
