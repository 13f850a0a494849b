"""The kernels do what the pure form does, and their absence is survived."""

import contextlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad import _native as native
from evergrad._core import streamwise
from evergrad._core.influence import stream_by_stream
from evergrad._core.linearize import dense_diagonals, initial_state, linearize
from evergrad._core.parameters import repeated
from evergrad._core.reading import through
from evergrad._estimators.kf import sign_trick
from evergrad._native import kronecker
from evergrad._native.norms import norm
from tests.helpers import crossed
from tests.training_helpers import environment

WORTH = {True: lambda a: True, False: lambda a: False}  # one of each, so that programs are shared
needs_compiler = pytest.mark.skipif(not native._compiler(), reason="no C++ compiler here")

CELLS = {
    "rhn": lambda key: eg.RHN(inputs=7, units=32, key=key),
    "lstm": lambda key: eg.LSTM(inputs=5, units=37, key=key),  # two state variables, and no multiple of anything
    "rnn": lambda key: eg.RNN(inputs=3, units=13, key=key),
}


def is_ok(estimator):
    """Which of those that share a kernel `make test` runs."""
    return isinstance(estimator, eg.OK)


def carried_and_memories(cell, estimator, streams, steps):
    m, keys = initial_state(cell).size, jax.random.split(jax.random.key(1), 5)
    x = jax.random.normal(keys[0], (streams, steps, cell.inputs))
    h = 0.3 * jax.random.normal(keys[1], (streams, steps, m))
    reset = jnp.zeros((streams, steps), bool).at[0, steps // 2].set(steps > 1)
    _, memories = jax.vmap(jax.vmap(linearize, (None, 0, 0, 0)), (None, 0, 0, 0))(cell, h, x, reset)
    shapes = jax.eval_shape(estimator.influence.init, cell)
    u, a = (0.1 * jax.random.normal(key, (streams, *s.shape)) for key, s in zip(keys[2:4], shapes, strict=True))
    return (u, a), memories, jax.random.split(keys[4], streams)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "steps", "dtype", "mix"),
    [
        ("rhn", 1, "float64", "sampling"),
        ("rhn", 5, "float64", "signs"),
        pytest.param("rhn", 5, "float32", "sampling", marks=pytest.mark.slow),
        ("lstm", 4, "float64", "sampling"),
        pytest.param("lstm", 4, "float64", "truncate", marks=pytest.mark.slow),
        ("rnn", 15, "float64", "sampling"),  # more terms than regressors
        pytest.param("rnn", 2, "float64", "signs", marks=pytest.mark.slow),
    ],
)
def test_a_fold_by_kernels_is_the_fold(name, steps, dtype, mix):
    assert native.available()
    cell, estimator = CELLS[name](jax.random.key(0)), eg.OK(rank=5, window=steps, mix=mix)
    given = carried_and_memories(cell, estimator, 4, steps)
    cell, *given = jax.tree.map(lambda a: a.astype(dtype) if is_real(a) else a, (cell, *given))
    cells = changing(cell, steps)

    pure = eqx.filter_jit(lambda cells, carried, *rest: stream_by_stream(estimator.influence, carried, cells, *rest))(
        cells, *given
    )
    ours = eqx.filter_jit(lambda cells, carried, *rest: kronecker.fold(mix, carried, cells, *rest))(cells, *given)
    for one, other in zip(ours, pure, strict=True):
        assert one.dtype == dtype
        atol = (1e-10 if dtype == "float64" else 2e-3) * np.abs(other).max()  # mixing divides by small singular values
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@needs_compiler
@pytest.mark.parametrize("name", crossed(CELLS, lambda name: name == "lstm"))
def test_the_sign_trick_by_kernels_is_the_sign_trick(name):
    """Also in the first step, when all is zero."""
    assert native.available()
    cell, estimator = CELLS[name](jax.random.key(0)), eg.KF(copies=3)
    carried, memories, keys = carried_and_memories(cell, estimator, 4, 1)
    for given in (carried, jax.tree.map(jnp.zeros_like, carried)):
        pure = stream_by_stream(estimator.influence, given, repeated(cell, 1), memories, keys)
        ours = jax.jit(lambda given: kronecker.fold_by(sign_trick, given, repeated(cell, 1), memories, keys))(given)
        for one, other in zip(ours, pure, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


def changing(cell, steps):
    """The cell with other weights at every step."""
    factors = jnp.linspace(0.5, 1.5, steps, dtype=cell.weight.dtype)[:, None, None]
    return jax.tree.map(lambda a: factors * a if is_real(a) else a, repeated(cell, steps))


def is_real(a):
    return isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jnp.floating)


