"""KeRNL: frozen on leaky units it is their own decay, and on units that do not see each other it learns that decay."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import initial_state
from evergrad._core.model import encode
from evergrad._estimators.kernl import Kernel, Kernels
from tests.helpers import linearized, make_cell, stepped


class Linear(eg.KroneckerCell):
    """h' = z."""

    def activate(self, z, state):
        return z


class EarlyNoise(Kernel):
    """The slip of a public version: the noise is in the filter a step before it is in the network."""

    def perturbed(self, known, cell, memory, noise):
        late = known.slopes  # what the last step drew, parked here
        right = Kernel.perturbed(
            self, eqx.tree_at(lambda k: k.slopes, known, jnp.zeros_like(late)), cell, memory, noise
        )
        noisy = right.noisy + self.noise * (late - noise)
        quiet = self._both(known, cell, memory)[0]
        error = known.spread @ right.filtered - (noisy - quiet) / self.noise
        spread = known.spread - self.rate * jnp.outer(error, right.filtered)
        return Kernels(right.traces, noisy, right.filtered, noise, spread, known.decays)


def test_frozen_on_leaky_units_it_keeps_the_direct_path_only():
    cell = eg.Leaky(3, 3, key=jax.random.key(0), leak=0.3)
    influence, carried = eg.KeRNL(rate=0, decay=0.7).influence, None
    carried, direct, hidden = influence.init(cell), jnp.zeros((3, *cell.weight.shape)), initial_state(cell)
    for t in range(8):
        hidden, memory = linearized(cell, hidden, encode(cell, jnp.asarray(t % 3)), jnp.asarray(t == 4))
        carried = stepped(eg.KeRNL(rate=0, decay=0.7), carried, cell, memory, jax.random.key(t))
        own = jnp.einsum("p,mq->mpq", memory.regressor, jnp.diag(memory.diagonals[0, 0]))
        direct = memory.alive * memory.direct[0, 0][:, None, None] * direct + own
    found = influence.materialise(carried, cell).weight
    np.testing.assert_allclose(found, direct, rtol=0, atol=1e-12)
    wrong = eg.KeRNL(rate=0, decay=0.6)
    assert (
        float(
            abs(
                wrong.influence.materialise(stepped(wrong, carried, cell, memory, jax.random.key(9)), cell).weight
                - found
            ).max()
        )
        > 1e-3
    )


def learned(kind, steps=6000):
    """β and κ of two linear units with decays of their own, from β = ½ and κ = ½."""
    decays = jnp.asarray([0.3, 0.8])
    cell = Linear(1, 2, key=jax.random.key(0))
    cell = eqx.tree_at(
        lambda c: c.weight, cell, jnp.zeros_like(cell.weight).at[1:3].set(jnp.diag(decays)).at[0].set(1.0)
    )
    influence = kind(0.01, 0.1, 0.5)
    start = eqx.tree_at(lambda k: k.spread, influence.init(cell), 0.5 * jnp.eye(2))

    def step(carry, key):
        hidden, known = carry
        x = jax.random.normal(key, (1,))
        hidden, memory = linearized(cell, hidden, x, jnp.asarray(False))
        noise = jax.random.normal(jax.random.fold_in(key, 1), (2,))
        return (hidden, influence.perturbed(known, cell, memory, noise)), None

    run = jax.jit(lambda keys: jax.lax.scan(step, (initial_state(cell), start), keys)[0][1])
    known = run(jax.random.split(jax.random.key(3), steps))
    return known.spread, known.decays, decays


def test_on_linear_units_it_learns_their_decay():
    spread, found, decays = learned(Kernel)
    np.testing.assert_allclose(found, decays, atol=1e-3)
    np.testing.assert_allclose(spread, jnp.eye(2), atol=1e-3)


def test_noise_that_is_filtered_a_step_early_is_noticed():
    spread, _, _ = learned(EarlyNoise)
    assert float(abs(spread - jnp.eye(2)).max()) > 0.05


@pytest.mark.parametrize("name", ["rhn", "lstm", "reset-before-gru"])
def test_other_cells_are_refused(name):
    with pytest.raises(eg.InputError, match="one kernel a unit"):
        eg.KeRNL().check(make_cell(name))


@pytest.mark.parametrize("settings", [{"rate": -1}, {"noise": 0.0}, {"decay": 1.1}, {"window": -1}])
def test_settings_that_cannot_be(settings):
    with pytest.raises(eg.InputError):
        eg.KeRNL(**settings)
