"""Recursive least squares is batch ridge regression at every step; a reservoir stays as it is; errors can go back through any matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from tests.helpers import make_data

KEY = jax.random.key(0)


def series(steps, batch, dim, seed=0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(steps, batch, dim))
    h[:, :, 1] = h[:, :, 0]  # features that depend on each other
    y = h @ rng.normal(size=(dim, 2)) + 1.5 + 0.1 * rng.normal(size=(steps, batch, 2))
    return h, y


def ridge(h, y, weight, forgetting, alpha):
    """Of all steps, the newest last."""
    steps, batch, dim = h.shape
    phi = np.concatenate([h, np.ones((steps, batch, 1))], -1).reshape(-1, dim + 1)
    decay = np.repeat(_decays(weight, forgetting), batch) * weight.reshape(-1)
    left = np.prod([forgetting if w.any() else 1.0 for w in weight])
    a = phi.T @ (decay[:, None] * phi) + left * alpha * np.eye(dim + 1)
    return np.linalg.solve(a, phi.T @ (decay[:, None] * y.reshape(len(phi), -1)))


def _decays(weight, forgetting):
    later = np.cumsum([1.0 if w.any() else 0.0 for w in weight][::-1])[::-1]
    return forgetting ** (later - np.array([1.0 if w.any() else 0.0 for w in weight]))


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
@pytest.mark.parametrize("bias_outside", [False, True])
def test_it_is_batch_ridge_at_every_step(forgetting, bias_outside):
    """Two streams, missing targets, dependent features. The public slip, a bias beside the least squares, is caught."""
    h, y = series(60, 2, 4)
    weight = (np.random.default_rng(1).random((60, 2)) < 0.8).astype(float)
    readout = eg.RLS(4, 2, forgetting, ridge=0.5)
    learn = jax.jit(lambda r, *given: r.taught(*given))
    worst = 0.0
    for t in range(60):
        seen = h[t].copy()
        readout = learn(readout, *map(jnp.asarray, (seen, y[t], weight[t])))
        found = np.asarray(readout.solution.value)
        if bias_outside:
            found = np.concatenate([found[:-1], found[-1:] * 0 + y[: t + 1].mean((0, 1))])
        worst = max(worst, np.abs(found - ridge(h[: t + 1], y[: t + 1], weight[: t + 1], forgetting, 0.5)).max())
    assert (worst > 1e-3) if bias_outside else (worst < 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("forgetting", [1.0, 0.999])
def test_a_million_steps_in_float32_stay_well(forgetting):
    """Of two features that are the same the sum of their weights is known, and nothing else of them."""
    rng = np.random.default_rng(0)
    h = rng.normal(size=(1_000, 1, 8)).astype(np.float32)
    h[..., 7] = h[..., 6]
    y = (h @ np.arange(8.0)[:, None] + 3 + 0.01 * rng.normal(size=(1_000, 1, 1))).astype(np.float32)
    readout = jax.tree.map(lambda a: a.astype(jnp.float32), eg.RLS(8, 1, forgetting))
    one = jnp.ones(1, jnp.float32)

    @jax.jit
    def many(readout):
        def step(r, hy):
            return (r.taught(*hy, one), None)

        return jax.lax.scan(step, readout, (jnp.asarray(h), jnp.asarray(y)))[0]

    for _ in range(1_000):
        readout = many(readout)
    found = np.asarray(readout.solution.value[:, 0])
    np.testing.assert_allclose([*found[:6], found[6] + found[7], found[8]], [*range(6), 13.0, 3.0], atol=0.01)
    assert np.isfinite(readout.root.value).all()


def test_silence_does_not_wind_it_up():
    readout = eg.RLS(3, 1, 0.9)
    teach = jax.jit(lambda readout, h, y: readout.taught(h, y, jnp.ones(1)))
    for _ in range(500):
        readout = teach(readout, np.zeros((1, 3)), np.zeros((1, 1)))
        assert float((readout.root.value**2).sum(1).max()) < 1.2e6
    h, y = series(300, 1, 3)
    for t in range(300):
        readout = teach(readout, h[t], y[t][:, :1])
    assert np.isfinite(readout.solution.value).all()


def another_law(change, steps=4000, dead=1):
    """The mean error of the last steps, where the law changed half-way, of a readout with features that say nothing."""
    rng = np.random.default_rng(0)
    h = rng.normal(size=(steps, 1, 3 + dead))
    h[..., 3:] = change(h)
    laws = np.where(np.arange(steps)[:, None, None] < steps // 2, 1.0, -1.0)
    y = laws * h[..., :3].sum(-1, keepdims=True)

    def step(readout, given):
        h, y = given
        return readout.taught(h, y, jnp.ones(1)), (abs(readout(h[0]) - y[0])[0], (readout.root.value**2).sum(1).max())

    run = jax.jit(lambda readout: jax.lax.scan(step, readout, (jnp.asarray(h), jnp.asarray(y)))[1])
    errors, spread = run(eg.RLS(3 + dead, 1, 0.99))
    return float(errors[-100:].mean()), float(spread.max())


def test_features_that_say_nothing_do_not_end_forgetting():
    """A dead unit, ten of them, and a unit that does what another does: what is not known of them grows at every step, is held,
    and the new law is learned all the same."""
    for change, dead in ((lambda h: 0.0, 1), (lambda h: 0.0, 10), (lambda h: h[..., :1], 1)):
        error, spread = another_law(change, dead=dead)
        assert error < 1e-6
        assert spread < 1.1e6


def linear_data(steps=40, batch=3):
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(steps, batch, 3))
    return xs, np.roll(xs[..., :1], 1, axis=0)


def test_a_reservoir_learns_by_its_readout_alone():
    xs, ys = linear_data(400)
    cell = eg.Leaky(3, 24, leak=0.8, key=KEY)
    learner = eg.Learner(eg.Model(cell, eg.RLS(24, 1)), eg.Fixed(), optax.adamw(1e-2, weight_decay=0.5))
    state, out = learner.run(learner.init(batch=3, key=KEY), xs, ys)
    np.testing.assert_array_equal(state.model.cell.weight, cell.weight)
    losses = np.asarray(out.losses).mean(1)
    assert losses[-100:].mean() < 0.2 * losses[:20].mean()


def test_a_trained_cell_gets_the_derivative_of_the_error_made_before():
    xs, ys = linear_data()
    model = eg.Model(eg.RHN(3, 5, key=KEY), eg.RLS(5, 1))
    learner = eg.Learner(model, eg.RTRL(), optax.sgd(0.0))
    state, _ = learner.run(learner.init(batch=3, key=KEY), xs[:20], ys[:20])
    linear = eg.Linear(5, 1, key=KEY)
    linear = eqx.tree_at(lambda r: (r.weight, r.bias), linear, (state.model.readout.weight, state.model.readout.bias))
    one, other = (
        eg.Learner(eg.Model(model.cell, readout), eg.RTRL(), optax.sgd(0.0))
        for readout in (state.model.readout, linear)
    )
    grads = []
    for each in (one, other):
        from evergrad._core import driver

        made = driver.start(each.model, each.estimator, 3, KEY)
        data = eg.extend.Data(*(jnp.asarray(a) for a in (xs[:1], ys[:1], np.zeros((1, 3), bool), np.ones((1, 3)))))

        def keep(state, results, t, gradient, steps, target):
            return (state, gradient.cell.weight)

        zero = jnp.zeros_like(model.cell.weight)
        drive = eqx.filter_jit(driver.drive)
        found = drive(
            each.estimator,
            made,
            eg.extend.Sequence(data),
            jnp.zeros((), jnp.int32),
            1,
            keep=lambda o: o.losses,
            results=zero,
            consume=keep,
        )
        grads.append(found[3])
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-12)
    assert float(jnp.abs(grads[0]).max()) > 0


def test_errors_go_back_through_the_matrix_that_is_given():
    """The readout's own weights as feedback change nothing; others change the cell's gradient and not the readout's."""
    model = eg.Model(eg.RHN(3, 4, key=KEY), eg.Softmax(4, 3, key=KEY, initial="fan_in"))
    xs, ys, resets = make_data(6)

    def weights(**options):
        learner = eg.Learner(model, eg.RTRL(), optax.sgd(0.1), **options)
        state, _ = learner.run(learner.init(batch=2, key=KEY), xs[:1], ys[:1], resets[:1])
        return state.model

    plain, own, other = (
        weights(),
        weights(feedback=model.readout.weight),
        weights(feedback="random", key=jax.random.key(5)),
    )
    np.testing.assert_allclose(own.cell.weight, plain.cell.weight, atol=1e-14)
    np.testing.assert_allclose(other.readout.weight, plain.readout.weight, atol=1e-14)
    assert float(abs(other.cell.weight - plain.cell.weight).max()) > 1e-4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: eg.RLS(3, 1, 1.5), "forgetting is above 0"),
        (lambda: eg.RLS(3, 1, ridge=0.0), "ridge is above 0"),
        (lambda: _learner(feedback="mirror"), 'use "random"'),
        (lambda: _learner(feedback=np.zeros((2, 2))), "takes the place of the readout's weights"),
        (lambda: _learner(feedback="random"), "key"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(eg.InputError, match=words):
        make()


def _learner(**options):
    model = eg.Model(eg.RHN(3, 4, key=KEY), eg.Linear(4, 1, key=KEY))
    return eg.Learner(model, eg.RTRL(), optax.sgd(0.1), **options)
