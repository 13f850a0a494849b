"""Cells whose units do not see each other: each is the equation it says, and its exact influence is a block a unit."""

import types
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import unit_blocks
from tests.helpers import crossed, relative_error

INPUTS, UNITS, STEPS, BATCH = 2, 3, 9, 2
MAKE = {
    "lru": eg.LRU,
    "rtu": eg.RTU,
    "rtu-nonlinear": lambda *sizes, **rest: eg.RTU(*sizes, linear=False, activation="tanh", **rest),
    "elstm": eg.ELSTM,
    "mingru": eg.MinGRU,
    "minlstm": eg.MinLSTM,
    "rglru": eg.RGLRU,
    "indrnn": lambda *sizes, **rest: eg.IndRNN(*sizes, activation="tanh", **rest),
    "columnar": eg.ColumnarLSTM,
}


def make_cell(name, inputs=INPUTS, units=UNITS):
    return MAKE[name](inputs, units, key=jax.random.key(1))


def make_model(name):
    cell = make_cell(name)
    return eg.Model(cell, eg.Linear(cell.outputs, 2, key=jax.random.key(2), initial="fan_in"))


def make_data(seed=0):
    rng = np.random.default_rng(seed)
    xs, ys = rng.normal(size=(STEPS, BATCH, INPUTS)), rng.normal(size=(STEPS, BATCH, 2))
    return xs, ys, rng.random((STEPS, BATCH)) < 0.15


def by_backpropagation(model, data):
    return jax.jit(jax.grad(lambda model: model.losses(*data).mean(1).sum()))(model)


@pytest.mark.parametrize("name", crossed(MAKE, lambda name: name in ("lru", "elstm")))
def test_rtrl_is_backpropagation_through_all_of_time_for_every_parameter(name):
    """At every step, two streams with resets of their own, and SnAp-1 the same."""
    model, data = make_model(name), make_data()
    assert data[2][1:].any()
    exact = jax.jit(jax.jacrev(lambda model: model.losses(*data).mean(1)))(model)
    for estimator in (eg.RTRL(), eg.SnAp1()):
        _, gradients = eg.gradients(model, estimator, *data, key=jax.random.key(0))
        for (path, right), found in zip(
            jax.tree_util.tree_leaves_with_path(exact), jax.tree.leaves(gradients), strict=True
        ):
            place = jax.tree_util.keystr(path)
            assert relative_error(found, right) < 1e-10, place
            assert (right != 0).any(), place


@pytest.mark.parametrize("name", crossed(MAKE, lambda name: name in ("lru", "rglru")))
def test_rtrl_is_what_finite_differences_say(name):
    """Of every parameter along a random direction: nothing that is differentiated on the way."""
    model, data, rng = make_model(name), make_data(), np.random.default_rng(7)
    losses = jax.jit(lambda cell: eqx.tree_at(lambda m: m.cell, model, cell).losses(*data).mean(1).sum())
    _, gradients = eg.gradients(model, eg.RTRL(), *data, key=jax.random.key(0))
    for leaf in ("weight", *model.cell.own_names):
        value = getattr(model.cell, leaf)
        along = jnp.asarray(rng.normal(size=value.shape))

        def moved(size, leaf=leaf, value=value, along=along):
            return losses(eqx.tree_at(lambda c: getattr(c, leaf), model.cell, value + size * along))

        slope = float(moved(1e-5) - moved(-1e-5)) / 2e-5
        assert float((getattr(gradients.cell, leaf).sum(0) * along).sum()) == pytest.approx(slope, rel=1e-6), leaf


def dense_blocks(cell, state, x):
    """E [s, s, n], D [s, g, n] and K [s, κ, n] as arrays."""
    found = unit_blocks(cell, state, x)

    def dense(planes):
        return jnp.asarray(planes) if planes[0] else jnp.zeros((cell.states, 0, cell.units))

    return types.SimpleNamespace(direct=dense(found.direct), diagonals=dense(found.diagonals), own=dense(found.own))


