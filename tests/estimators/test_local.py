"""What stays within units: equal to dense recursions with the rest masked out, exact where units do not see each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import (
    immediate,
    initial_state,
    recurrent_weight,
    transition,
    unit_blocks,
)
from evergrad._core.model import encode
from evergrad._core.units import within
from tests.helpers import crossed, linearized, make_cell, make_data, stepped

CELLS = crossed(["rnn", "rhn", "lstm", "gru", "leaky"], lambda cell: cell in ("rhn", "lstm"))
UNIT_CELLS = {
    "lru": eg.LRU,
    "rtu": eg.RTU,
    "elstm": eg.ELSTM,
    "mingru": eg.MinGRU,
    "indrnn": eg.IndRNN,
    "rglru": eg.RGLRU,
}
STEPS, KEY = 12, jax.random.key(0)


def cell_of(name, scale=1.5):
    return eg.Leaky(3, 3, leak=0.3, key=KEY) if name == "leaky" else make_cell(name, units=3, scale=scale)


def remembered(cell, steps=STEPS):
    """Flat states before, and memories of, some steps of one stream, with a reset half-way."""
    xs, _, _ = make_data(steps, 1)
    hidden, found = initial_state(cell), []
    for t in range(steps):
        hidden, memory = linearized(cell, hidden, encode(cell, jnp.asarray(xs[t, 0])), jnp.asarray(t == steps // 2))
        found.append(memory)
    return found


def dense(cell, memories, change):
    """The recursion G' = change(H, F, G) of the weights, dense."""
    g = 0
    for memory in memories:
        g = change(*jacobians(cell, memory), g)
    return g


@eqx.filter_jit
def jacobians(cell, memory):
    """H and F."""
    h = jax.vmap(transition(cell, memory).matvec, out_axes=1)(jnp.eye(initial_state(cell).size))
    return h, immediate(cell, memory).weight


def of_own_unit(cell):
    """[m, 1, q]: whether a state and a column of W are of the same unit."""
    units, s, g = np.arange(cell.units), cell.states, len(cell.gates)
    return (np.tile(units, s)[:, None] == np.tile(units, g)[None])[:, None]


def carried_by(estimator, cell, memories):
    carried = estimator.influence.init(cell)
    for memory in memories:
        carried = stepped(estimator, carried, cell, memory, None)
    return estimator.influence.materialise(carried, cell).weight


def through(h, g):
    return jnp.tensordot(h, g, 1) if isinstance(g, jax.Array) else 0


@pytest.mark.parametrize("name", CELLS)
def test_snap1_is_rtrl_with_all_but_the_own_unit_masked_out(name):
    cell = cell_of(name)
    memories, mask = remembered(cell), of_own_unit(cell)
    truth = dense(cell, memories, lambda h, f, g: jnp.where(mask, through(h, g) + f, 0))
    np.testing.assert_allclose(carried_by(eg.SnAp1(), cell, memories), truth, atol=1e-12)
    late = dense(cell, memories, lambda h, f, g: jnp.where(mask, through(h, g + f), 0))  # a planted slip
    assert abs(late - truth).max() > 1e-3


@pytest.mark.parametrize("name", CELLS)
def test_eprop_is_rtrl_with_the_recurrent_weights_out_of_h(name):
    cell = cell_of(name)
    memories = remembered(cell)
    rows = slice(cell.inputs, cell.inputs + cell.units)
    cut = eqx.tree_at(lambda c: c.weight, cell, cell.weight.at[rows].set(0))

    def truth_of(carrying):
        g = 0
        for memory in memories:
            g = through(jacobians(carrying, memory)[0], g) + jacobians(cell, memory)[1]
        return g

    found = carried_by(eg.EProp(), cell, memories)
    np.testing.assert_allclose(found, truth_of(cut), atol=1e-12)
    assert abs(found - truth_of(cell)).max() > 1e-3
    if name != "rnn":  # the public slip: "e-prop" that keeps a unit's weight onto itself is SnAp-1
        assert abs(found - carried_by(eg.SnAp1(), cell, memories)).max() > 1e-3


SELF_SEEING = {"indrnn": eg.IndRNN, "elstm": eg.ELSTM, "columnar": eg.ColumnarLSTM}


def not_seeing_itself(cell, state, x):
    """∂state'/∂state [s, s, n] with what the gates see of the unit's own h held as it is."""
    seen = cell.gates_of(x) + cell.own * state[:1]

    def step(state):
        return jnp.stack(cell.advance_unit(tuple(0 * cell.own), tuple(seen), tuple(state)))

    return jnp.einsum("aibi->abi", jax.jacfwd(step)(state))


