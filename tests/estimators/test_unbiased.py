"""The statistical oracle: the mean of many draws of the influence is the influence.

An estimator's influence is compared with the one that RTRL carries with the same window, so that both cover the same
steps. Two figures are tested: every entry's z-score, and the z-score of the projection on the truth, whose standard
error is brought below 0.3 %, so that an error of 2 % lies seven standard errors out. The cuts leave a false alarm about
once in 10⁴ runs of the whole suite; the keys are fixed all the same.
"""

import itertools
import runpy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import dense_diagonals, initial_state, linearize, transition
from evergrad._core.model import encode
from evergrad._estimators.scaling import mixed
from tests.helpers import ESTIMATORS, PAIRS, crossed, linearized, make_cell, make_data, stepped, with_window
from tests.training_helpers import ROOT

DRAWS, MOST_DRAWS = 20_000, 1_000_000
ENTRY_CUT, PROJECTION_CUT, STANDARD_ERROR = 6.0, 4.5, 0.003
NOISY = [e for e in ESTIMATORS if ESTIMATORS[e].influence.unbiased and e != "rtrl"]
CASES = [(e, c, w) for e, c in PAIRS for w in (0, 3) if e in NOISY and c != "leaky"]


@eqx.filter_jit
def carried_influence(estimator, cell, xs, resets, key):
    """[m, ...] of stream 0 after all steps."""
    past, influence = estimator.past, estimator.influence

    def step(track, inputs):
        hidden, track, t = track
        x, reset = inputs
        keys = jax.vmap(lambda k: jax.random.fold_in(k, t))(jax.random.split(key, len(x)))
        if estimator.window:

            def make_room(tr):
                return past.make_room(influence, cell, tr, keys)

            track = jax.lax.cond(past.is_full(track), make_room, lambda tr: tr, track)
        hidden, memory = jax.vmap(linearize, (None, 0, 0, 0))(cell, hidden, encode(cell, x), reset)
        return (hidden, past.remember(influence, cell, track, memory, keys), t + 1), None

    hidden = jnp.tile(initial_state(cell)[None], (xs.shape[1], 1))
    start = hidden, past.start(influence, cell, None, xs.shape[1]), jnp.zeros((), jnp.int32)
    (_, track, _), _ = jax.lax.scan(step, start, (xs, resets))
    whole = jax.vmap(influence.materialise, (0, None))(track.carried, cell)
    return jnp.concatenate([a[0].reshape(-1) for a in jax.tree.leaves(whole)])


def steps_for(window_size):
    """Five steps in the influence, or six in two folds with a window of 3."""
    return 5 if window_size == 0 else 9


def situation(window_size):
    """xs and resets of one stream."""
    xs, _, _ = make_data(steps_for(window_size), 1, seed=2)
    resets = np.zeros(xs.shape, bool)
    resets[1] = True  # four steps or more are mixed after it, and with a window it falls inside a fold
    return jnp.asarray(xs), jnp.asarray(resets)


def z_scores(estimator, cell, window_size, planted=1.0, truth=None):
    """The largest z-score of an entry and the z-score of the projection on the truth, RTRL's unless another is given."""
    xs, resets = situation(window_size)
    if truth is None:
        truth = carried_influence(with_window(eg.RTRL(), window_size), cell, xs, resets, jax.random.key(0))
    assert float(jnp.linalg.norm(truth)) > 0.01
    estimator = with_window(estimator, window_size)

    @jax.jit
    def moments(key):
        draw = jax.vmap(lambda k: planted * carried_influence(estimator, cell, xs, resets, k))
        error = draw(jax.random.split(key, DRAWS)) - truth[None]
        along = error @ truth / (truth @ truth)
        return error.sum(0), (error**2).sum(0), along.sum(), (along**2).sum()

    total, n = None, 0
    for i in itertools.count():
        new = moments(jax.random.key(100 + i))
        total = new if total is None else jax.tree.map(jnp.add, total, new)
        n += DRAWS
        mean, square, along, along2 = (np.asarray(t) / n for t in total)
        error = np.sqrt(max(along2 - along**2, 0) / n)
        if error < STANDARD_ERROR or n >= MOST_DRAWS:
            break
    assert error < STANDARD_ERROR, "not enough draws to notice an error of 2 %"
    spread = np.sqrt(np.maximum(square - mean**2, 0) / n)
    tiny = 1e-9 * float(jnp.abs(truth).max())
    return float((np.abs(mean) / np.maximum(spread, tiny)).max()), float(abs(along) / max(error, 1e-9))


