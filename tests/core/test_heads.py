"""Readouts of any form: heads, dicts of targets and inputs, a mean with its variance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import evergrad as eg

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_a_user():
    """Without the run-time type checks that the tests switch on, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


XS, YS = (jax.random.normal(KEY, (6, 2, size)) for size in (3, 2))


def squared(z, y):
    return jnp.sum((z - y) ** 2)


def cell():
    return eg.LSTM(3, 4, key=KEY)


def test_a_head_of_an_affine_map_is_the_linear_readout():
    linear = eg.Linear(4, 2, key=KEY)
    module = eqx.nn.Linear(4, 2, key=KEY)
    module = eqx.tree_at(lambda m: (m.weight, m.bias), module, (linear.weight.T, linear.bias))
    models = eg.Model(cell(), linear), eg.Model(cell(), eg.Head(module, squared))
    for estimator in (eg.RTRL(), eg.TBPTT(horizon=3)):
        (losses, plain), (others, own) = (eg.gradients(m, estimator, XS, YS, key=KEY) for m in models)
        np.testing.assert_allclose(others, losses, atol=1e-12)
        np.testing.assert_allclose(own.cell.weight, plain.cell.weight, atol=1e-12)
        np.testing.assert_allclose(own.readout.module.weight.swapaxes(1, 2), plain.readout.weight, atol=1e-12)


def two_heads():
    one, two = jax.random.split(KEY)
    modules = {"level": eqx.nn.MLP(4, 2, 8, 1, key=one), "up": eqx.nn.Linear(4, "scalar", key=two)}
    losses = {"level": squared, "up": lambda z, y: optax.sigmoid_binary_cross_entropy(z, jnp.asarray(y, z.dtype))}
    return eg.Head(modules, losses, {"up": jax.nn.sigmoid})


def test_several_heads_with_dicts_of_targets_are_trained():
    model = eg.Model(cell(), two_heads())
    ys = {"level": YS, "up": (YS[..., 0] > 0).astype(int)}
    learner = eg.Learner(model, eg.OK(rank=2, window=2), optax.adam(1e-2))
    many = jax.tree.map(lambda a: jnp.tile(a, (20,) + (1,) * (a.ndim - 1)), (XS, ys))
    state, out = learner.run(learner.init(batch=2, key=KEY), *many)
    assert {name: a.shape for name, a in out.predictions.items()} == {"level": (120, 2, 2), "up": (120, 2)}
    assert out.losses[-12:].mean() < 0.9 * out.losses[:12].mean()
    assert not eqx.tree_equal(eqx.filter(state.model.readout, eqx.is_array), eqx.filter(model.readout, eqx.is_array))
    state, now = model.run(XS)
    assert float(now["up"].max()) < 1
    total = jax.grad(lambda m: m.losses(XS, ys).mean(1).sum(), allow_int=True)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    exact = jax.grad(lambda a: eqx.combine(a, rest).losses(XS, ys).mean(1).sum())(arrays)
    _, found = eg.gradients(model, eg.RTRL(), XS, ys, key=KEY)
    np.testing.assert_allclose(found.cell.weight.sum(0), exact.cell.weight, atol=1e-10)
    del total


def test_a_missing_target_of_a_dict_may_be_anything():
    model = eg.Model(cell(), two_heads())
    learner = eg.Learner(model, eg.RTRL(), optax.sgd(0.1))
    ys = {"level": YS[0].at[1].set(jnp.nan), "up": jnp.array([1, 0])}
    _, out = learner.step(learner.init(batch=2, key=KEY), XS[0], ys, weights=np.array([1.0, 0.0]))
    assert out.losses[1] == 0
    assert np.isfinite(out.losses[0])
    with pytest.raises(eg.InputError, match=r"y\['level'\] has 2 NaN"):
        learner.step(learner.init(batch=2, key=KEY), XS[0], ys)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: eg.Head(3, squared), r"Head\(module=3\): a module is a function"),
        (lambda: eg.Head(jnp.tanh, None), r"Head\(loss=None\)"),
        (lambda: eg.Head({"a": jnp.tanh}, {"b": squared}), "losses for b and modules for a"),
        (lambda: eg.Model(cell(), eg.Head(eqx.nn.Linear(5, 2, key=KEY), squared)), "cannot be called on the 4 numbers"),
        (lambda: eg.Model(cell(), eqx.nn.Linear(4, 2, key=KEY)), r"eg.Head\(module, loss\)"),
        (lambda: eg.Model(eqx.nn.LSTMCell(3, 4, key=KEY), eg.Linear(4, 2, key=KEY)), r"eg.from_equinox\(cell\)"),
        (lambda: eg.Model(cell(), eg.Head(jnp.tanh, squared)).readout.weight, "need eg.Softmax or eg.Linear"),
        (
            lambda: eg.Model(cell(), eg.Head(eqx.nn.Linear(4, 2, key=KEY), lambda z, y: z - y)).losses(XS, YS),
            "has to give one real number: sum or average it",
        ),
        (lambda: eg.Model(cell(), two_heads()).losses(XS, {"level": YS}), "a dict with a target for each"),
        (
            lambda: eg.Model(cell(), two_heads()).losses(XS, {"level": YS[:3], "up": YS[..., 0]}),
            r"y\['level'\] has shape",
        ),
    ],
)
def test_what_is_refused(make, match):
    with pytest.raises(eg.InputError, match=match):
        make()


