"""OK's mixing in single precision, without JAX's x64: no bias at any spread, and the least noise.

With "sampling" all chance is one uniform number, and the outcome is the same between the places where the cumulative
inclusion probabilities pass a whole number: the mean and the variance are sums over those stretches, exact but for
rounding. Whole runs are compared with RTRL by their mean over many draws.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core import low_rank
from evergrad._core.double import doubled, in_double, packed
from evergrad._estimators import ok
from tests.estimators.test_unbiased import carried_influence
from tests.helpers import crossed, with_window


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def terms(kind, n=9, p=14, q=60):
    """u [N, p] and A [N, q] in float32."""
    rng = np.random.default_rng(3)
    u, a = rng.normal(size=(n, p)), rng.normal(size=(n, q))

    def decades(count):
        return 10.0 ** rng.permutation(np.linspace(-8, 0, count))

    if kind == "regressors":
        u *= decades(p)[None]
    elif kind == "one regressor":
        u[:, 0] *= 1e8
    elif kind == "one small regressor":
        u[:, 0] *= 1e-8
    elif kind == "terms":
        a *= decades(n)[:, None]
    elif kind == "columns":
        a *= decades(q)[None]
    elif kind == "regressors and columns":
        u, a = u * decades(p)[None], a * decades(q)[None]
    elif kind == "regressors and terms":
        u, a = u * decades(p)[None], a * decades(n)[:, None]
    elif kind == "regressors by a million":
        u *= (10.0 ** np.linspace(-6, 0, p))[None]
    elif kind == "dependent":
        a = a[:1] + 1e-4 * a
    elif kind == "more terms than regressors":
        u = u[:, :5] * 10.0 ** np.array([-8, -4, 0, -2, -6])
    elif kind == "repeated":
        u[1:4], u[:, 2] = u[0], 1e-8 * u[:, 2]
    return np.asarray(u, np.float32), np.asarray(a, np.float32)


KINDS = (
    "plain",
    "regressors",
    "one regressor",
    "one small regressor",
    "terms",
    "columns",
    "regressors and columns",
    "regressors and terms",
    "regressors by a million",
    "dependent",
    "more terms than regressors",
    "repeated",
)


@functools.partial(jax.jit, static_argnames="rank")
def inclusion_of(u, a, rank):
    gram = ok._gram(a[None, :rank], a[None, rank:])
    return in_double(lambda u, g: packed(low_rank.inclusion(ok.directions(doubled(u), doubled(g))[2], rank)))(u, gram)


@functools.partial(jax.jit, static_argnames="rank")
def mixed_at(u, a, numbers, rank):
    """What sampling makes of the terms when its one uniform number is each of these."""
    gram = ok._gram(a[None, :rank], a[None, rank:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "uniform", lambda key, dtype: doubled(key))
        return jax.vmap(lambda number: ok.mixing(u, gram, rank, "sampling", number))(numbers)


def all_outcomes(u, a, rank):
    """The chance of every outcome of sampling, and the p x N coefficients of it, in float64.

    As many as there can be: the last ones of the same place have no chance, and terms of equal shapes share a program.
    """
    p = np.asarray(inclusion_of(u, a, rank)).view(np.float64)[:, 0]
    places = np.unique(np.r_[0, np.cumsum(p) % 1, 1])
    places = np.r_[places, np.ones(len(u) + 2 - len(places))]
    middles = (places[1:] + places[:-1]) / 2
    fewer, weights = mixed_at(u, a, middles.view(np.uint32).reshape(-1, 2), rank)
    return np.diff(places), np.einsum("srp,sNr->spN", np.asarray(fewer, float), np.asarray(weights, float))


def optimum(matrix, rank):
    """s₁²/k − s₂."""
    d = np.linalg.svd(matrix, compute_uv=False)
    m = next(i for i in range(1, rank + 1) if (rank - i + 1) * d[i - 1] <= d[i - 1 :].sum() * (1 + 1e-12))
    return d[m - 1 :].sum() ** 2 / (rank - m + 1) - (d[m - 1 :] ** 2).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_exact_in_every_row_and_column(kind):
    """Relative to what is added up in an entry, not to the whole: 10⁻⁵, though rows or columns are 10⁸ apart."""
    u, a = terms(kind)
    chances, coefficients = all_outcomes(u, a, 3)
    assert (chances > 0).sum() > 1
    np.testing.assert_allclose(chances.sum(), 1)
    u, a = u.astype(float), a.astype(float)
    bias = np.einsum("s,spN->pN", chances, coefficients) @ a - u.T @ a
    assert (np.abs(bias) <= 1e-5 * (np.abs(u).T @ np.abs(a))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_variance_is_the_least(kind):
    """To 1 %, at all spreads; below 10⁻¹³ of the whole it is rounding."""
    u, a = terms(kind)
    chances, coefficients = all_outcomes(u, a, 3)
    u, a = u.astype(float), a.astype(float)
    errors = np.array([((c @ a - u.T @ a) ** 2).sum() for c in coefficients])
    assert chances @ errors <= 1.01 * optimum(u.T @ a, 3) + 1e-13 * ((u.T @ a) ** 2).sum()


@pytest.mark.parametrize(("n", "p"), [(24, 40), (72, 100)])
def test_nearly_dependent_terms_cost_no_optimality(n, p):
    """The Aᵢ span seven orders of magnitude, u is generic: the least noise² is 10⁻⁷ to 10⁻⁶ of the whole."""
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(n) < 8, 10.0 ** (-0.5 * np.arange(n)), 2e-5)
    u = np.asarray(rng.normal(size=(n, p)), np.float32)
    a = np.asarray((np.linalg.qr(rng.normal(size=(n, n)))[0] * sizes) @ rng.normal(size=(n, 500)), np.float32)
    chances, coefficients = all_outcomes(u, a, 8)
    u, a = u.astype(float), a.astype(float)
    whole = u.T @ a
    errors = np.array([((c @ a - whole) ** 2).sum() for c in coefficients])
    assert optimum(whole, 8) < 1e-5 * (whole**2).sum()
    assert chances @ errors <= 1.02 * optimum(whole, 8)


DRAWS = 600


def scaled_network(scale, steps):
    """An RHN of 8 units, one of whose inputs is multiplied by `scale` and its weights divided: the same network."""
    cell = eg.RHN(3, 8, key=jax.random.key(0), initial="fan_in")
    weight = 1.5 * np.asarray(cell.weight, float)
    weight[0] /= scale
    xs = np.random.default_rng(0).normal(size=(steps, 1, 3))
    xs[..., 0] *= scale
    cell = eqx.tree_at(lambda c: c.weight, cell, jnp.asarray(weight, jnp.float32))
    return cell, jnp.asarray(xs, jnp.float32)


CASES = [(s, w, "sampling") for s in (1.0, 1e6, 1e8, 1e-7, 1e-8) for w in (0, 8)] + [
    (1e8, 8, "signs"),
    (1e-7, 0, "signs"),
]


@pytest.mark.parametrize(
    ("scale", "window", "mix"),
    crossed(CASES, lambda scale, window, mix: scale in (1e8, 1e-7) and mix == "sampling"),
)
def test_whole_runs_are_unbiased_whatever_the_scale_of_an_input(scale, window, mix):
    """48 steps at rank 4, of the scaled input's row and of all others: the projection on RTRL's is within 4.5 standard
    errors of it, each of which is below 1 %, and the whole mean within what its own noise explains.
    """
    cell, xs = scaled_network(scale, 48 + max(0, window - 1))  # as many steps are in the influence
    resets = jnp.zeros(xs.shape[:2], bool)

    def influence(estimator, key):
        return carried_influence(estimator, cell, xs, resets, key).reshape(8, *cell.weight.shape)

    truth = np.asarray(influence(with_window(eg.RTRL(), window), jax.random.key(0)), float)
    draw = jax.jit(jax.vmap(lambda key: influence(eg.OK(rank=4, window=window, mix=mix), key)))
    draws = np.asarray(draw(jax.random.split(jax.random.key(1), DRAWS)), float)
    for rows in (slice(0, 1), slice(1, None)):
        exact, drawn = truth[:, rows], draws[:, :, rows]
        along = (drawn * exact[None]).sum((1, 2, 3)) / (exact**2).sum()
        spread = along.std() / np.sqrt(DRAWS)
        assert spread < 0.01
        assert abs(along.mean() - 1) < 4.5 * spread + 1e-5
        off = np.linalg.norm(drawn.mean(0) - exact)
        assert off < 2 * np.linalg.norm(drawn.std(0)) / np.sqrt(DRAWS) + 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize("mix", low_rank.MIXES)
def test_a_map_over_a_compiled_fold_is_the_fold(mix):
    """JAX's own rules would round the float64 inside away."""
    u, a = (jnp.asarray(each) for each in terms("plain"))
    keys = jax.random.split(jax.random.key(0), 3)
    one = jax.jit(lambda key: ok.mixing(u, ok._gram(a[None, :3], a[None, 3:]), 3, mix, key))
    nested = jax.jit(jax.vmap(jax.vmap(one)))(keys.reshape(1, 3))
    for i in range(3):
        for each, alone in zip(nested, one(keys[i]), strict=True):
            assert each.dtype == jnp.float32
            np.testing.assert_array_equal(each[0, i], alone)
