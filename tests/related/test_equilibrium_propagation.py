"""Equilibrium propagation against implicit differentiation: the estimate, and how fast it gets there as β → 0."""

import equilibrium_propagation as ep
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

STEPS = 600
BETAS = (0.04, 0.02, 0.01)


def case():
    net = ep.Energy((4, 5, 3), key=jax.random.key(0))
    rng = np.random.default_rng(1)
    return net, jnp.asarray(rng.random(4)), jnp.asarray([1.0, 0.0, 0.0])


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def implicit(net, x, y):
    """−(∂C/∂s) (∂²E/∂s²)⁻¹ ∂²E/∂s∂θ where E is least, with the matrices written out."""
    rest, shape = jax.flatten_util.ravel_pytree(ep.relax(net, net.initial(), x, 0.0, y, STEPS))
    weights, rebuild = jax.flatten_util.ravel_pytree(net)

    def energy(s, w):
        return rebuild(w).energy(shape(s), x)

    curvature = jax.hessian(energy)(rest, weights)
    mixed = jax.jacobian(jax.grad(energy), argnums=1)(rest, weights)
    pull = jax.grad(lambda s: ep.cost(shape(s), y))(rest)
    return -jnp.linalg.solve(curvature, pull) @ mixed


def errors(symmetric, estimate=ep.estimate):
    net, x, y = case()
    wanted = implicit(net, x, y)
    find = jax.jit(lambda beta: flat(estimate(net, x, y, beta, symmetric, STEPS, STEPS)[1]))
    return np.array([float(jnp.linalg.norm(find(b) - wanted) / jnp.linalg.norm(wanted)) for b in BETAS])


def order(errors):
    """The power of β with which errors fall: the slope of a line through them on logarithmic axes."""
    return float(np.polyfit(np.log(BETAS), np.log(errors), 1)[0])


@pytest.mark.parametrize(("symmetric", "power"), [(False, 1), (True, 2)])
def test_the_estimate_goes_to_the_gradient_with_the_power_of_beta(symmetric, power):
    found = errors(symmetric)
    assert found[-1] < 0.05**power
    assert abs(order(found) - power) < 0.1


def test_the_oracle_sees_a_nudge_of_half_the_strength():
    """As if C lacked its ½ in one place only: an error that β → 0 does not heal."""

    def planted(net, x, y, beta, symmetric, free, nudged):
        loss, gradient = ep.estimate(net, x, y, 0.5 * beta, symmetric, free, nudged)
        return loss, jax.tree.map(lambda a: 0.5 * a, gradient)

    assert errors(True, planted)[-1] > 0.4


def test_the_oracle_sees_weights_that_are_not_symmetric(monkeypatch):
    """Without an energy there is no such theorem: the way back at 0.9 of the way there is seen, at every β."""
    symmetric = ep.Energy.nudged

    def lopsided(net, state, x, beta, y):
        new = symmetric(net, state, x, beta, y)
        back = jax.vjp(ep.rho, state[0])[1](net.weights[1] @ ep.rho(state[1]))[0]
        return (new[0] - 0.1 * ep.STEP * back, new[1])

    monkeypatch.setattr(ep.Energy, "nudged", lopsided)
    net, x, y = case()
    wanted = flat(ep.exact(net, x, y, STEPS))
    found = flat(ep.estimate(net, x, y, 0.01, True, STEPS, STEPS)[1])
    assert float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted)) > 1e-2


def test_backpropagation_through_the_relaxation_is_the_gradient_at_rest():
    net, x, y = case()
    wanted = implicit(net, x, y)
    assert float(jnp.linalg.norm(flat(ep.exact(net, x, y, STEPS)) - wanted) / jnp.linalg.norm(wanted)) < 1e-8


def test_relaxing_lowers_the_energy():
    net, x, y = case()
    states = [ep.relax(net, net.initial(), x, 0.0, y, steps) for steps in (0, 5, 50)]
    energies = [float(net.energy(state, x)) for state in states]
    assert energies[0] > energies[1] > energies[2]
    assert eqx.tree_equal(states[0], net.initial())
