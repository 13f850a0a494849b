"""Errors found in public code of this field, each planted here or where its neighbours are, and caught; in the package itself they are
planted by `make planted`.

| slip | planted and caught in |
|---|---|
| LRU: log γ in the place of γ in the traces of the input weights | tests/cells/test_unit_cells.py::test_the_slips_of_public_code_are_caught |
| RTU: the factor e^θ missing from the traces of θ | the same |
| SnAp-1 of a GRU: σ'(z) written σ(z)σ(1 − z); the candidate carried by the reset gate's weights | here |
| SnAp-1 of an RNN: immediate influence paired a step late | test_local.py::test_snap1_is_rtrl_with_all_but_the_own_unit_masked_out |
| KeRNL: noise in the filter a step before it is in the network | test_kernl.py::test_noise_that_is_filtered_a_step_early_is_noticed |
| "RFLO" with a decay of 0.9 on units that have none | here |
| KF that finds ĥ again as the mean of F/D: a saturated unit draws it to 0 | here |
| "e-prop" that keeps a unit's weight onto itself | test_local.py::test_eprop_is_rtrl_with_the_recurrent_weights_out_of_h |
| leaky units: the immediate influence without the leak, 1/τ in the place of Δt/τ | here |
| RLS with the bias outside the least squares | tests/core/test_rls.py::test_it_is_batch_ridge_at_every_step |
| corrections counted a call, not a step | test_local.py::test_a_fold_is_the_steps_one_by_one |
| hidden units relabelled within the step, so that no scope is right | here |
| parameters whose gradient is exactly 0 | test_no_leaf_is_zero.py |
| DNI: the synthetic gradient times 0.1 | test_dni.py::test_with_the_true_cotangents_it_is_the_full_gradient |
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import immediate, initial_state
from evergrad._core.model import encode
from evergrad._estimators import kf
from tests.helpers import linearized, make_cell, make_data, one_step, relative_error

STEPS = 8


def remembered(cell, steps=STEPS):
    """Inputs, states before and memories of some steps of one stream."""
    xs, hidden, found = make_data(steps, 1)[0][:, 0], initial_state(cell), []
    for x in xs:
        after, memory = linearized(cell, hidden, encode(cell, jnp.asarray(x)), jnp.asarray(False))
        found.append((int(x), np.asarray(hidden), memory))
        hidden = after
    return found


def carried(estimator, cell, memories, key=None):
    found = estimator.influence.init(cell)
    for memory in memories:
        found = one_step(estimator, found, cell, memory, key)
    return estimator.influence.materialise(found, cell).weight


def carried_by(estimator, cell, memories, key=None):
    return np.asarray(eqx.filter_jit(carried)(estimator, cell, memories, key))


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def snap1_of_a_gru(cell, slope=lambda z: sigmoid(z) * (1 - sigmoid(z)), carrier=3):
    """e [p, 4, n] by hand. `slope` is σ', and `carrier` the gate whose weights onto itself carry the candidate."""
    n, weight = cell.units, np.where(cell.mask, np.asarray(cell.weight), 0)
    own = np.stack([np.diag(weight[cell.inputs : -1, g * n : (g + 1) * n]) for g in range(4)])
    e = np.zeros((len(weight), 4, n))
    for x, h, _ in remembered(cell):
        seen = np.concatenate([np.eye(cell.inputs)[x], h, [1.0]])
        z = (seen @ weight).reshape(4, n)
        reset, update = sigmoid(z[0]), sigmoid(z[1])
        candidate = np.tanh(z[2] + reset * z[3])
        inner = (1 - update) * (1 - candidate**2)
        d = np.stack([inner * z[3] * slope(z[0]), (h - candidate) * slope(z[1]), inner, inner * reset])
        keep = update + d[0] * own[0] + d[1] * own[1] + d[3] * own[carrier]
        e = keep * e + seen[:, None, None] * d
    return np.where(cell.mask.reshape(len(weight), 4, n), e, 0)


def test_snap1_on_a_gru_has_the_slopes_and_the_weights_of_its_gates():
    cell = make_cell("gru", scale=2.0)
    found = carried_by(eg.SnAp1(), cell, [memory for *_, memory in remembered(cell)])
    found = np.einsum("ipgi->pgi", found.reshape(cell.units, -1, 4, cell.units))
    np.testing.assert_allclose(snap1_of_a_gru(cell), found, atol=1e-12)
    for slip in ({"slope": lambda z: sigmoid(z) * sigmoid(1 - z)}, {"carrier": 0}):
        assert abs(snap1_of_a_gru(cell, **slip) - found).max() > 1e-3


