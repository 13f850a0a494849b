"""Theorem 2: the mean is the matrix, the variance is the bound, and nothing smaller is possible to beat it with."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core import low_rank
from evergrad._core.low_rank import compress, inclusion, signed_rows

SPECTRA = {
    "flat": lambda n: np.ones(n),
    "geometric": lambda n: 0.6 ** np.arange(n),
    "one dominant": lambda n: np.r_[50.0, np.ones(n - 1)],
    "rank-deficient": lambda n: np.r_[np.linspace(3, 1, n - 2), 0.0, 0.0],
    "ties": lambda n: np.repeat([3.0, 1.0, 0.5], [2, 3, n])[:n],
}
SHAPES = [(5, 5, 4), (12, 30, 5), (40, 7, 3)]
DRAWS = 40_000


def matrix_of(spectrum, m, n, seed=0):
    rng = np.random.default_rng(seed)
    size = min(m, n)
    u, v = (np.linalg.qr(rng.normal(size=(k, size)))[0] for k in (m, n))
    return u @ np.diag(SPECTRA[spectrum](size)) @ v.T


CASES = [(spectrum, *shape) for spectrum in SPECTRA for shape in SHAPES]
# compiled: operation by operation each would be compiled by itself
approximate = jax.jit(eg.optimal_low_rank, static_argnames=("rank", "method"))
compressed = jax.jit(compress, static_argnums=(1, 2))
included, least_variance = (jax.jit(each, static_argnums=1) for each in (inclusion, eg.optimal_variance))


@functools.partial(jax.jit, static_argnums=1)
def spread_of(matrix, rank):
    """Inclusion probabilities, and the variance that cannot be beaten."""
    return inclusion(jnp.linalg.svd(matrix, compute_uv=False), rank), eg.optimal_variance(matrix, rank)


@functools.partial(jax.jit, static_argnums=1)
def at(matrix, rank, number):
    """What sampling makes of the matrix when its one uniform number is this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "uniform", lambda key, dtype: number)
        left, right = eg.optimal_low_rank(matrix, rank, key=jax.random.key(0), method="sampling")
    return left @ right.T


@pytest.mark.parametrize(("spectrum", "m", "n", "rank"), CASES)
def test_sampling_has_the_matrix_as_its_mean_and_the_bound_as_its_variance(spectrum, m, n, rank):
    """The outcome changes where the cumulative probabilities pass a whole number: exact sums over the stretches."""
    matrix = matrix_of(spectrum, m, n)
    p, bound = spread_of(matrix, rank)
    places = np.unique(np.r_[0, np.cumsum(p) % 1, 1])
    errors = np.stack([at(matrix, rank, number) for number in (places[1:] + places[:-1]) / 2]) - matrix[None]
    chances = np.diff(places)
    np.testing.assert_allclose(np.tensordot(chances, errors, 1), 0, atol=1e-10)
    np.testing.assert_allclose(chances @ (errors**2).sum((1, 2)), bound, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("spectrum", "m", "n", "rank"), CASES)
def test_signs_have_the_matrix_as_their_mean_and_the_bound_as_their_variance(spectrum, m, n, rank):
    """Signs of rows leave the squares of Z Zᵀ as they are, so every draw's error is the bound; the mean is its diagonal."""
    matrix = matrix_of(spectrum, m, n)
    _, bound = spread_of(matrix, rank)
    for seed in range(3):
        left, right = approximate(matrix, rank, key=jax.random.key(seed), method="signs")
        found = np.asarray(left) @ np.asarray(right).T
        np.testing.assert_allclose(((found - matrix) ** 2).sum(), bound, rtol=1e-9, atol=1e-12)
    d = np.linalg.svd(matrix, compute_uv=False)
    z = np.asarray(compressed(d, rank, "signs", jax.random.key(0)))
    np.testing.assert_allclose((z**2).sum(1), d, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["signs", "sampling"])
def test_keys_draw_what_the_sums_are_over(method):
    """With keys in place of all that they can give: mean and variance to 2 %, in 40,000 draws."""
    matrix, rank = matrix_of("geometric", 5, 5), 3

    @jax.jit
    def moments(matrix):
        keys = jax.random.split(jax.random.key(0), DRAWS)
        left, right = jax.vmap(lambda key: eg.optimal_low_rank(matrix, rank, key=key, method=method))(keys)
        error = left @ right.swapaxes(1, 2) - matrix[None]
        return error.mean(0), (error**2).sum((1, 2)).mean()

    mean, variance = moments(matrix)
    assert abs(float(variance / spread_of(matrix, rank)[1]) - 1) < 0.02
    # the mean's squared error is the variance over the number of draws; five times that is out of reach by chance
    assert float((mean**2).sum()) < 5 * float(variance) / DRAWS


