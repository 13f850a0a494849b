"""SnAp-n: RTRL with a mask on G, exact once the mask grows no more; and weights that are sparse for good."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import initial_state
from evergrad._core.model import encode
from evergrad._estimators import snap
from tests.helpers import ESTIMATORS, crossed, fits, linearized, make_data, one_step

UNITS, INPUTS, STEPS = 4, 2, 5
CELLS = {"rnn": eg.RNN, "lstm": eg.LSTM, "rhn": eg.RHN, "gru": eg.GRU, "leaky": eg.Leaky}


def ring(gates=1, back=False):
    """Unit v is seen by v + 1 alone, nobody by itself: three hops to the furthest. With `back`, by v − 1 too."""
    recurrent = np.roll(np.eye(UNITS, dtype=bool), 1, axis=1)
    recurrent |= back & recurrent.T
    one = np.concatenate([np.ones((INPUTS, UNITS), bool), recurrent, np.ones((1, UNITS), bool)])
    one[0, 1] = False  # and an input that unit 1 does not see
    return np.tile(one, (1, gates))


def sparse_cell(name, **options):
    kind = CELLS[name]
    return kind(INPUTS, UNITS, key=jax.random.key(0), initial="fan_in", mask=ring(len(kind.gates), **options))


def influences(cell, order, allowed):
    """SnAp's and the dense recursion's, with `allowed` ∘ G at every step; a reset half-way."""
    ours, dense, hidden = eg.SnAp(order=order), eg.RTRL(), initial_state(cell)
    mine, theirs = ours.influence.init(cell), dense.influence.init(cell)
    step = jax.jit(
        lambda *a: (one_step(ours, a[0], cell, a[2], jax.random.key(0)), one_step(dense, a[1], cell, a[2], None))
    )
    for t in range(STEPS):
        hidden, memory = linearized(cell, hidden, encode(cell, jnp.asarray(t % INPUTS)), jnp.asarray(t == 1))
        mine, theirs = step(mine, theirs, memory)
        theirs = jax.tree.map(lambda a: jnp.where(allowed, a, 0), theirs)
    return ours.influence.materialise(mine, cell).weight, theirs.weight


def near(cell, hops):
    """[m, p, q]: whether the state's unit is at most so many hops down the ring from the column's."""
    states, columns = np.arange(cell.states * UNITS) % UNITS, np.arange(cell.weight.shape[1]) % UNITS
    down = (states[:, None] - columns[None]) % UNITS
    return np.broadcast_to((down <= hops)[:, None], (len(states), *cell.weight.shape))


@pytest.mark.parametrize(
    ("name", "order"), crossed([(c, n) for c in CELLS for n in (1, 2, 3)], lambda c, n: (c, n) == ("lstm", 2))
)
def test_it_is_rtrl_with_a_mask(name, order):
    cell = sparse_cell(name)
    mine, theirs = influences(cell, order, near(cell, order - 1))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    assert not eg.SnAp(order=order).exact_for(cell)


def test_once_all_is_reached_it_is_rtrl():
    cell = sparse_cell("lstm")
    mine, theirs = influences(cell, UNITS, True)
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    assert eg.SnAp(order=UNITS).exact_for(cell)
    assert (np.asarray(mine)[:, ~cell.mask] == 0).all()


def test_the_power_alone_would_lose_what_is_near():
    """On a ring two hops lead past the unit next door: the union keeps it."""
    adjacent = snap.sees(sparse_cell("rnn"))
    union, power = snap.reach(adjacent, 3), np.linalg.matrix_power(adjacent.astype(int), 2) > 0
    assert union.sum(axis=1).tolist() == [3] * UNITS
    assert not (power == union).all()


def squared_error(rng, order, n=8, steps=10):
    """Of SnAp-n on a random sparse tanh network, in NumPy: the recursion restated, the reach ours."""
    adjacent = rng.random((n, n)) < 0.2
    weight = np.where(adjacent, rng.normal(size=(n, n)), 0)
    xs, h = rng.normal(size=(steps, n)), np.zeros(n)
    exact = approximate = np.zeros((n, n, n))
    allowed = snap.reach(adjacent, order).T[:, None]
    for x in xs:
        before, h = h, np.tanh(h @ weight + x)
        slope = 1 - h**2
        new = np.einsum("p,mq->mpq", before, np.diag(slope))
        through = slope[:, None] * weight.T
        exact, approximate = (np.tensordot(through, g, 1) + new for g in (exact, approximate))
        approximate = allowed * approximate
    return ((exact - approximate) ** 2).sum()


def test_the_mean_error_falls_with_the_order():
    errors = [
        np.mean([squared_error(np.random.default_rng(i), order) for i in range(200)]) for order in (1, 2, 3, 4, 8)
    ]
    assert all(a > b for a, b in itertools.pairwise(errors))
    assert errors[-1] < 1e-20 < errors[0]


def test_what_is_refused():
    with pytest.raises(eg.InputError, match="that is RTRL"):
        eg.SnAp(order=2).check(eg.RNN(2, 3, key=jax.random.key(0)))
    eg.SnAp(order=1).check(eg.RNN(2, 3, key=jax.random.key(0)))
    with pytest.raises(eg.InputError, match="KroneckerCell"):
        eg.SnAp().check(eg.LRU(2, 3, key=jax.random.key(0)))
    with pytest.raises(eg.InputError, match="order"):
        eg.SnAp(order=0)


def test_masks_that_cannot_be():
    def make(mask):
        return eg.RNN(2, 3, key=jax.random.key(0), mask=mask)

    for mask in (0.0, 1.5, np.ones((2, 2), bool), np.ones((6, 3))):
        with pytest.raises(eg.InputError, match="mask"):
            make(mask)
    share = eg.RNN(40, 40, key=jax.random.key(0), mask=0.25)
    assert abs(share.mask[:-1].mean() - 0.25) < 0.03
    assert share.mask[-1].all()
    assert (np.asarray(share.weight)[~share.mask] == 0).all()


@pytest.mark.parametrize("name", crossed([n for n in ESTIMATORS if fits(ESTIMATORS[n], "rnn")], lambda n: n == "uoro"))
def test_every_estimator_leaves_weights_that_do_not_exist_alone(name):
    cell = sparse_cell("rnn", back=True)
    model = eg.Model(cell, eg.Softmax(UNITS, 2, key=jax.random.key(1)))
    xs, ys, _ = make_data(STEPS)
    _, found = eg.gradients(model, ESTIMATORS[name], xs % 2, ys % 2, key=jax.random.key(0))
    total = np.abs(np.asarray(found.cell.weight)).sum(0)
    assert (total[~cell.mask] == 0).all()
    assert (total[cell.mask] > 0).all() or name == "ktp"  # which draws the units that it keeps


def test_rtrl_on_sparse_weights_is_the_gradient():
    cell = sparse_cell("rnn", back=True)
    model = eg.Model(cell, eg.Softmax(UNITS, 2, key=jax.random.key(1)))
    xs, ys, _ = make_data(STEPS)
    exact, whole = (
        eg.gradients(model, e, xs % 2, ys % 2, key=jax.random.key(0))[1].cell.weight.sum(0)
        for e in (eg.RTRL(), eg.TBPTT(horizon=STEPS))
    )
    np.testing.assert_allclose(exact, whole, rtol=0, atol=1e-12)