@partial(jax.jit, static_argnames="blocks")
def traced(cell, stream, blocks):
    """Σ δ e of one stream, for W and for `own`, by e' = E e + x̂ ⊗ D and e' = E e + K; `blocks` may be given wrong."""
    of_weight = jnp.zeros((cell.states, INPUTS + 1, len(cell.roles), cell.units))
    of_own = jnp.zeros((cell.states, len(cell.own_names), cell.units))

    def step(carried, given):
        x, reset, target = given
        state, of_weight, of_own = jax.tree.map(lambda a: jnp.where(reset, 0.0, a), carried)
        found = blocks(cell, state, x)
        state = cell.step(state, x)
        added = found.diagonals[:, None] * cell.regressor(x)[None, :, None, None]
        of_weight = jnp.einsum("abi,bpgi->apgi", found.direct, of_weight) + added
        of_own = jnp.einsum("abi,bki->aki", found.direct, of_own) + found.own
        delta = target * jnp.cos(state)
        seen = [jnp.einsum("ai,a...i->...i", delta, e) for e in (of_weight, of_own)]
        return (state, of_weight, of_own), seen

    _, (weight, own) = jax.lax.scan(step, (cell.initial(), of_weight, of_own), stream)
    return weight.sum(0).reshape(cell.weight.shape), own.sum(0)


@jax.jit
@jax.grad
def by_reverse_mode(cell, stream):
    """Of Σ target · sin(state), a loss of the states alone, so that nothing of the output comes into it."""

    def step(state, given):
        x, reset, target = given
        state = cell.step(jnp.where(reset, 0.0, state), x)
        return state, (target * jnp.sin(state)).sum()

    return jax.lax.scan(step, cell.initial(), stream)[1].sum()


def errors(cell, blocks):
    """Of the traces of every parameter, against backpropagation."""
    rng = np.random.default_rng(3)
    targets = rng.normal(size=(STEPS, cell.states, cell.units))
    stream = (rng.normal(size=(STEPS, INPUTS)), np.arange(STEPS) == 5, targets)
    right, (weight, own) = by_reverse_mode(cell, stream), traced(cell, stream, blocks)
    found = {"weight": relative_error(weight, right.weight)}
    return found | {
        name: relative_error(row, getattr(right, name)) for name, row in zip(cell.own_names, own, strict=True)
    }


@pytest.mark.parametrize("name", crossed(MAKE, lambda name: name in ("lru", "rtu-nonlinear", "mingru", "columnar")))
def test_the_blocks_of_units_are_the_exact_influence(name):
    cell = make_cell(name)
    assert max(errors(cell, dense_blocks).values()) < 1e-12


def changed(**changes):
    def blocks(cell, state, x):
        parts = vars(dense_blocks(cell, state, x))
        return types.SimpleNamespace(**parts | {part: change(cell, parts[part]) for part, change in changes.items()})

    return blocks


def test_the_slips_of_public_code_are_caught():
    """γ's logarithm in the place of γ in the traces of the input weights; θ's factor left out, since θ is a logarithm."""
    lru, rtu = make_cell("lru"), make_cell("rtu")
    logarithm = changed(diagonals=lambda cell, d: d / jnp.exp(cell.gamma)[None, None] * cell.gamma[None, None])
    found = errors(lru, logarithm)
    assert found["weight"] > 0.1
    assert max(found[name] for name in lru.own_names) < 1e-12  # nothing else is wrong with it
    for cell in (lru, rtu):
        found = errors(cell, changed(own=lambda cell, k: k.at[:, 1].divide(jnp.exp(cell.theta)[None])))
        assert found["theta"] > 0.1
        assert max(found["weight"], found["nu"]) < 1e-12


def test_a_trace_that_forgets_is_caught():
    for name in ("mingru", "columnar"):
        assert errors(make_cell(name), changed(direct=lambda cell, e: 0.98 * e))["weight"] > 1e-4


@pytest.mark.parametrize("name", MAKE)
def test_units_do_not_see_each_other(name):
    cell = make_cell(name)
    rng = np.random.default_rng(0)
    state, x = jnp.asarray(rng.normal(size=(cell.states, UNITS))), jnp.asarray(rng.normal(size=INPUTS))
    jacobian = np.asarray(jax.jit(jax.jacrev(cell.step))(state, x))
    across = ~np.eye(UNITS, dtype=bool)
    for a in range(cell.states):
        for b in range(cell.states):
            assert (jacobian[a, :, b, :][across] == 0).all()
    np.testing.assert_allclose(
        np.einsum("aibi->abi", jacobian),
        np.asarray(jax.jit(unit_blocks)(cell, state, x).direct),
        rtol=1e-12,
        atol=1e-15,
    )


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lru(cell, z, own, state):
    nu, theta, gamma = own
    h = np.exp(-np.exp(nu) + 1j * np.exp(theta)) * (state[0] + 1j * state[1]) + np.exp(gamma) * (z[0] + 1j * z[1])
    return np.stack([h.real, h.imag])


def rtu(cell, z, own, state):
    radius = np.exp(-np.exp(own[0]))
    h = lru(cell, z, (*own, np.log(np.sqrt(1 - radius**2))), state)
    return h if cell.linear else np.tanh(h)


