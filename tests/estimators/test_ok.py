"""The paper's two cases, and the mixing of terms that are zero, equal or nearly so."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import KroneckerMemory
from evergrad._estimators.ok import _gram, mixing
from tests import helpers
from tests.helpers import cast, make_cell

DRAWS = 40_000


def one_step(estimator, cell, u, a, memory, count=DRAWS):
    """Draws of the influence after one step from u ⊗ A with H = 1."""
    carried = u[None], a[:, None]

    def draw(key):
        return estimator.influence.materialise(helpers.one_step(estimator, carried, cell, memory, key), cell).weight

    return jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), count))


def setting(orthogonal):
    """u ⊗ A + ĥ ⊗ D of an RNN with H = 1 and unit norms: u ⊥ ĥ and A ⊥ D, or u = ĥ."""
    cell = make_cell("rnn", units=4)
    p = len(cell.weight)
    regressor = jnp.zeros(p).at[0].set(1.0)
    diagonals = jnp.full((1, 1, 4), 0.5)  # of norm 1
    a = jax.random.normal(jax.random.key(3), (4, 4))
    a = a - jnp.diag(jnp.diagonal(a))
    a = a / jnp.linalg.norm(a)
    u = jnp.zeros(p).at[1].set(1.0) if orthogonal else regressor
    identity = jnp.ones((1, 1, 4))
    # W_h = 0 leaves H = E = 1
    cell = jax.tree.map(jnp.zeros_like, cell)
    return cell, u, a, KroneckerMemory(regressor, diagonals, identity, jnp.ones(()))


def variance(draws):
    return float(((draws - draws.mean(0)[None]) ** 2).sum((1, 2, 3)).mean())


def test_case_two_of_the_paper_nothing_beats_the_sign_trick():
    cell, u, a, memory = setting(orthogonal=True)
    ok = one_step(eg.OK(rank=1, window=0, mix="signs"), cell, u, a, memory)
    kf = one_step(eg.KF(), cell, u, a, memory)
    assert variance(ok) == pytest.approx(2, rel=0.02)
    assert variance(kf) == pytest.approx(2, rel=0.02)


def test_case_one_of_the_paper_a_single_product_needs_no_noise():
    cell, u, a, memory = setting(orthogonal=False)
    assert variance(one_step(eg.OK(rank=1, window=0, mix="signs"), cell, u, a, memory)) < 1e-12
    assert variance(one_step(eg.KF(), cell, u, a, memory)) == pytest.approx(2, rel=0.02)


def terms(kind, rng, n=7):
    u, a = rng.normal(size=(n, 9)), rng.normal(size=(n, 20))
    if kind == "zeros":
        u[2], a[4] = 0, 0
    elif kind == "all zero":
        u[:], a[:] = 0, 0
    elif kind == "repeated":
        u[1:4] = u[0]
    elif kind == "nearly parallel":
        u = u[:1] + 1e-5 * u
    elif kind == "scales apart":
        u, a = u * 10.0 ** np.arange(-3, 4)[:, None], a * 10.0 ** -np.arange(-3, 4)[:, None]
    elif kind == "underflowing":  # in single precision squares of the small ones would be
        a[1:6] = (a[0] + 1e-3 * a[1:6]) * 10.0 ** -np.arange(17, 22)[:, None]
    elif kind == "rank lost":
        u[:, 2:], a[:, 2:] = 0, 0
    return u, a


@functools.partial(jax.jit, static_argnames=("rank", "mix"))
def squared_errors(u, a, keys, rank, mix):
    """The mean error of all draws, and the mean of its square: terms of equal shapes share a program."""

    def draw(key):
        fewer, weights = mixing(u, _gram(a[None, :rank], a[None, rank:]), rank, mix, key)
        return fewer.T @ (weights.T @ a) - u.T @ a

    errors = jax.vmap(draw)(keys)
    return errors.mean(0), (errors**2).sum((1, 2)).mean()


@pytest.mark.parametrize(("mix", "dtype"), [("signs", jnp.float64), ("sampling", jnp.float32)])
@pytest.mark.parametrize(
    "kind",
    ["plain", "zeros", "all zero", "repeated", "nearly parallel", "scales apart", "underflowing", "rank lost"],
)
def test_mixing_is_unbiased_and_optimal_whatever_the_terms(kind, mix, dtype):
    """Clamping the small factorisation must cost neither the mean nor, to 2 %, the variance."""
    rank, count = 3, 20_000
    u, a = (jnp.asarray(t, dtype) for t in terms(kind, np.random.default_rng(0)))
    mean, got = squared_errors(u, a, jax.random.split(jax.random.key(1), count), rank, mix)
    scale = float(jnp.linalg.norm(u.T @ a))
    rounding = 1e-3 if dtype == jnp.float32 else 1e-6  # of the whole, for terms that nearly cancel
    bound = float(eg.optimal_variance(jnp.asarray(u.T @ a, jnp.float64), rank))
    assert np.isfinite(float(got))
    assert float(got) <= 1.02 * bound + (rounding * scale) ** 2
    assert float((mean**2).sum()) <= 5 * max(float(got), bound) / count + (rounding * scale) ** 2 * 1e-2


def test_rank_one_in_float32_keeps_its_type():
    cell = cast(make_cell("rhn"), jnp.float32)
    carried = jax.eval_shape(eg.OK(rank=1).influence.init, cell)
    assert all(a.dtype == jnp.float32 for a in carried)


FACTORISATIONS = {"qr", "cholesky", "svd", "eigh", "lu"}


def waits(jaxpr, given, seen):
    """For every output the factorisations that it waits for; `seen` gets what each factorisation waits for, in order."""
    known = dict(zip(jaxpr.invars, given, strict=True))

    def look(v):
        return known.get(v, frozenset()) if not hasattr(v, "val") else frozenset()

    for eqn in jaxpr.eqns:
        before = [look(v) for v in eqn.invars]
        inner = eqn.params.get("jaxpr") or eqn.params.get("call") or eqn.params.get("call_jaxpr")
        if inner is not None and eqn.primitive.name not in ("scan", "while"):
            out = waits(getattr(inner, "jaxpr", inner), before[-len(getattr(inner, "jaxpr", inner).invars) :], seen)
        else:
            every = frozenset().union(*before)
            if eqn.primitive.name in FACTORISATIONS:
                seen.append(every)
                every = every | {len(seen) - 1}
            out = [every] * len(eqn.outvars)
            if eqn.primitive.name == "qr":  # whose R is there while Q is still being made
                out[1] = seen[-1]
        known.update(zip(eqn.outvars, out, strict=True))
    return [look(v) for v in jaxpr.outvars]


def chained(function, *given):
    """How many factorisations there are, and whether each waits for all before it."""
    jaxpr, seen = jax.make_jaxpr(function)(*given).jaxpr, []
    waits(jaxpr, [frozenset()] * len(jaxpr.invars), seen)
    return len(seen), all(every == frozenset(range(i)) for i, every in enumerate(seen))


def test_no_factorisation_runs_beside_another():
    """Two that wait for threads of XLA's pool at the same time can wait for each other for good."""
    from evergrad._estimators.ok import directions

    vectors, gram = jnp.ones((6, 9)), jnp.eye(6)
    count, in_a_row = chained(directions, vectors, gram)
    assert count == 3
    assert in_a_row

    def beside(v, g):
        return (jnp.linalg.qr(v.T), jnp.linalg.cholesky(g))

    assert not chained(beside, vectors, gram)[1]


def test_the_maps_of_a_network_are_factorised_one_after_the_other():
    from evergrad._core.blocks import block
    from evergrad._core.linearize import initial_state, linearize
    from evergrad._core.parameters import repeated
    from tests.networks import NETWORKS

    cell = NETWORKS["encoder_gru_norm_lstm"]()
    estimator = eg.OK(rank=2, window=0)
    _, memory = linearize(cell, initial_state(cell), jnp.ones(cell.inputs), jnp.zeros((), bool))
    memories, cells = jax.tree.map(lambda a: a[None], memory), repeated(cell, 1)

    def fold(carried, key):
        return estimator.influence.absorb(carried, cells, memories, key)

    count, in_a_row = chained(fold, estimator.influence.init(cell), jax.random.key(0))
    assert count == 3 * len(block(cells, memories).terms)
    assert in_a_row
