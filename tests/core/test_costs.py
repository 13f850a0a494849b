"""What a step must not do: build large arrays, keep two copies of the state, or compile again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params

import evergrad as eg
from evergrad._core.linearize import initial_state, linearize
from tests.helpers import make_cell, make_data, make_model, one_step

pytestmark = pytest.mark.optimised


def largest_intermediate(function, *args):
    """The most numbers in any array of the traced program, sub-programs included."""

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            yield from (v.aval.size for v in equation.outvars if hasattr(v.aval, "size"))
            for sub in jaxprs_in_params(equation.params):
                yield from walk(sub)

    return max(walk(jax.make_jaxpr(function)(*args).jaxpr))


@pytest.mark.parametrize("cell", ["rhn", "lstm", "reset-before-gru"])
def test_uoro_builds_no_jacobian(cell):
    """n² cost: nothing larger than the parameters, where a dense F would have m times as many numbers."""
    cell = make_cell(cell, units=32)
    parameters = sum(a.size for a in jax.tree.leaves(cell))
    state, x = initial_state(cell), jnp.zeros(cell.inputs)
    _, memory = linearize(cell, state, x, jnp.asarray(False))
    estimator = eg.UORO()
    step = lambda carried, memory, key: one_step(estimator, carried, cell, memory, key)  # noqa: E731
    assert largest_intermediate(step, estimator.influence.init(cell), memory, jax.random.key(0)) <= parameters


def test_the_measure_notices_a_dense_jacobian():
    cell = make_cell("reset-before-gru", units=32)
    _, memory = linearize(cell, initial_state(cell), jnp.zeros(cell.inputs), jnp.asarray(False))
    estimator = eg.RTRL()
    step = lambda carried, memory, key: one_step(estimator, carried, cell, memory, key)  # noqa: E731
    parameters = sum(a.size for a in jax.tree.leaves(cell))
    assert largest_intermediate(step, estimator.influence.init(cell), memory, jax.random.key(0)) >= 32 * parameters // 2


@pytest.mark.parametrize("estimator", [eg.OK(rank=2, window=2), eg.UORO(), eg.TBPTT(horizon=4, stride=2)], ids=repr)
def test_the_state_is_given_away_and_the_model_is_not(estimator):
    model = make_model("rhn")
    learner = eg.Learner(model, estimator, optax.adam(1e-3))
    first = learner.init(batch=2, key=jax.random.key(0))
    learner.run(first, *make_data(5))
    assert all(a.is_deleted() for a in jax.tree.leaves((first.hidden, first.model, first.track.carried)))
    assert not any(a.is_deleted() for a in jax.tree.leaves(model))
    np.testing.assert_array_equal(learner.init(batch=2, key=jax.random.key(0)).model.cell.weight, model.cell.weight)


def test_clipping_is_of_the_recurrent_gradient_alone():
    seen = []

    def look(updates, params):
        jax.debug.callback(
            lambda cell, readout: seen.append((cell, readout)), updates.cell.weight, updates.readout.weight
        )
        return jax.tree.map(jnp.zeros_like, updates)

    model = make_model("rhn", readout="linear", scale=1.5)
    data = make_data(6, readout="linear")
    for clip in (None, 1e-3):
        learner = eg.Learner(model, eg.RTRL(), optax.stateless(look), clip=clip)
        learner.run(learner.init(batch=2, key=jax.random.key(0)), *data)
    jax.effects_barrier()
    free, clipped = seen[:6], seen[6:]
    for (cell, readout), (small, same) in zip(free, clipped, strict=True):
        np.testing.assert_allclose(readout, same)
        assert np.linalg.norm(small) == pytest.approx(1e-3)
        np.testing.assert_allclose(small / 1e-3, cell / np.linalg.norm(cell), atol=1e-9)


def test_tbptt_updates_once_a_stride_with_the_mean():
    model = make_model("rhn")
    xs, ys, resets = make_data(6)
    learner = eg.Learner(model, eg.TBPTT(horizon=3, stride=3), optax.sgd(1.0))
    state, _ = learner.run(learner.init(batch=2, key=jax.random.key(0)), xs[:2], ys[:2], resets[:2])
    np.testing.assert_array_equal(state.model.cell.weight, model.cell.weight)
    state, _ = learner.run(state, xs[2:3], ys[2:3], resets[2:3])
    _, gradients = eg.gradients(model, eg.TBPTT(horizon=3, stride=3), xs[:3], ys[:3], resets[:3], key=jax.random.key(0))
    np.testing.assert_allclose(model.cell.weight - state.model.cell.weight, gradients.cell.weight[2] / 3, atol=1e-14)
