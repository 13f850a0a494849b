"""Certificates hold at every step, are 0 where nothing is lost, and a smaller bound than they have would not hold."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._core.linearize import initial_state, linearize
from evergrad._core.model import encode
from evergrad._core.parameters import repeated
from evergrad.lab import certificates
from tests.helpers import make_data, make_model
from tests.training_helpers import succeed

STEPS, RUNS = 12, 100
TRUNCATED = eg.OK(rank=2, window=0, mix="truncate")


@eqx.filter_jit
def errors(cell, estimator, x, reset, keys):
    """‖G' − G‖ after every fold, with G by exact RTRL."""

    def see(state, inputs):
        return linearize(cell, state, encode(cell, inputs[0]), inputs[1])

    _, memories = jax.lax.scan(see, initial_state(cell), (x, reset))
    blocks = jax.tree.map(lambda a: a.reshape(len(keys), -1, *a.shape[1:]), memories)
    both = estimator.influence, eg.RTRL().influence

    def fold(carried, inputs):
        memories, key = inputs
        cells = repeated(cell, len(memories.alive))
        carried = tuple(i.absorb(c, cells, memories, key) for i, c in zip(both, carried, strict=True))
        found, exact = (i.materialise(c, cell).weight for i, c in zip(both, carried, strict=True))
        return carried, jnp.linalg.norm(found - exact)

    return jax.lax.scan(fold, tuple(i.init(cell) for i in both), (blocks, keys))[1]


def one_way(model):
    """Units see those before them only, with large weights: all eigenvalues of H are 0, and errors grow all the same."""
    rows = slice(model.cell.inputs, -1)
    upper = jnp.triu(4 * model.cell.weight[rows], 1)
    return eqx.tree_at(lambda m: m.cell.weight, model, model.cell.weight.at[rows].set(upper))


def compared(estimator, seed, *, scale=1.5, units=3, model_seed=None, steps=STEPS, cut=0.1, change=lambda model: model):
    """Bounds and errors of a random network on random data, resets among it."""
    model = change(make_model("rnn", units=units, scale=scale, seed=seed if model_seed is None else model_seed))
    xs, _, resets = make_data(steps, batch=1, resets=cut, seed=seed if model_seed is None else model_seed)
    key = jax.random.key(seed)
    found = eg.lab.certificate(model, estimator, xs, resets, key=key)
    keys = jax.random.split(key, len(found.steps))
    return found, np.asarray(errors(model.cell, estimator, jnp.asarray(xs[:, 0]), jnp.asarray(resets[:, 0]), keys))


def violations(estimator=TRUNCATED, runs=RUNS, **options):
    """How many of the runs have an error above its bound somewhere."""
    count = 0
    for seed in range(runs):
        found, true = compared(estimator, seed, **options)
        count += bool((true > found.bounds + 1e-12 * found.sizes).any())
    return count


@pytest.mark.parametrize("window", [0, 3])
def test_no_error_is_above_its_bound_in_a_hundred_runs(window):
    assert violations(eg.OK(rank=2, window=window, mix="truncate")) == 0


def compile_anew(monkeypatch):
    """Since what is compiled does not see that a function was replaced."""
    inside = certificates._certified.__wrapped__

    def anew(*given):
        return inside(*given)

    monkeypatch.setattr(certificates, "_certified", eqx.filter_jit(anew))


def test_the_spectral_radius_would_not_do(monkeypatch):
    """ρ̄ replaced by the largest eigenvalue, which many take for it: errors exceed that where H is far from normal."""
    assert violations(runs=20, units=6, change=one_way) == 0

    def radius(p):
        return jnp.abs(jnp.linalg.eigvals(p)).max()

    monkeypatch.setattr(certificates, "growth", radius)
    compile_anew(monkeypatch)
    assert violations(runs=20, units=6, change=one_way) > 0


def test_it_is_zero_where_nothing_is_dropped():
    for mix in ("truncate", "sampling"):
        found, true = compared(eg.OK(rank=5, window=0, mix=mix), 1, steps=5, cut=0)  # five terms, all of them kept
        assert (found.bounds == 0).all()
        assert true.max() < 1e-12
        assert not found.vacuous


def squares(draws=400):
    """Means and standard errors of error² − V over draws of one network, after every fold."""
    pairs = [compared(eg.OK(rank=2, window=0), seed, model_seed=1) for seed in range(draws)]
    difference = np.array([true**2 - found.bounds**2 for found, true in pairs])
    return difference.mean(0), difference.std(0) / np.sqrt(draws)


def test_the_mean_square_is_within_the_variance():
    mean, error = squares()
    assert (mean <= 4 * error + 1e-20).all()


def test_half_the_variance_would_not_do(monkeypatch):
    monkeypatch.setattr(certificates, "dropped", lambda d, e: DROPPED(d, e) / np.sqrt(2))
    compile_anew(monkeypatch)
    mean, error = squares()
    assert (mean > 4 * error + 1e-20).any()


DROPPED = certificates.dropped


def test_what_it_says():
    tame, _ = compared(TRUNCATED, 0, scale=0.3)
    wild = eg.lab.Certificate(np.arange(3), np.array([0.0, 1.0, 50.0]), np.full(3, 2.0), np.full(3, 2.5), False)
    assert "wrong by at most" in str(tame)
    assert "for sure" in str(tame)
    assert wild.vacuous
    assert "vacuous" in str(wild)
    assert "lab probe" in str(wild)
    unbiased, _ = compared(eg.OK(rank=2, window=0), 0, scale=0.3)
    assert "root mean square" in str(unbiased)


@pytest.mark.parametrize(
    ("cell", "estimator", "words"),
    [
        ("rnn", eg.KF(), "use eg.lab.probe"),
        ("reset-before-gru", TRUNCATED, "not one linear map"),
        ("rnn", eg.OK(rank=2, window=64), "less than a window"),
    ],
)
def test_what_cannot_be_certified_is_refused(cell, estimator, words):
    with pytest.raises(eg.InputError, match=words):
        eg.lab.certificate(make_model(cell), estimator, make_data(8)[0], key=jax.random.key(0))


def test_on_the_command_line(tmp_path):
    run = tmp_path / "run"
    sizes = ["--units", "6", "--batch", "2", "--length", "4", "--steps", "20", "--report", "20"]
    succeed("train", "copy", *sizes, "--estimator", "tbptt", "--horizon", "4", "--out", run)
    said = succeed("lab", "certificate", run, "--estimator", "ok:rank=2,mix=truncate", "--steps", "40")
    assert "ok:rank=2,mix=truncate: " in said
    assert "ρ̄" in said