@pytest.mark.parametrize("name", SELF_SEEING)
def test_eprop_does_without_the_weights_of_a_unit_onto_itself(name):
    """On cells whose units see nothing but themselves; SnAp-1 is exact there, and e-prop is not."""
    cell = SELF_SEEING[name](3, 4, key=KEY)
    found, wanted = carried_by(eg.EProp(), cell, remembered(cell, 6)), 0.0
    for memory in remembered(cell, 6):
        state = memory.state.reshape(cell.states, cell.units)
        direct = memory.alive * not_seeing_itself(cell, state, memory.x)
        gates = unit_blocks(cell, state, memory.x).diagonals
        new = jnp.stack([jnp.stack(row) for row in gates])[None] * cell.regressor(memory.x)[:, None, None, None]
        wanted = jnp.einsum("abi,pbgi->pagi", direct, wanted + jnp.zeros_like(new)) + new
    found = found.reshape(cell.states, 4, *wanted.shape[:1], *wanted.shape[2:])
    np.testing.assert_allclose(jnp.einsum("ampgm->pagm", found), wanted, atol=1e-12)
    assert eg.SnAp1().exact_for(cell)
    assert not eg.EProp().exact_for(cell)
    assert eg.EProp().exact_for(eg.LRU(3, 4, key=KEY))


class SeesOnlyInputs(eg.KroneckerCell):
    """A minGRU, written as a Kronecker cell."""

    gates = ("x1", "x1")

    def activate(self, z, state):
        share = jax.nn.sigmoid(z[0])
        return ((1 - share) * state[0] + share * z[1],)


def test_where_no_gate_sees_h_both_scopes_are_exact():
    cell = SeesOnlyInputs(3, 4, key=KEY)
    memories = remembered(cell)
    truth = dense(cell, memories, lambda h, f, g: through(h, g) + f)
    for estimator in (eg.RTRL(), eg.SnAp1(), eg.EProp()):
        assert estimator.exact_for(cell)
        np.testing.assert_allclose(carried_by(estimator, cell, memories), truth, atol=1e-12)


def test_rflo_forgets_with_the_leak_and_nothing_else():
    cell = cell_of("leaky")
    memories = remembered(cell)
    truth = 0
    for memory in memories:
        truth = 0.7 * memory.alive * truth + immediate(cell, memory).weight
    np.testing.assert_allclose(carried_by(eg.RFLO(), cell, memories), truth, atol=1e-12)


@pytest.mark.parametrize("name", ["rhn", "lstm"])
def test_snap1_is_exact_where_units_have_weights_onto_themselves_only(name):
    cell = cell_of(name)
    own = jnp.broadcast_to(jnp.eye(3)[:, None], recurrent_weight(cell).shape).reshape(3, -1)
    rows = slice(cell.inputs, cell.inputs + 3)
    cell = eqx.tree_at(lambda c: c.weight, cell, cell.weight.at[rows].multiply(own))
    memories = remembered(cell)
    truth = dense(cell, memories, lambda h, f, g: through(h, g) + f)
    np.testing.assert_allclose(
        carried_by(eg.SnAp1(), cell, memories), jnp.where(of_own_unit(cell), truth, 0), atol=1e-12
    )
    model = eg.Model(cell, eg.Softmax(units=3, classes=3, key=KEY))
    xs, ys, resets = make_data(STEPS, resets=0.2)
    exact, snap, eprop = (
        eg.gradients(model, e, xs, ys, resets, key=KEY)[1].cell.weight for e in (eg.RTRL(), eg.SnAp1(), eg.EProp())
    )
    np.testing.assert_allclose(snap, exact, atol=1e-12)
    assert float(jnp.linalg.norm(eprop - exact) / jnp.linalg.norm(exact)) > 0.01


@pytest.mark.parametrize("name", ["rhn", "gru"])
def test_a_dense_network_is_not_local_and_a_long_window_is_exact(name):
    model = eg.Model(make_cell(name, units=5, scale=2.0), eg.Softmax(units=5, classes=3, key=KEY))
    xs, ys, resets = make_data(10)

    def grad(e):
        return eg.gradients(model, e, xs, ys, resets, key=KEY)[1].cell.weight

    exact, local = grad(eg.RTRL()), grad(eg.SnAp1())
    assert float(jnp.linalg.norm(local - exact) / jnp.linalg.norm(exact)) > 0.1
    np.testing.assert_allclose(grad(eg.Local(scope="direct", window=10)), exact, atol=1e-12)
    middle = float(jnp.linalg.norm(grad(eg.SnAp1(window=2)) - exact))
    assert middle < float(jnp.linalg.norm(local - exact))


