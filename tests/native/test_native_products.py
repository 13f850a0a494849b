"""The kernels that carry δ back, and the products beside them, do what the pure forms do."""

import hashlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad import _native as native
from evergrad._core.linearize import linearize_all
from evergrad._native import backward, products
from evergrad._pasts import slots
from tests.native.test_native import WORTH, in_a_new_process, needs_compiler

pytestmark = needs_compiler

CELLS = {
    "rhn": lambda key: eg.RHN(inputs=7, units=32, key=key),
    "lstm": lambda key: eg.LSTM(inputs=5, units=21, key=key),  # two state variables, and no multiple of anything
    "gru": lambda key: eg.GRU(inputs=3, units=13, key=key),  # weights that do not exist
}

linearized, put = eqx.filter_jit(linearize_all), eqx.filter_jit(slots.put)


@pytest.fixture(autouse=True)
def always_worth(monkeypatch):
    assert native.available()
    monkeypatch.setattr(native, "worth", WORTH[True])


@pytest.mark.parametrize("dtype", native.DTYPES)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 3, 7), (32, 307, 100), (13, 520, 65), (160, 24, 33)])
def test_products_by_kernels_are_the_products(rows, depth, columns, dtype):
    keys = jax.random.split(jax.random.key(0))
    x, w = (jax.random.normal(key, s, dtype) for key, s in zip(keys, ((rows, depth), (depth, columns)), strict=True))
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(jax.jit(products.product)(x, w), x @ w, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(jax.jit(products.outer)(x.T, w), x @ w, rtol=tolerance, atol=tolerance)
    assert "evergrad_product" in jax.jit(products.product).lower(x, w).as_text()


def remembered(name, *, steps, slots_, weights, noted, dtype="float64"):
    """A cell, and a track of so many steps with other weights at each; one stream is reset on the way."""
    cell, streams, keys = CELLS[name](jax.random.key(0)), 6, jax.random.split(jax.random.key(1), steps)
    cell = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, cell)
    track = slots.empty(cell, slots_, streams, weights=weights, deltas=noted)
    hidden = jnp.zeros((streams, cell.initial().size), dtype)
    for t, key in enumerate(keys):
        x = jax.random.normal(key, (streams, cell.inputs), dtype)
        reset = jnp.zeros(streams, bool).at[2].set(t == steps - 3)
        hidden, memory = linearized(cell, hidden, x, reset)
        track = put(cell, track, memory)
        track = slots.noted(track, jnp.sin(hidden + t)) if noted else track
        cell = eqx.tree_at(lambda c: c.weight, cell, 0.9 * cell.weight + 0.01)
    return cell, track, jnp.cos(3 * hidden)


@pytest.mark.parametrize(
    ("name", "steps", "weights", "noted"),
    [
        ("rhn", 4, False, False),
        ("lstm", 9, False, True),  # round the ring
        ("lstm", 6, True, False),
        ("gru", 9, True, False),
        ("gru", 5, False, True),
    ],
)
def test_carrying_back_by_a_kernel_is_carrying_back(name, steps, weights, noted):
    cell, track, delta = remembered(name, steps=steps, slots_=7, weights=weights, noted=noted)
    waited = 4 if noted else 1
    for reach in (slots.in_use(track), jnp.int32(2)):
        pure = slots._back(cell, track, delta, reach, waited)
        ours = jax.jit(lambda reach: backward.back_or(slots._back, cell, track, delta, reach, waited))(reach)
        for one, other in zip(ours, pure, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * np.abs(other).max())


def test_derivatives_are_those_of_the_pure_form():
    cell, track, delta = remembered("lstm", steps=9, slots_=7, weights=True, noted=False)

    def left(form, delta, d):
        track_ = eqx.tree_at(lambda t: t.memories.diagonals, track, d * track.memories.diagonals)
        return form(cell, track_, delta, slots.in_use(track), 1)

    def by_kernel(*given):
        return backward.back_or(slots._back, *given)

    at, moved = (delta, jnp.ones(())), (jnp.sin(delta), jnp.ones(()))
    pure, ours = (jax.jvp(lambda *at, form=form: left(form, *at), at, moved)[1] for form in (slots._back, by_kernel))
    for one, other in zip(ours, pure, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * np.abs(other).max())


@pytest.mark.parametrize("estimator", [eg.TBPTT(horizon=7, stride=4), eg.OK(rank=3, window=4)], ids=repr)
def test_training_takes_the_kernels_and_learns_the_same(estimator, monkeypatch):
    cell_key, readout_key = jax.random.split(jax.random.key(0))
    model = eg.Model(eg.LSTM(4, 16, key=cell_key), eg.Softmax(16, 4, key=readout_key))
    xs, weights, used = jax.random.randint(jax.random.key(1), (30, 4), 0, 4), [], []
    for answer in (True, False):
        monkeypatch.setattr(native, "worth", WORTH[answer])
        learner = eg.Learner(model, estimator, optax.sgd(1e-2))
        state = learner.init(batch=4, key=jax.random.key(2))
        compiled = learner.compile(xs[:-1], xs[1:]).as_text()
        used.append([f"evergrad_{name}" in compiled for name in ("back", "outer", "product")])
        state, _ = learner.run(state, xs[:-1], xs[1:])
        weights.append(state.model.cell.weight)
    assert used == [[True] * 3, [False] * 3]
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-11)


def test_the_number_of_threads_changes_no_bit():
    """Large enough that the work is shared out."""
    code = """
import hashlib, jax, numpy as np
cpus = sorted(os.sched_getaffinity(0)); os.sched_setaffinity(0, cpus[:{count}])
import jax.numpy as jnp
from evergrad._native import products
native.available()
keys = jax.random.split(jax.random.key(0), 8)
x, w = jax.random.normal(keys[0], (48, 150)), jax.random.normal(keys[1], (150, 640))
delta, d = jax.random.normal(keys[2], (48, 160)), jax.random.normal(keys[3], (4, 48, 1, 4, 160))
e, weights = jax.random.normal(keys[4], (4, 48, 1, 1, 160)), jax.random.normal(keys[5], (1, 161, 640))
like = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
found = [products.product(x, w), products.outer(x, products.product(x, w))]
found += native.call("back", (like(48, 160), like(4, 48, 640)), delta, d, e, jnp.ones((4, 48)), jnp.zeros((0, 48, 160)),
    weights, jnp.int32(3), jnp.int32(4), first=np.int64(0), waited=np.int64(1))
print(hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in found)).hexdigest())
"""
    said = [in_a_new_process(f"exec({code.format(count=count)!r})").stdout for count in (1, 2)]
    assert said[0] == said[1]
    assert len(said[0].strip()) == hashlib.sha256().digest_size * 2