def elstm(cell, z, own, state):
    f, u = sigmoid(z[0] + own[0] * state[0]), np.tanh(z[1] + own[1] * state[0])
    return (f * state[0] + (1 - f) * u)[None]


def mingru(cell, z, own, state):
    share = sigmoid(z[0])
    return ((1 - share) * state[0] + share * z[1])[None]


def minlstm(cell, z, own, state):
    f, i = sigmoid(z[0]), sigmoid(z[1])
    return ((f * state[0] + i * z[2]) / (f + i))[None]


def rglru(cell, z, own, state):
    a = np.exp(-8 * np.log1p(np.exp(own[0])) * sigmoid(z[0]))
    return (a * state[0] + np.sqrt(1 - a**2) * sigmoid(z[1]) * z[2])[None]


def indrnn(cell, z, own, state):
    return np.tanh(z[0] + own[0] * state[0])[None]


def columnar(cell, z, own, state):
    i, f, g, o = np.stack(z) + np.stack(own) * state[0]
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return np.stack([sigmoid(o) * np.tanh(c), c])


EQUATIONS = {
    "lru": lru,
    "rtu": rtu,
    "rtu-nonlinear": rtu,
    "elstm": elstm,
    "mingru": mingru,
    "minlstm": minlstm,
    "rglru": rglru,
    "indrnn": indrnn,
    "columnar": columnar,
}


@pytest.mark.parametrize("name", MAKE)
def test_a_step_is_the_equation(name):
    cell, rng = make_cell(name), np.random.default_rng(4)
    state, x = rng.normal(size=(cell.states, UNITS)), rng.normal(size=INPUTS)
    z = (np.append(x, 1.0) @ np.asarray(cell.weight)).reshape(len(cell.roles), UNITS)
    own = [np.asarray(getattr(cell, name)) for name in cell.own_names]
    expected = EQUATIONS[name](cell, list(z), own, state)
    np.testing.assert_allclose(cell.step(jnp.asarray(state), jnp.asarray(x)), expected, rtol=1e-12)


def test_what_the_readout_sees():
    state = jnp.asarray(np.random.default_rng(0).normal(size=(2, UNITS)))
    np.testing.assert_array_equal(make_cell("lru").output(state), state.reshape(-1))
    np.testing.assert_array_equal(make_cell("rtu").output(state), np.maximum(state, 0).reshape(-1))
    np.testing.assert_array_equal(make_cell("rtu-nonlinear").output(state), state.reshape(-1))
    np.testing.assert_array_equal(make_cell("columnar").output(state), state[0])
    cell, x = make_cell("elstm"), jnp.array([0.3, -0.7])
    gate = sigmoid(np.concatenate([x, state[0], [1.0]]) @ np.asarray(cell.gate))
    np.testing.assert_allclose(cell.output(state[:1], x), gate * np.asarray(state[0]), rtol=1e-12)


@pytest.mark.parametrize("estimator", [eg.OK(rank=1), eg.KF(), eg.KTP(rank=1)], ids=lambda e: type(e).__name__)
def test_kronecker_estimators_refuse_them_with_the_reason(estimator):
    for name in MAKE:
        with pytest.raises(eg.InputError, match=r"RTRL is exact on it at O\(parameters\)"):
            estimator.check(make_cell(name))


@pytest.mark.slow
def test_other_estimators_take_them():
    for estimator in (eg.TBPTT(horizon=3, stride=1), eg.UORO()):
        losses, _ = eg.gradients(make_model("rtu"), estimator, *make_data(), key=jax.random.key(0))
        assert jnp.isfinite(losses).all()


@pytest.mark.slow
def test_a_stack_of_them_is_trained_exactly():
    keys = jax.random.split(jax.random.key(0), 3)
    lower = eg.LRU(INPUTS, UNITS, key=keys[0])
    stack = eg.Stack(lower, eg.MinGRU(lower.outputs, UNITS, key=keys[1]))
    model = eg.Model(stack, eg.Linear(UNITS, 2, key=keys[2], initial="fan_in"))
    _, gradients = eg.gradients(model, eg.RTRL(), *make_data(), key=jax.random.key(0))
    exact = by_backpropagation(model, make_data())
    for found, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(exact), strict=True):
        assert relative_error(found.sum(0), right) < 1e-10