def test_the_paper_sums_too_little():
    """d = (3, 2, 2) at rank 2: the rule as printed gives 8, the right one 7.5."""
    assert float(eg.optimal_variance(jnp.diag(jnp.array([3.0, 2.0, 2.0])), 2)) == pytest.approx(7.5, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_inclusion_agrees_with_the_paper(seed):
    """min(1, d/τ) is the paper's choice of m, k and s₁, for random spectra."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    rank = int(rng.integers(1, n))
    d = np.sort(rng.exponential(size=n) ** 3)[::-1]
    m = next(i for i in range(1, rank + 1) if (rank - i + 1) * d[i - 1] <= d[i - 1 :].sum())
    k, s1, s2 = rank - m + 1, d[m - 1 :].sum(), (d[m - 1 :] ** 2).sum()
    expected = np.r_[np.ones(m - 1), k * d[m - 1 :] / s1]
    np.testing.assert_allclose(included(d, rank), expected, rtol=1e-12)
    shuffled = rng.permutation(n)
    np.testing.assert_allclose(included(d[shuffled], rank), expected[shuffled], rtol=1e-12)
    assert float(least_variance(np.diag(d), rank)) == pytest.approx(s1**2 / k - s2, rel=1e-9)


@pytest.mark.parametrize("method", ["signs", "sampling"])
@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (4, 4), (3, 5)])
@pytest.mark.parametrize("kind", ["random", "zero", "rank one", "equal"])
def test_enough_rank_returns_the_matrix(method, shape, kind):
    rng = np.random.default_rng(0)
    matrix = {
        "random": rng.normal(size=shape),
        "zero": np.zeros(shape),
        "rank one": np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1])),
        "equal": np.eye(*shape),
    }[kind]
    own = np.linalg.matrix_rank(matrix)
    for rank in {max(own, 1), min(shape) + 3}:
        left, right = approximate(jnp.asarray(matrix), int(rank), key=jax.random.key(1), method=method)
        assert left.shape == (shape[0], rank)
        assert right.shape == (shape[1], rank)
        np.testing.assert_allclose(np.asarray(left) @ np.asarray(right).T, matrix, atol=1e-12)
        assert float(least_variance(matrix, int(rank))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("method", ["signs", "sampling"])
def test_batched_and_compiled(method, dtype):
    matrices = jax.random.normal(jax.random.key(0), (4, 6, 5), dtype)
    keys = jax.random.split(jax.random.key(1), 4)

    def call(a, k):
        return eg.optimal_low_rank(a, 2, key=k, method=method)

    left, right = jax.jit(jax.vmap(call))(matrices, keys)
    assert left.dtype == right.dtype == dtype
    for i in range(4):
        one = call(matrices[i], keys[i])
        np.testing.assert_allclose(left[i] @ right[i].T, one[0] @ one[1].T, atol=1e-4)


def test_signed_rows_by_enumeration_of_all_signs():
    """Squared row lengths are p, columns are orthonormal or zero, and all sign vectors together leave diag(p)."""
    p = jnp.array([1.0, 0.9, 0.6, 0.3, 0.2, 0.0])
    rows = signed_rows(p, 3, jax.random.key(0))
    np.testing.assert_allclose((rows**2).sum(1), p, atol=1e-12)
    np.testing.assert_allclose(rows.T @ rows, np.eye(3), atol=1e-12)
    total = sum(
        np.diag(s) @ np.asarray(rows @ rows.T) @ np.diag(s) for s in map(np.array, itertools.product([1, -1], repeat=6))
    )
    np.testing.assert_allclose(total / 64, np.diag(p), atol=1e-12)


def test_truncation_is_eckart_young():
    d = jnp.array([0.5, 3.0, 0.0, 2.0, 1.0])
    z = compress(d, 2, "truncate", jax.random.key(0))
    np.testing.assert_allclose(z @ z.T, jnp.diag(jnp.array([0, 3.0, 0, 2.0, 0])), atol=1e-12)


def test_the_variance_test_notices_the_printed_rule():
    """With the paper's misprint (the sum to r instead of N) the inclusion probabilities no longer add up to r."""
    d = np.array([3.0, 2.0, 2.0])
    printed = next(i for i in range(1, 3) if (2 - i + 1) * d[i - 1] <= d[i - 1 : 2].sum())
    right = next(i for i in range(1, 3) if (2 - i + 1) * d[i - 1] <= d[i - 1 :].sum())
    assert (printed, right) == (2, 1)
    k, s1, s2 = 2 - printed + 1, d[printed - 1 :].sum(), (d[printed - 1 :] ** 2).sum()
    assert s1**2 / k - s2 == pytest.approx(8)
