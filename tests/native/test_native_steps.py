"""The kernels for what is done once a step do what the pure forms do: UORO's and KTP's steps, Adam, random bits."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad import _native as native
from evergrad._core.influence import stream_by_stream
from evergrad._core.linearize import initial_state, linearize_all
from evergrad._core.parameters import repeated
from evergrad._core.rated import rated
from evergrad._core.update import updated
from evergrad._native import adam, rank_one
from evergrad._native.random import _BY_KERNEL
from tests.helpers import crossed
from tests.native.test_native import WORTH, in_a_new_process, needs_compiler

pytestmark = needs_compiler

CELLS = {
    "rhn": lambda key: eg.RHN(inputs=7, units=32, key=key),
    "lstm": lambda key: eg.LSTM(inputs=5, units=21, key=key),  # two state variables, and no multiple of anything
    "gru": lambda key: eg.GRU(inputs=3, units=13, key=key),  # weights that do not exist
}
linearized = eqx.filter_jit(linearize_all)
ESTIMATORS = {"uoro": eg.UORO(), "uoro, one scale": eg.UORO(scales="one"), "ktp": eg.KTP(rank=6)}


@pytest.fixture(autouse=True)
def always_worth(monkeypatch):
    assert native.available()
    monkeypatch.setattr(native, "worth", WORTH[True])


def steps_of(cell, influence, advance, steps=5):
    """What is carried after some steps of five streams, of which one is reset on the way, and the last gradient."""
    streams, dtype = 5, cell.weight.dtype
    carried = jax.tree.map(lambda a: jnp.broadcast_to(a[None], (streams, *a.shape)), influence.init(cell))
    hidden, gradient = jnp.zeros((streams, initial_state(cell).size), dtype), None
    for t, key in enumerate(jax.random.split(jax.random.key(3), steps)):
        x = jax.random.normal(key, (streams, cell.inputs), dtype)
        hidden, memory = linearized(cell, hidden, x, jnp.zeros(streams, bool).at[2].set(t == 2))
        newest = jax.tree.map(lambda a: a[:, None], memory)
        given = carried, repeated(cell, 1), newest, jax.random.split(key, streams), jnp.cos(3 * hidden)
        carried, gradient = advance(*given)
    return carried, gradient


def every_kernel_on_every_cell(estimator, name, dtype):
    """In double precision, and all in single precision once; with one scale UORO has the kernel it has with three."""
    if dtype == "float64":
        return estimator != "uoro, one scale" or name == "lstm"
    return (estimator, name) in (("uoro", "lstm"), ("uoro, one scale", "rhn"), ("ktp", "gru"))


STEPS = itertools.product(ESTIMATORS, CELLS, native.DTYPES)


@pytest.mark.parametrize(("estimator", "name", "dtype"), crossed(STEPS, every_kernel_on_every_cell))
def test_a_step_by_kernels_is_the_step(estimator, name, dtype):
    """Of one stream alone `absorb` knows no kernel."""
    influence, cell = ESTIMATORS[estimator].influence, CELLS[name](jax.random.key(0))
    cell = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, cell)

    def one_by_one(carried, cells, memories, keys, delta):
        new = stream_by_stream(influence, carried, cells, memories, keys)
        return new, influence.contract(new, cell, delta)

    kernel = "evergrad_mix" if "uoro" in estimator else "evergrad_triples"
    by_kernel, pure = eqx.filter_jit(influence.advance), eqx.filter_jit(one_by_one)
    texts = [
        eqx.filter_jit(lambda form=form: steps_of(cell, influence, form, 1)).lower().as_text()
        for form in (by_kernel, pure)
    ]
    assert [kernel in text for text in texts] == [True, False]
    ours, theirs = (jax.tree.leaves(steps_of(cell, influence, each)) for each in (by_kernel, pure))
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(
            one, other, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-4) * np.abs(other).max()
        )


@pytest.mark.parametrize(("streams", "q"), [(1, 151), (7, 33), (4, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_rank_one_terms_are_mixed_as_the_formula_says(streams, q, masked):
    """Some streams are taken four at a time, and the rest one by one."""
    keys, p = jax.random.split(jax.random.key(0), 4), 130
    v, rows, columns, factors = (
        jax.random.normal(key, (streams, *shape), "float64")
        for key, shape in zip(keys, ((p, q), (p,), (q,), (2,)), strict=True)
    )
    mask = np.arange(p * q).reshape(p, q) % 3 > 0 if masked else None
    pure = rank_one._mixed(v, rows, columns, factors, jnp.zeros((0, 0)) if mask is None else jnp.asarray(mask, v.dtype))
    ours = jax.jit(lambda v: rank_one.mixed(v, rows, columns, factors, mask))(v)
    for one, other in zip(ours, pure, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


# ---- Adam


def model_of(dtype):
    keys = jax.random.split(jax.random.key(0))
    model = eg.Model(eg.LSTM(inputs=6, units=40, key=keys[0]), eg.Softmax(units=40, classes=5, key=keys[1]))
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, model)


def every_clip_and_both_dtypes(clip, dtype):
    return dtype == "float64" or clip == 0.3


@pytest.mark.parametrize(
    ("clip", "dtype"), crossed(itertools.product([None, 0.3, 1e9], native.DTYPES), every_clip_and_both_dtypes)
)
def test_adam_by_a_kernel_is_adam(dtype, clip, monkeypatch):
    """Over some updates, one of which has no target."""
    optimiser = optax.adam(0.02, b1=0.8, b2=0.95, eps=1e-6, eps_root=1e-9)
    found = []
    for kernel in (True, False):
        monkeypatch.setattr(native, "worth", WORTH[kernel])
        model = model_of(dtype)
        state, form = optimiser.init(eg.parameters(model)), rated(optimiser)
        step = eqx.filter_jit(lambda *given: updated(*given[:-1], 3, given[-1]))
        text = step.lower(*_given(model, form, state, 0, clip)).as_text()
        assert ("evergrad_adam" in text) == kernel
        for i in range(5):
            model, state = step(*_given(model, form, state, i, clip))
        assert int(state[0].count) == 4
        found.append(jax.tree.leaves((eg.parameters(model), state)))
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(
            one, other, rtol=0, atol=(1e-13 if dtype == "float64" else 1e-5) * np.abs(other).max()
        )


def _given(model, form, state, i, clip):
    def wave(a):
        return jnp.sin(jnp.arange(a.size, dtype=a.dtype) + i).reshape(a.shape)

    gradient = jax.tree.map(wave, eg.parameters(model))
    clip = None if clip is None else jnp.asarray(clip, model.cell.weight.dtype)
    return model, form, state, gradient, clip, jnp.asarray(i != 3)


def test_a_gradient_that_is_no_number_is_not_hidden():
    model, optimiser = model_of("float32"), optax.adam(0.1)
    gradient = jax.tree.map(jnp.ones_like, eg.parameters(model))
    gradient = eqx.tree_at(lambda m: m.cell.weight, gradient, gradient.cell.weight.at[3, 4].set(jnp.nan))
    state = optimiser.init(eg.parameters(model))
    new, _ = updated(model, rated(optimiser), state, gradient, jnp.float32(1.0), 1, jnp.asarray(True))
    assert jnp.isnan(new.cell.weight).all()
    assert jnp.isfinite(new.readout.weight).all()


OTHERS = {
    "adamw": optax.adamw(1e-3),
    "nesterov": optax.adam(1e-3, nesterov=True),
    "a schedule": optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "bfloat16": optax.adam(1e-3, mu_dtype=jnp.bfloat16),
    "twice": optax.chain(optax.adam(1e-3), optax.scale(2.0)),
    "after clipping": optax.chain(optax.clip(1.0), optax.adam(1e-3)),
    "two": optax.chain(optax.adam(1e-3), optax.adam(1e-3)),
    "sgd": optax.sgd(1e-3),
    "amsgrad": optax.amsgrad(1e-3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_adam_is_not_taken_for_it(name):
    assert adam.adam_of(rated(OTHERS[name]).form) is None


def test_adam_is_known_by_what_it_is_made_of():
    assert adam.adam_of(rated(optax.adam(1e-3)).form) == adam.Numbers(0.9, 0.999, 1e-8, 0.0)
    assert adam.adam_of(rated(optax.adam(0.7, b1=0.5, eps_root=1e-4)).form) == adam.Numbers(0.5, 0.999, 1e-8, 1e-4)


# ---- random bits


def test_random_bits_by_a_kernel_are_those_of_jax():
    words = jax.random.key_data(jax.random.split(jax.random.key(7), 3))
    theirs, ours = (jax.random.wrap_key_data(words, impl=impl) for impl in ("threefry2x32", _BY_KERNEL))

    def drawn(key):
        one, two, three, four = jax.random.split(jax.random.fold_in(key, 12345), 4)
        draws = jax.random.rademacher(one, (33, 2), "float32"), jax.random.uniform(two, (5,), "float32")
        return *draws, jax.random.normal(three, (3, 7), "float64"), jax.random.bits(four, (9,), "uint8")

    form = jax.jit(jax.vmap(drawn))
    assert "evergrad_bits_uint32" in form.lower(ours).as_text()
    assert "evergrad_fold_uint32" in form.lower(ours).as_text()
    for one, other in zip(form(ours), form(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_draws_the_same_by_kernels(monkeypatch):
    model = model_of("float64")
    xs, weights = jax.random.randint(jax.random.key(1), (12, 3), 0, 5), []
    for answer in (True, False):
        monkeypatch.setattr(native, "worth", WORTH[answer])
        learner = eg.Learner(model, eg.UORO(), optax.adam(1e-3), clip=1.0)
        compiled = learner.compile(xs[:-1], xs[1:]).as_text()
        assert [f"evergrad_{name}" in compiled for name in ("adam", "mix", "bits", "fold")] == [answer] * 4
        state, _ = learner.run(learner.init(batch=3, key=jax.random.key(2)), xs[:-1], xs[1:])
        weights.append(state.model.cell.weight)
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-12)


def test_the_number_of_threads_changes_no_bit():
    """Large enough that the work is shared out."""
    code = """
import hashlib, jax, numpy as np, optax
cpus = sorted(os.sched_getaffinity(0)); os.sched_setaffinity(0, cpus[:{count}])
import jax.numpy as jnp
import evergrad as eg
native.available()
keys = jax.random.split(jax.random.key(0))
model = eg.Model(eg.LSTM(inputs=6, units=96, key=keys[0]), eg.Softmax(units=96, classes=5, key=keys[1]))
xs, found = jax.random.randint(jax.random.key(1), (9, 6), 0, 5), []
for estimator in (eg.UORO(), eg.KTP(rank=12)):
    learner = eg.Learner(model, estimator, optax.adam(1e-2), clip=0.1)
    assert "evergrad_adam" in learner.compile(xs[:-1], xs[1:]).as_text()
    state, out = learner.run(learner.init(batch=6, key=jax.random.key(2)), xs[:-1], xs[1:])
    found += [state.model.cell.weight, out.losses]
print(hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in found)).hexdigest())
"""
    said = [in_a_new_process(f"exec({code.format(count=count)!r})").stdout for count in (1, 2)]
    assert said[0] == said[1]
    assert len(said[0].strip()) == 64