def among_the_first(name, cell, window_size):
    first = name in ("uoro", "kf", "ok", "ok-signs", "ktp") and cell == "rhn" and window_size == 0
    return first or (name, cell, window_size) in (("ok", "lstm", 3), ("kf", "rhn", 3))


@pytest.mark.parametrize(("name", "cell", "window_size"), crossed(CASES, among_the_first))
def test_unbiased(name, cell, window_size):
    entry, projection = z_scores(ESTIMATORS[name], make_cell(cell, scale=1.5), window_size)
    assert entry < ENTRY_CUT
    assert projection < PROJECTION_CUT


@pytest.mark.parametrize("window_size", [0, 3])
def test_the_biased_estimator_fails_the_test(window_size):
    estimator = eg.OK(rank=1, window=window_size, mix="truncate")
    assert not estimator.unbiased
    assert max(z_scores(estimator, make_cell("rhn", scale=1.5), window_size)) > 10


@pytest.mark.parametrize("name", ["uoro", "kf", "ok", "ktp"])
def test_a_planted_error_of_two_percent_fails_the_test(name):
    _, projection = z_scores(ESTIMATORS[name], make_cell("rhn", scale=1.5), 0, planted=1.02)
    assert projection > PROJECTION_CUT


def remembered(cell, steps, seed=0):
    """The memories of a few steps of one stream, with a reset half-way."""
    xs, _, _ = make_data(steps, 1, seed=seed)
    hidden, memories = initial_state(cell), []
    for t in range(steps):
        hidden, memory = linearized(cell, hidden, encode(cell, jnp.asarray(xs[t, 0])), jnp.asarray(t == steps // 2))
        memories.append(memory)
    return memories


def exact_influence(cell, memories):
    carried = eg.RTRL().influence.init(cell)
    for memory in memories:
        carried = stepped(eg.RTRL(), carried, cell, memory, None)
    return carried


@pytest.mark.parametrize("cell", crossed(["rnn", "rhn", "lstm", "gru", "leaky"], lambda cell: cell in ("rhn", "lstm")))
def test_kf_by_enumeration_of_all_signs(cell):
    """Four steps, sixteen sign sequences: the mean is exact, not just close."""
    cell = make_cell(cell, scale=1.5)
    memories = remembered(cell, 4)

    def outcome(signs):
        u, a = jnp.zeros(len(cell.weight)), jnp.zeros((initial_state(cell).size, cell.weight.shape[1]))
        for s, memory in zip(signs, memories, strict=True):
            product = transition(cell, memory).matmul(a)
            u, a = mixed((u, product), (memory.regressor, dense_diagonals(memory.diagonals)), (s, s))
        return jnp.einsum("p,mq->mpq", u, a)

    every = jnp.asarray([*itertools.product([1.0, -1.0], repeat=4)])
    mean = jnp.where(cell.mask[None], jax.jit(jax.vmap(outcome))(every).mean(0), 0)
    np.testing.assert_allclose(mean, exact_influence(cell, memories).weight, rtol=0, atol=1e-13)


def test_the_triple_product_by_enumeration_of_its_signs():
    keys = jax.random.split(jax.random.key(0), 6)
    old, new = ([jax.random.normal(k, (4,)) for k in three] for three in (keys[:3], keys[3:]))

    def outer(x):
        return jnp.einsum("i,j,k->ijk", *x)

    total = sum(
        outer(mixed(tuple(old), tuple(new), tuple(map(jnp.asarray, (s, t, s * t)))))
        for s, t in itertools.product([1.0, -1.0], repeat=2)
    )
    np.testing.assert_allclose(total / 4, outer(old) + outer(new), atol=1e-13)


def test_the_estimator_of_the_examples():
    names = runpy.run_path(str(ROOT / "examples" / "shared_ktp.py"))
    worst, along = z_scores(names["SharedKTP"](rank=2), make_cell("rhn"), 0)
    assert worst < ENTRY_CUT
    assert abs(along) < PROJECTION_CUT