@needs_compiler
@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        pytest.param(eg.OK(rank=4, window=3), "fold", id="ok"),
        pytest.param(eg.KF(copies=4), "carry", id="kf", marks=pytest.mark.slow),
    ],
)
def test_training_takes_the_kernels_and_learns_the_same(estimator, name, monkeypatch):
    """Large enough that they are used; the programs differ, the weights do not."""
    assert native.available()
    cell_key, readout_key = jax.random.split(jax.random.key(0))
    model = eg.Model(eg.RHN(4, 64, key=cell_key), eg.Softmax(64, 4, key=readout_key))
    xs = jax.random.randint(jax.random.key(1), (40, 4), 0, 4)
    weights, used = [], []
    for answer in (True, False):
        monkeypatch.setattr(native, "worth", WORTH[answer])
        learner = eg.Learner(model, estimator, optax.sgd(1e-2))
        state = learner.init(batch=4, key=jax.random.key(2))
        used.append(f"evergrad_{name}" in learner.compile(xs[:-1], xs[1:]).as_text())
        state, _ = learner.run(state, xs[:-1], xs[1:])
        weights.append(state.model.cell.weight)
    assert used == [True, False]
    np.testing.assert_allclose(*weights, rtol=1e-8, atol=1e-10)


@needs_compiler
def test_inner_products_are_far_closer_than_the_jitter_that_their_square_root_is_given():
    """Of arrays in single precision, at the size of the paper."""
    assert native.available()
    cell, estimator = eg.RHN(inputs=4, units=128, key=jax.random.key(0)), eg.OK(rank=16, window=0)
    given = carried_and_memories(cell, estimator, 2, 1)
    cell, (_, a), memories, _ = jax.tree.map(lambda x: x.astype("float32") if is_real(x) else x, (cell, *given))
    a = 1 + a  # all of one sign, which is where rounding adds up

    def carried(a):
        shape = jax.ShapeDtypeStruct((2, 17, 17, 2), jnp.uint32)
        steps = memories.diagonals, memories.direct, memories.alive, kronecker._turned(repeated(cell, 1))
        return native.call("carry", (jax.ShapeDtypeStruct(a.shape, a.dtype), shape), a, *steps, in_place=True)

    a, gram = jax.jit(carried)(a)
    terms = np.concatenate([a[1], dense_diagonals(memories.diagonals[1, 0])[:, None]], axis=1).astype(np.float64)
    exact = np.einsum("miq,mjq->ij", terms, terms)
    norms = np.sqrt(np.diagonal(exact))
    found = np.asarray(gram[1]).view(np.float64)[..., 0]
    assert np.abs((found - exact) / np.outer(norms, norms)).max() < 1e-14


@needs_compiler
def test_a_product_by_kernels_is_the_product():
    assert native.available()
    a, p = jax.random.normal(jax.random.key(0), (3, 21, 67)), jax.random.normal(jax.random.key(1), (3, 21, 21))
    found = jax.jit(lambda a, p: native.call("multiply", jax.ShapeDtypeStruct(a.shape, a.dtype), a, p, in_place=True))
    np.testing.assert_allclose(found(a, p), p @ a, rtol=1e-12, atol=1e-12)


@needs_compiler
def test_what_is_kept_in_half_the_bytes_is_read_by_a_kernel():
    assert native.available()
    a = jax.random.normal(jax.random.key(0), (3, 40, 5, 501), jnp.float32).astype(jnp.bfloat16)
    delta = jax.random.normal(jax.random.key(1), (3, 40), jnp.float32)
    found = jax.jit(through)(delta, a)
    np.testing.assert_allclose(found, np.einsum("bm,bmrq->brq", delta, a.astype(np.float64)), rtol=1e-5, atol=1e-5)
    assert "evergrad_read_bfloat16" in jax.jit(through).lower(delta, a).as_text()