def test_a_dict_of_inputs_is_one_vector():
    model = eg.Model(cell(), eg.Linear(4, 2, key=KEY))
    apart = {"a": XS[..., :2], "b": XS[..., 2:]}
    np.testing.assert_array_equal(model.losses(apart, YS), model.losses(XS, YS))
    np.testing.assert_array_equal(model.run(apart)[1], model.run(XS)[1])
    learner = eg.Learner(model, eg.RTRL(), optax.sgd(0.1))
    one, two = (learner.run(learner.init(batch=2, key=KEY), xs, YS)[1].losses for xs in (apart, XS))
    np.testing.assert_array_equal(one, two)
    one, _ = learner.step(learner.init(batch=2, key=KEY), jax.tree.map(lambda a: a[0], apart), YS[0])


def test_ids_in_a_dict_of_inputs_need_their_number():
    days, level = np.arange(12).reshape(6, 2) % 2, np.asarray(XS[..., :1])
    plain = eg.Model(cell(), eg.Linear(4, 2, key=KEY))
    with pytest.raises(eg.InputError, match=r'x\["day"\] is int.*inputs=\{"day": 7'):
        plain.losses({"day": days, "level": level}, YS)
    model = eg.Model(cell(), eg.Linear(4, 2, key=KEY), inputs={"day": 2, "level": 1})
    both = np.concatenate([np.eye(2)[days], level], axis=-1)
    np.testing.assert_array_equal(model.losses({"day": days, "level": level}, YS), plain.losses(both, YS))
    with pytest.raises(eg.InputError, match="ids from 0 to 5"):
        model.losses({"day": days * 5, "level": level}, YS)
    with pytest.raises(eg.InputError, match="was made for day, level"):
        model.losses({"day": days}, YS)
    with pytest.raises(eg.InputError, match="that makes 4 numbers"):
        eg.Model(cell(), eg.Linear(4, 2, key=KEY), inputs={"day": 2, "level": 2})


def test_the_loss_of_a_gaussian_is_that_of_its_mean_and_variance():
    readout = eg.Gaussian(4, 2, key=KEY)
    h, y = jax.random.normal(KEY, (4,)), jnp.array([0.3, -2.0])
    said = readout.predict(readout(h))
    density = jax.scipy.stats.norm.logpdf(y, said["mean"], jnp.sqrt(said["variance"]))
    np.testing.assert_allclose(readout.loss(readout(h), y), -density.sum(), rtol=1e-12)


def test_a_gaussian_learns_how_uncertain_it_is():
    """Noise whose size one input says."""
    rng = np.random.default_rng(0)
    spread = rng.choice([0.1, 1.0], (1500, 4, 1))
    ys = spread * rng.normal(size=(1500, 4, 1))
    model = eg.Model(eg.LSTM(1, 4, key=KEY), eg.Gaussian(4, 1, key=KEY))
    learner = eg.Learner(model, eg.RTRL(), optax.adam(2e-2))
    _, out = learner.run(learner.init(batch=4, key=KEY), spread, ys)
    found = np.sqrt(out.predictions["variance"][-300:])
    assert 0.05 < found[spread[-300:] == 0.1].mean() < 0.2
    assert 0.7 < found[spread[-300:] == 1.0].mean() < 1.4