def forgetting(cell, decay):
    """e' = decay e + F, on any cell of one state variable."""
    e = 0.0
    for *_, memory in remembered(cell):
        e = decay * e + np.asarray(immediate(cell, memory).weight)
    return e


def test_units_without_a_leak_have_no_decay():
    """On a plain RNN e-prop is the immediate influence, and RFLO, which is about leaks, is refused."""
    cell = make_cell("rnn", scale=1.5)
    found = carried_by(eg.EProp(), cell, [memory for *_, memory in remembered(cell)])
    np.testing.assert_allclose(found, forgetting(cell, 0.0), atol=1e-12)
    assert abs(found - forgetting(cell, 0.9)).max() > 1e-2
    with pytest.raises(eg.InputError, match="leaky units"):
        eg.RFLO().check(cell)


def rflo_by_hand(cell, leak, share):
    """e [p, n] of leaky units: what is kept of it is 1 − leak, and what comes in is a share of φ' ĥ."""
    weight, e = np.asarray(cell.weight), 0.0
    for x, h, _ in remembered(cell):
        seen = np.concatenate([np.eye(cell.inputs)[x], h, [1.0]])
        e = (1 - leak) * e + share * np.outer(seen, 1 - np.tanh(seen @ weight) ** 2)
    return e


def test_the_leak_is_in_what_comes_in_too():
    cell = eg.Leaky(3, 3, leak=0.3, key=jax.random.key(0))
    found = carried_by(eg.RFLO(), cell, [memory for *_, memory in remembered(cell)])
    found = np.einsum("ipi->pi", found)
    np.testing.assert_allclose(found, rflo_by_hand(cell, 0.3, 0.3), atol=1e-12)
    assert abs(found - rflo_by_hand(cell, 0.3, 1.0)).max() > 1e-2


def kf_mean(cell, memories, monkeypatch):
    """The mean of KF's influence over all sign sequences."""
    given = []
    monkeypatch.setattr(kf, "_sign", lambda key, dtype: given.pop(0).astype(dtype))

    @jax.jit
    def by(signs):
        given[:] = signs
        return carried(eg.KF(), cell, memories, jax.random.key(0))

    every = jnp.asarray([*itertools.product([1.0, -1.0], repeat=len(memories))])
    return sum(map(by, every)) / len(every)


def test_a_saturated_unit_does_not_bias_kf(monkeypatch):
    """Unit 0 is so far out that D = 0, exactly: ĥ cannot be had back from F / D, as a public version has it."""
    cell = make_cell("rnn")
    cell = eqx.tree_at(lambda c: c.weight, cell, cell.weight.at[-1, 0].set(60.0))
    memories = [memory for *_, memory in remembered(cell, 3)]
    assert float(memories[0].diagonals[0, 0, 0]) == 0
    exact = carried_by(eg.RTRL(), cell, memories)
    np.testing.assert_allclose(kf_mean(cell, memories, monkeypatch), exact, atol=1e-13)


class Rolled(eg.Cell):
    """A tanh RNN whose units change places at every step: a weight's own unit is not where its effect goes."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: jax.Array

    def initial(self):
        return jnp.zeros(self.units)

    def step(self, state, x):
        return jnp.roll(jnp.tanh(jnp.concatenate([x, state, jnp.ones(1)]) @ self.weight), 1)

    def output(self, state):
        return state


def test_units_that_change_places_are_either_right_or_refused():
    plain = make_cell("rnn", scale=1.5)
    model = eg.Model(Rolled(3, 3, plain.weight), eg.Softmax(3, 3, key=jax.random.key(1), initial="fan_in"))
    data = make_data(6)
    exact = jax.grad(lambda m: m.losses(*data).mean(1).sum())(model)
    for estimator in (eg.RTRL(), eg.OK(rank=5, window=6)):
        _, found = eg.gradients(model, estimator, *data, key=jax.random.key(0))
        assert relative_error(found.cell.weight.sum(0), exact.cell.weight) < 1e-10
    with pytest.raises(eg.InputError, match="which weight belongs to which unit"):
        eg.SnAp1().check(model.cell)


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_a_kronecker_cell_cannot_change_places(name):
    """`activate` is given one unit at a time, so that there is nothing to roll."""
    seen = []
    kind = type(make_cell(name))

    class Spying(kind):
        def activate(self, z, state):
            seen.extend(a.shape for a in (*z, *state))
            return kind.activate(self, z, state)

    cell = Spying(3, 3, key=jax.random.key(0))
    cell.step(cell.initial(), jnp.zeros(3))
    assert set(seen) == {()}
