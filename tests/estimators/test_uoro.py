"""UORO's scale for every unit: right in the mean, and never noisier than one scale for all; every sign vector in turn."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.linearize import immediate, immediate_norms, initial_state, pullback, transition
from evergrad._core.model import encode
from evergrad._estimators.uoro import RankOne
from tests.helpers import crossed, flat, linearized, make_cell

KRONECKER = ["rnn", "rhn", "lstm", "gru", "leaky"]


def memory_of(cell, seed=0):
    """Of a step from some state in the middle of nowhere."""
    state = 0.7 * jax.random.normal(jax.random.key(seed), initial_state(cell).shape)
    return linearized(cell, state, encode(cell, jnp.asarray(seed % cell.inputs)), jnp.asarray(False))[1]


def some_pair(cell, memory, seed=1):
    m = initial_state(cell).size
    u = jax.random.normal(jax.random.key(seed), (m,))
    v = jax.tree.map(
        lambda a: jax.random.normal(jax.random.key(seed + 1), a.shape), pullback(cell, memory, jnp.ones(m))
    )
    return u, v, optax.tree.norm(v) ** 2


def outcomes(influence, pair, cell, memory):
    """[2^m, all entries of u' ⊗ v'], for all sign vectors."""
    signs = jnp.asarray(list(itertools.product([1.0, -1.0], repeat=initial_state(cell).size)))

    def one(signs):
        return flat(influence.materialise(influence.injected(pair, cell, memory, signs), cell))

    return jax.jit(jax.vmap(one))(signs)


def exact(pair, cell, memory):
    u, *rest = pair
    old = RankOne().materialise((transition(cell, memory).matvec(u), *rest), cell)
    return flat(jax.tree.map(jnp.add, old, immediate(cell, memory)))


@pytest.mark.parametrize("name", crossed([*KRONECKER, "reset-before-gru"], lambda name: name in ("rhn", "lstm")))
def test_the_mean_over_all_signs_is_exact(name):
    cell = make_cell(name, units=2, scale=1.5)
    memory = memory_of(cell)
    pair = some_pair(cell, memory)
    mean = outcomes(eg.UORO().influence, pair, cell, memory).mean(0)
    np.testing.assert_allclose(mean, exact(pair, cell, memory), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["rhn", "gru", "reset-before-gru"])
def test_what_is_known_of_v_is_its_norm(name):
    cell = make_cell(name, units=2, scale=1.5)
    memory = memory_of(cell)
    influence, signs = eg.UORO().influence, jnp.ones(initial_state(cell).size).at[1].set(-1.0)
    for before in (influence.init(cell), some_pair(cell, memory)):
        _, v, squares = influence.injected(before, cell, memory, signs)
        np.testing.assert_allclose(squares, optax.tree.norm(v) ** 2, rtol=1e-12)


def test_a_row_that_is_dropped_though_it_is_not_zero_is_noticed():
    class Dropping(RankOne):
        def weights(self, cell, memory):
            return RankOne().weights(cell, memory).at[0].set(0.0)

    cell = make_cell("rhn", units=2, scale=1.5)
    memory = memory_of(cell)
    pair = some_pair(cell, memory)
    error = outcomes(Dropping(), pair, cell, memory).mean(0) - exact(pair, cell, memory)
    assert float(abs(error).max()) > 1e-3


@pytest.mark.parametrize("name", crossed(KRONECKER, lambda name: name in ("rnn", "lstm")))
def test_the_second_moment_of_a_step_is_never_larger(name):
    cell = make_cell(name, units=2, scale=2.0)
    ratios = []
    for seed in range(6):
        memory = memory_of(cell, seed)
        pair = some_pair(cell, memory, seed)
        new, old = (float((outcomes(i, pair, cell, memory) ** 2).sum(1).mean()) for i in (RankOne(), RankOne("one")))
        ratios.append(new / old)
    assert max(ratios) <= 1 + 1e-12
    assert min(ratios) < 0.999


def test_saturated_units_inject_nothing():
    """Half of the units saturated, at the first step: less than 0.7 of the old variance."""
    cell = make_cell("rnn", units=4)
    cell = jax.tree.map(lambda a: a.at[-1, 2:].set(30.0), cell)  # their bias
    memory = memory_of(cell)
    pair = RankOne().init(cell)
    truth = exact(pair, cell, memory)
    new, old = (
        float(((outcomes(i, pair, cell, memory) - truth[None]) ** 2).sum(1).mean()) for i in (RankOne(), RankOne("one"))
    )
    assert float(immediate_norms(cell, memory)[2:].max()) < 1e-12
    assert new < 0.7 * old


def test_a_unit_whose_row_is_exactly_zero_divides_nothing():
    cell = make_cell("rnn", units=2)
    memory = memory_of(cell)
    silent = type(memory)(memory.regressor, memory.diagonals.at[..., 0].set(0.0), memory.direct, memory.alive)
    pair = some_pair(cell, silent)
    found = outcomes(RankOne(), pair, cell, silent)
    assert bool(jnp.isfinite(found).all())
    np.testing.assert_allclose(found.mean(0), exact(pair, cell, silent), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", crossed(KRONECKER, lambda name: name in ("rhn", "lstm")))
def test_the_norms_are_those_of_the_rows(name):
    cell = make_cell(name, scale=1.5)
    memory = memory_of(cell)
    rows = immediate(cell, memory).weight
    np.testing.assert_allclose(immediate_norms(cell, memory), jnp.linalg.norm(rows, axis=(1, 2)), rtol=1e-12)
