"""Recurrent backpropagation against implicit differentiation and against TBPTT, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import recurrent_backpropagation as rbp

import evergrad as eg

UNITS, INPUTS, OUTPUTS = 6, 3, 2
EXACT = {"steps": 4000, "rounds": 4000, "enough": 1e-12, "still": 1e-14}


def model(scale=1.0, seed=0):
    one, two = jax.random.split(jax.random.key(seed))
    cell = eg.RNN(INPUTS, UNITS, key=one, initial="orthogonal:0.8")
    cell = eqx.tree_at(lambda c: c.weight, cell, scale * cell.weight)
    return eg.Model(cell, eg.Linear(UNITS, OUTPUTS, key=two, initial="fan_in"))


def data(seed=1):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(4, INPUTS))), jnp.asarray(rng.normal(size=(4, OUTPUTS)))


def implicit(model, x, y):
    """δ (I − H)⁻¹ F with the matrices written out."""
    cell = model.cell
    h, _ = rbp.settle(cell, x, 4000, 0.0)
    size = h.size

    def step(h, w):
        return eqx.tree_at(lambda c: c.weight, cell, w).step(h, x)

    transition, immediate = jax.jacobian(step, argnums=(0, 1))(h, cell.weight)
    delta = jax.grad(lambda h: model.readout.loss(model.readout(cell.output(h)), y))(h)
    matrix = jnp.eye(size) - transition.reshape(size, size)
    return jnp.tensordot(jnp.linalg.solve(matrix.T, delta.reshape(-1)), immediate.reshape(size, *cell.weight.shape), 1)


def difference(gradient, xs, ys, of=model):
    wanted = jax.vmap(lambda x, y: implicit(of(), x, y))(xs, ys).mean(0)
    return float(jnp.linalg.norm(gradient.cell.weight - wanted) / jnp.linalg.norm(wanted))


@pytest.mark.parametrize("solver", list(rbp.SOLVERS))
def test_every_solver_is_implicit_differentiation(solver):
    xs, ys = data()
    _, gradient = rbp.gradient(model(), xs, ys, solver, **EXACT)
    assert difference(gradient, xs, ys) < 1e-8


def test_the_oracle_sees_a_transposed_transition(monkeypatch):
    xs, ys = data()

    def swapped(back, forward, delta):
        return rbp.neumann(forward, back, delta)

    monkeypatch.setitem(rbp.SOLVERS, "transposed", swapped)
    _, gradient = rbp.gradient(model(), xs, ys, "transposed", **EXACT)
    assert difference(gradient, xs, ys) > 1e-2


def test_the_oracle_sees_a_sum_that_stops_early():
    xs, ys = data()
    _, gradient, *_ = rbp.of_those_at_rest(model(), xs, ys, "Neumann", **EXACT | {"rounds": 3, "enough": 0.5})
    assert difference(gradient, xs, ys) > 1e-4


def at_rest(horizon, x, y, steps=200):
    """TBPTT's gradient of the last step's loss, when nothing has moved for long."""
    xs, ys = (jnp.broadcast_to(a[None, None], (steps, 1, *a.shape)) for a in (x, y))
    _, gradients = eg.gradients(model(), eg.TBPTT(horizon=horizon, stride=1), xs, ys, key=jax.random.key(0))
    return gradients.cell.weight[-1]


def test_rtrl_at_rest_is_implicit_differentiation():
    """Under a constant input G becomes (I − H)⁻¹ F."""
    x, y = (a[0] for a in data())
    xs, ys = (jnp.broadcast_to(a[None, None], (500, 1, *a.shape)) for a in (x, y))
    _, gradients = eg.gradients(model(), eg.RTRL(), xs, ys, key=jax.random.key(0))
    wanted = implicit(model(), x, y)
    assert float(jnp.linalg.norm(gradients.cell.weight[-1] - wanted) / jnp.linalg.norm(wanted)) < 1e-10
    assert float(jnp.linalg.norm(gradients.cell.weight[5] - wanted) / jnp.linalg.norm(wanted)) > 1e-4  # not at rest yet


def test_neumann_is_tbptt_with_one_step_more():
    """Σ_{j ≤ K} δ Hʲ F takes K + 1 rounds, and is TBPTT(K + 1); TBPTT(K + 2) is something else."""
    terms = 7
    x, y = (a[0] for a in data())
    # no residual is small enough: exactly so many rounds
    _, gradient, *_ = rbp.of_stream(model(), x, y, "Neumann", terms + 1, -1.0, 4000, 0.0)
    same, other = at_rest(terms + 1, x, y), at_rest(terms + 2, x, y)
    size = jnp.linalg.norm(same)
    assert float(jnp.linalg.norm(gradient.cell.weight - same) / size) < 1e-8
    assert float(jnp.linalg.norm(gradient.cell.weight - other) / size) > 1e-4


def test_a_state_that_does_not_settle_is_refused():
    xs, ys = data()
    with pytest.raises(rbp.NotAtRest, match="not at rest"):
        rbp.gradient(model(scale=4.0), 0.1 * xs, ys, "CG", steps=300)


def test_a_residual_that_does_not_fall_is_refused():
    xs, ys = data()
    with pytest.raises(rbp.NotAtRest, match="residual"):
        rbp.gradient(model(), xs, ys, "plain", rounds=3)


def test_streams_that_are_refused_do_not_enter_the_mean():
    xs, ys = data()
    wild = jnp.concatenate([xs, jnp.full((1, INPUTS), jnp.nan)])
    wanted = rbp.gradient(model(), xs, ys, "CG", **EXACT)[1]
    _, gradient, out, *_ = rbp.of_those_at_rest(model(), wild, jnp.concatenate([ys, ys[:1]]), "CG", **EXACT)
    assert float(out) == pytest.approx(0.2)
    assert jnp.allclose(gradient.cell.weight, wanted.cell.weight, rtol=1e-10, atol=1e-12)
