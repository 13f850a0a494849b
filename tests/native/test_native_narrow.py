"""The fold of what is kept in bfloat16, by a kernel: many streams with the same numbers and other keys are as many draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad import _native as native
from evergrad._core.blocks import block
from evergrad._core.linearize import linearize
from evergrad._core.parameters import repeated
from evergrad._core.rounded_influence import fold_keys
from evergrad._native import kronecker
from evergrad.lab.injected import Fold, _advanced, _at_fold
from evergrad.lab.noise import start
from tests.estimators.test_rounded import CUT, trained
from tests.helpers import cast
from tests.native.test_native import needs_compiler

DRAWS = 4000


def many(tree, streams):
    return jax.tree.map(lambda a: jnp.broadcast_to(a[None], (streams, *a.shape)), tree)


def whole(u, a):
    return np.einsum("brp,bmrq->bmpq", np.asarray(u, np.float64), np.asarray(a, np.float64))


def exact(cells, carried, memories):
    """Σ u ⊗ P A + Σ ĥ ⊗ S D of one stream."""
    found = block(cells, memories)
    u, a = carried
    old = jnp.einsum("rp,mrq->mpq", u, found.carry(a.astype(u.dtype), np.arange(len(a))))
    return np.asarray(old + jnp.einsum("np,mnq->mpq", found.terms[0].vectors, found.terms[0].columns), np.float64)


def stretch(cell, steps, rank):
    """One stream: some remembered steps, and an influence of so many terms."""
    keys = jax.random.split(jax.random.key(1), 4)
    x = jax.random.normal(keys[0], (steps, cell.inputs), jnp.float32)
    state = 0.5 * jax.random.normal(
        keys[1], (steps, jax.flatten_util.ravel_pytree(cell.initial())[0].size), jnp.float32
    )
    memories = jax.vmap(lambda h, x: linearize(cell, h, x, jnp.zeros((), bool))[1])(state, x)
    u, a = jax.eval_shape(eg.OK(rank=rank).influence.init, cell)
    u = jax.random.normal(keys[2], (rank, u.shape[1]), jnp.float32)
    a = jax.random.normal(keys[3], (a.shape[0], rank, a.shape[2]), jnp.float32)
    return repeated(cell, steps), (u, a.astype(jnp.bfloat16)), memories


def rounded(mix, cells, carried, memories, keys, rounding_keys=None):
    fold_key, rounding = fold_keys(keys, 2)
    rounding = rounding[:, 1] if rounding_keys is None else rounding_keys
    given = many((carried, memories), len(keys))
    return jax.jit(lambda c, m, k, r: kronecker.fold_rounded(mix, c, cells, m, k, r))(*given, fold_key, rounding)


@needs_compiler
@pytest.mark.parametrize(("cell", "steps"), [("RHN", 3), ("LSTM", 2), pytest.param("RHN", 1, marks=pytest.mark.slow)])
def test_draws_have_the_exact_fold_for_their_mean(cell, steps):
    """As many terms as regressors: nothing is left out, so that rounding is all the noise there is, and a small bias would show."""
    assert native.available()
    cell = cast(getattr(eg, cell)(1, 5, key=jax.random.key(0)), jnp.float32)
    cells, carried, memories = stretch(cell, steps, rank=7)
    wanted, keys = exact(cells, carried, memories), jax.random.split(jax.random.key(2), DRAWS)
    u, a = rounded("sampling", cells, carried, memories, keys)
    assert a.dtype == jnp.bfloat16
    draws = whole(u, a)
    spread = draws.std(0)
    floor = 1e-6 * np.abs(wanted).max()  # of float32
    z = np.abs(draws.mean(0) - wanted) / (spread / np.sqrt(DRAWS) + floor)
    assert z.max() < CUT
    assert 0 < spread.max() < 0.02 * np.abs(wanted).max()
    # a rounding that is the same in every draw is not right in the mean, and is seen
    same = jnp.broadcast_to(keys[:1], keys.shape)
    biased = whole(*rounded("sampling", cells, carried, memories, keys, same))
    assert (np.abs(biased.mean(0) - wanted) / (spread / np.sqrt(DRAWS) + floor)).max() > CUT


@needs_compiler
def test_a_stream_does_not_depend_on_its_neighbours():
    assert native.available()
    cell = cast(eg.LSTM(3, 37, key=jax.random.key(0)), jnp.float32)
    cells, carried, memories = stretch(cell, 4, rank=5)
    keys = jax.random.split(jax.random.key(2), 5)
    one = rounded("sampling", cells, carried, memories, keys)
    other = rounded("sampling", cells, carried, memories, keys[::-1])
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32)[::-1])


@needs_compiler
def test_what_is_not_finite_stays():
    assert native.available()
    cell = cast(eg.RHN(3, 37, key=jax.random.key(0)), jnp.float32)
    cells, (u, a), memories = stretch(cell, 2, rank=5)
    found = rounded(
        "sampling", cells, (u, a.at[3, 2, 1].set(jnp.nan)), memories, jax.random.split(jax.random.key(2), 1)
    )
    assert not np.isfinite(np.asarray(found[1], np.float32)).any()


@needs_compiler
@pytest.mark.slow  # that it is right in the mean is above, and what the pure form adds is in tests/estimators/test_rounded.py
def test_its_noise_is_small_beside_that_of_ok_on_a_trained_network(capsys):
    """What rounding, also of the factors of products, adds to a fold, beside what the choice of terms adds."""
    assert native.available()
    model, data = trained()
    cell, narrow = model.cell, eg.OK(rank=4, window=4, dtype=jnp.bfloat16)
    state = start(model, narrow, 1, jax.random.key(1))
    fold = Fold(narrow, cell, *_at_fold(narrow, model, _advanced(narrow, state, data), None))
    cell, (u, a), memories = cast((cell, fold.carried, fold.memories), jnp.float32)
    a, cells, keys = a.astype(jnp.bfloat16), repeated(cell, 4), jax.random.split(jax.random.key(3), 512)

    def wide(mix):
        given = many(((u, a.astype(jnp.float32)), memories), len(keys))
        return whole(*jax.jit(lambda c, m, k: kronecker.fold(mix, c, cells, m, k))(*given, fold_keys(keys, 2)[0]))

    def square(x):
        return (x**2).sum(axis=(1, 2, 3)).mean()

    rounding = square(whole(*rounded("truncate", cells, (u, a), memories, keys)) - wide("truncate"))
    folding = square(wide("sampling") - exact(cells, (u, a), memories)[None])
    with capsys.disabled():
        print(f"\nnoise of rounding in the kernel / noise of OK's fold: {rounding / folding:.2g}")
    assert 0 < rounding < 0.01 * folding