def test_the_ring():
    """Over a ring with equal density: half of the units in the outer half of its area, and angles all round."""
    for kind in (eg.LRU, eg.RTU):
        cell = kind(1, 2000, key=jax.random.key(0), r_min=0.6, r_max=0.9)
        radius, angle = np.exp(-np.exp(cell.nu)), np.exp(cell.theta)
        assert 0.6 <= radius.min() < 0.605
        assert 0.895 < radius.max() <= 0.9
        assert (radius**2 > (0.6**2 + 0.9**2) / 2).mean() == pytest.approx(0.5, abs=0.05)
        assert (angle > np.pi).mean() == pytest.approx(0.5, abs=0.05)
    cell = eg.LRU(1, 50, key=jax.random.key(0))
    np.testing.assert_allclose(np.exp(cell.gamma), np.sqrt(1 - np.exp(-2 * np.exp(cell.nu))), rtol=1e-6)


def shares(name, initial):
    """What units keep of their state, as the parameters that say it have it."""
    cell = MAKE[name](2, 300, key=jax.random.key(0), initial=initial)
    biases = dict(zip(cell.roles, np.asarray(cell.weight[-1]).reshape(-1, 300), strict=False))
    if "update" in biases:
        return 1 - sigmoid(biases["update"])
    if "keep" in biases:
        assert "write" not in biases or "chrono" not in initial or (biases["write"] == -biases["keep"]).all()
        return sigmoid(biases["keep"])
    if name == "rglru":
        return np.exp(-8 * np.log1p(np.exp(cell.decay)) * 0.5)
    return np.asarray(cell.recurrent) if name == "indrnn" else np.exp(-np.exp(cell.nu))


@pytest.mark.parametrize("name", MAKE)
def test_chrono_and_forget_decide_what_is_kept(name):
    """u/(1 + u) with u from 1 to T − 1, and σ(B)."""
    spans = 1 / (1 - shares(name, "chrono:50")) - 1
    assert 1 - 1e-6 < spans.min() < 3
    assert 46 < spans.max() < 49 + 1e-6
    assert shares(name, "forget:2") == pytest.approx(sigmoid(2))


BAD = {
    "no input": (lambda: eg.LRU(0, 3, key=jax.random.key(0)), r"LRU\(inputs=0, units=3\).*inputs must be"),
    "no unit": (lambda: eg.MinGRU(3, 0, key=jax.random.key(0)), "units must be a whole number >= 1"),
    "no key": (lambda: eg.ELSTM(3, 3), "was given no key"),
    "orthogonal": (
        lambda: eg.IndRNN(3, 3, key=jax.random.key(0), initial="orthogonal"),
        "about weights from unit to unit, and IndRNN has none",
    ),
    "radii": (lambda: eg.LRU(3, 3, key=jax.random.key(0), r_min=0.9, r_max=0.5), "0 <= r_min < r_max <= 1"),
    "activation": (lambda: eg.RTU(3, 3, key=jax.random.key(0), activation="relo"), "choose 'relu' or 'tanh'"),
    "leak": (lambda: eg.Leaky(3, 3, key=jax.random.key(0), leak=0.0), r"Leaky\(leak=0.0\)"),
    "readout": (
        lambda: eg.Model(make_cell("lru"), eg.Linear(UNITS, 2, key=jax.random.key(0))),
        r"units=3, of which the readout sees 6 numbers \(`cell.outputs`\), and the readout units=3",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused(case):
    make, message = BAD[case]
    with pytest.raises(eg.InputError, match=message):
        make()


def test_leaky_units():
    leaky, plain = (kind(INPUTS, UNITS, key=jax.random.key(0)) for kind in (eg.Leaky, eg.RNN))
    state, x = jnp.full((1, UNITS), 0.4), jnp.ones(INPUTS)
    np.testing.assert_allclose(leaky.step(state, x), 0.5 * state + 0.5 * plain.step(state, x), rtol=1e-12)
    whole = eg.Leaky(INPUTS, UNITS, key=jax.random.key(0), leak=1)
    np.testing.assert_array_equal(whole.step(state, x), plain.step(state, x))


def test_closed_and_open_gates_have_derivatives():
    """At ρ = 0 the root of 1 − a² has none, and two closed gates of a minLSTM are 0/0."""
    for kind in (eg.RGLRU, eg.MinLSTM):
        cell = kind(1, 2, key=jax.random.key(0))
        for bias in (-800.0, 800.0):
            shut = eqx.tree_at(lambda c: c.weight, cell, jnp.full_like(cell.weight, bias))
            found = jax.jit(unit_blocks)(shut, jnp.ones((1, 2)), jnp.zeros(1))
            assert all(jnp.isfinite(a).all() for a in jax.tree.leaves(found))