@pytest.mark.parametrize("scope", ["unit", "direct"])
def test_a_fold_is_the_steps_one_by_one(scope):
    from evergrad._core.parameters import repeated

    cell, estimator = cell_of("lstm"), eg.Local(scope=scope)
    memories = remembered(cell, 5)
    one_by_one = carried_by(estimator, cell, memories)
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *memories)
    at_once = estimator.influence.absorb(estimator.influence.init(cell), repeated(cell, 5), stacked, None)
    np.testing.assert_allclose(estimator.influence.materialise(at_once, cell).weight, one_by_one, atol=1e-13)


@pytest.mark.parametrize("name", UNIT_CELLS)
@pytest.mark.parametrize("window", [0, 3])
def test_rtrl_is_exact_on_unit_local_cells_with_few_numbers(name, window):
    cell = UNIT_CELLS[name](3, 4, key=KEY)
    model = eg.Model(cell, eg.Softmax(units=getattr(cell, "outputs", 4), classes=3, key=jax.random.key(1)))
    xs, ys, resets = make_data(9, resets=0.2)
    estimator = eg.RTRL(window=window)
    assert estimator.exact_for(cell)
    assert eg.SnAp1().exact_for(cell)
    kept = sum(a.size for a in jax.tree.leaves(estimator.influence.init(cell)))
    assert kept <= cell.states * sum(a.size for a in jax.tree.leaves(eg.parameters(cell)))
    summed = jax.tree.map(lambda a: a.sum(0), eg.gradients(model, estimator, xs, ys, resets, key=KEY)[1])
    trained, rest = eqx.partition(model, eqx.is_inexact_array)
    truth = jax.jit(jax.grad(lambda t: eqx.combine(t, rest).losses(xs, ys, resets).mean(1).sum()))(trained)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(summed), jax.tree.leaves(truth), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10, err_msg=str(path))
        assert float(abs(b).max()) > 0, path


def test_exactness_is_claimed_where_it_holds_and_nowhere_else():
    rhn, stack = make_cell("rhn"), eg.Stack(eg.LSTM(3, 4, key=KEY), eg.GRU(4, 4, key=KEY), depth="layerwise")
    assert eg.RTRL().exact_for(rhn)
    assert not eg.RTRL().exact_for(stack)
    for estimator in (eg.SnAp1(), eg.OK(rank=2), eg.TBPTT(horizon=3), eg.UORO()):
        assert not estimator.exact_for(rhn)


def test_layerwise_stacks_layer_by_layer():
    """Of each layer what the layer alone would have."""
    lower, upper = eg.LSTM(3, 4, key=KEY), eg.MinGRU(4, 3, key=KEY)
    stack = eg.Stack(lower, upper, depth="layerwise")
    memories = remembered(stack, 6)
    carried = eg.SnAp1().influence.init(stack)
    for memory in memories:
        carried = stepped(eg.SnAp1(), carried, stack, memory, None)
    alone = eg.SnAp1().influence.init(lower)
    for memory in remembered(lower, 6):
        alone = stepped(eg.SnAp1(), alone, lower, memory, None)
    for a, b in zip(jax.tree.leaves(carried[0]), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert all(float(abs(a).max()) > 0 for a in jax.tree.leaves(carried[1]))


@pytest.mark.parametrize(
    ("estimator", "make", "words"),
    [
        (eg.SnAp1(), lambda: eg.GRU(3, 4, reset="before", key=KEY), "which weight belongs to which unit"),
        (eg.EProp(), lambda: eg.Stack(eg.LSTM(3, 4, key=KEY), eg.LSTM(4, 4, key=KEY)), 'depth="layerwise"'),
        (eg.RFLO(), lambda: eg.LSTM(3, 4, key=KEY), "use eg.EProp"),
        (
            eg.SnAp1(),
            lambda: eg.Stack(eg.ELSTM(3, 4, key=KEY), eg.LSTM(4, 4, key=KEY), depth="layerwise"),
            "ELSTM has weights in its output",
        ),
        (eg.OK(rank=2), lambda: eg.MinGRU(3, 4, key=KEY), r"RTRL is exact on it at O\(parameters\)"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(estimator, make, words):
    with pytest.raises(eg.InputError, match=words):
        estimator.check(make())


def test_scopes_are_named():
    with pytest.raises(eg.InputError, match='scope is "unit"'):
        eg.Local(scope="layer")

    (((carry,),),) = (found.carry for found in within(make_cell("rhn"), remembered(make_cell("rhn"), 1)[0], "unit"))
    assert carry.shape == (make_cell("rhn").units,)