def test_groups_divide_the_streams_and_threads_are_kept_busy(monkeypatch):
    for module in (kronecker, streamwise):
        monkeypatch.setattr(module, "cores", lambda: 4)
    assert [streamwise.group(streams) for streams in (1, 2, 5, 6, 8)] == [1, 2, 1, 3, 4]
    assert [kronecker.busy(streams) for streams in (1, 2, 5, 6, 8)] == [False, False, True, True, True]


def in_a_new_process(code, **other):
    found = subprocess.run(
        [sys.executable, "-W", "always", "-c", f"import os; from evergrad import _native as native; {code}"],
        env=environment(cached=False) | {"JAX_PLATFORMS": "cpu"} | other,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found


def test_a_compiler_that_fails_is_said_once_and_survived(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    compiler.chmod(0o755)
    said = in_a_new_process(
        "print(native.available(), native.available())", CXX=str(compiler), XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert said.stdout.split() == ["False", "False"]
    assert said.stderr.count("no such header") == 1
    assert "EVERGRAD_NATIVE=0" in said.stderr
    assert not list((tmp_path / "cache" / "evergrad").iterdir())


def test_it_can_be_switched_off_and_no_compiler_is_no_error(monkeypatch):
    """And nothing is said, since warnings are errors here."""
    look = native.available.__wrapped__  # as in a process that has not asked yet
    with monkeypatch.context() as patch:
        patch.setenv("EVERGRAD_NATIVE", "0")
        assert not look()
    for name in ("CXX", "PATH"):
        monkeypatch.setenv(name, "")
    assert not look()


@needs_compiler
@pytest.mark.slow  # what tests/native/test_native_library.py shows of small libraries, of the one that is really built
def test_a_library_that_others_can_write_is_not_loaded(tmp_path):
    code = "os.umask(0o002); print(native.available()); [p.chmod(0o777) for p in native.cache().iterdir()]"
    assert in_a_new_process(code, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "True"
    refused = in_a_new_process(code, XDG_CACHE_HOME=str(tmp_path))
    assert refused.stdout.strip() == "False"
    assert "somebody else" in refused.stderr


@needs_compiler
def test_a_norm_by_kernels_is_the_norm_also_under_vmap():
    assert native.available()
    a = jax.random.normal(jax.random.key(0), (3, 7, 9_001))
    found = jax.jit(jax.vmap(norm))(a)
    assert "evergrad_squares" in jax.jit(jax.vmap(norm)).lower(a).as_text()
    np.testing.assert_allclose(found, jnp.sqrt(jnp.sum(a * a, axis=(1, 2))), rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("estimator", crossed([eg.OK(rank=2, window=1), eg.KF(copies=2), eg.UORO()], is_ok, repr))
def test_kernels_under_vmap(estimator, monkeypatch):
    monkeypatch.setattr(native, "SMALL", 1)
    model = eg.Model(eg.RHN(inputs=3, units=7, key=jax.random.key(0)), eg.Softmax(7, 3, key=jax.random.key(1)))
    xs = np.random.default_rng(0).integers(0, 3, (5, 2))
    keys = jax.random.split(jax.random.key(2), 3)
    many = jax.vmap(lambda key: eg.gradients(model, estimator, xs, xs, key=key)[1].cell.weight)(keys)
    for key, weight in zip(keys, many, strict=True):
        one = eg.gradients(model, estimator, xs, xs, key=key)[1].cell.weight
        np.testing.assert_allclose(weight, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("named", "found", "warning"),
    [
        ("sh -c", ["sh", "-c"], None),
        ("no-such-compiler", [], "no no-such-compiler, which CXX names"),
        ("g++ '", [], r"CXX=g\+\+ ' is no command \(No closing quotation\)"),
    ],
)
def test_the_compiler_that_is_named(named, found, warning, monkeypatch):
    monkeypatch.setenv("CXX", named)
    with contextlib.nullcontext() if found else pytest.warns(UserWarning, match=warning):
        assert native._compiler() == found
