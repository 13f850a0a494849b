"""ARTBP: every pattern of cuts with its probability, summed, is the gradient; so is every horizon of the rolling form."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.linearize import flat_step, initial_state, linearize
from evergrad._core.model import encode
from evergrad._core.parameters import parted
from evergrad._pasts.base import Seen
from evergrad._pasts.random_horizon import Chances, Rolling, Segments
from tests.helpers import crossed, flat, make_cell, make_data, make_model

STEPS = 5
INPUTS = [0, 2, 1, 1, 0]
SOUGHT = jax.random.normal(jax.random.key(5), (STEPS, 6))  # L_t = sought_t · state_t


class GivenCuts(Segments):
    """Cuts, one a stream, where the keys would be."""

    def drawn(self, keys, step):
        return keys


class WeighedOutside(GivenCuts):
    """The usual mistake: a segment is weighed as a whole, behind the recursion."""

    def _factors(self, like):
        return jnp.ones_like(super()._factors(like))


class GivenHorizon(Rolling):
    def drawn(self, keys):
        return keys


def gradients_of(past, cell, keys, weights):
    """[T, parameters]: of Σ over streams weight·L, one stream for each pattern, all of the same data."""
    batch = keys.shape[1]
    influence, state = eg.TBPTT().influence, jnp.tile(initial_state(cell)[None], (batch, 1))

    def step(carry, inputs):
        state, track = carry
        x, keys, sought = inputs

        def linear(state):
            return linearize(cell, state, encode(cell, x), jnp.asarray(False))

        state, memory = jax.vmap(linear)(state)
        track = past.remember(influence, cell, track, memory, keys)
        seen = Seen(weights[:, None] * sought[None], None, None, jnp.asarray(True))
        gradient, track = past.gradient(influence, cell, track, state, seen, keys)
        return (state, track), flat(gradient)

    start = state, past.start(influence, cell, None, batch)
    sought = SOUGHT[:, : state.shape[1]]
    return jax.jit(lambda: jax.lax.scan(step, start, (jnp.asarray(INPUTS), keys, sought))[1])()


def losses_slopes(cell):
    """[T, parameters]: of each L_t."""
    params, rest = parted(cell)

    def losses(params):
        state, each = initial_state(cell), []
        for x, sought in zip(INPUTS, SOUGHT, strict=True):
            state = flat_step(eqx.combine(params, rest), state, encode(cell, jnp.asarray(x)))
            each.append(sought[: len(state)] @ state)
        return jnp.stack(each)

    slopes = jax.jit(jax.jacrev(losses))(params)
    return jnp.concatenate([a.reshape(STEPS, -1) for a in jax.tree.leaves(slopes)], axis=1)


def all_patterns(schedule):
    """Cuts [T, 16], with one at the end, and their chances by hand."""
    patterns = [(*cuts, True) for cuts in itertools.product([False, True], repeat=STEPS - 1)]
    chances = []
    for pattern in patterns:
        chance, since = 1.0, 0
        for cut in pattern[:-1]:
            since += 1
            c = 1 / 3 if schedule == "constant" else 3.0 / (2.0 * 3 + since)
            chance, since = (chance * c, 0) if cut else (chance * (1 - c), since)
        chances.append(chance)
    assert sum(chances) == pytest.approx(1)
    return jnp.asarray(patterns).T, jnp.asarray(chances)


def chances_of(schedule="paper", cap=8):
    return Chances(3, cap, 4.0, schedule)


@pytest.mark.parametrize(
    ("name", "schedule"),
    crossed(
        [("lstm", "paper"), ("lstm", "constant"), ("reset-before-gru", "paper"), ("rhn", "constant")],
        lambda name, schedule: name == "lstm",
    ),
)
def test_all_patterns_of_cuts(name, schedule):
    cell = make_cell(name, units=3, scale=1.5)
    found = gradients_of(GivenCuts(chances_of(schedule)), cell, *all_patterns(schedule)).sum(0)
    np.testing.assert_allclose(found, losses_slopes(cell).sum(0), rtol=0, atol=1e-12)


def test_weights_outside_the_recursion_fail():
    cell = make_cell("rhn", units=3, scale=1.5)
    found = gradients_of(WeighedOutside(chances_of()), cell, *all_patterns("paper")).sum(0)
    assert float(abs(found - losses_slopes(cell).sum(0)).max()) > 1e-3


@pytest.mark.parametrize("name", crossed(["lstm", "reset-before-gru"], lambda name: name == "lstm"))
def test_all_horizons_of_the_rolling_form(name):
    """Σ over K of P(K) ĝ(K) is the gradient of each step's loss."""
    cell = make_cell(name, units=3, scale=1.5)
    survival = chances_of().survival()
    chance = jnp.asarray(survival[:-1] - np.append(survival[1:-1], 0))
    horizons = jnp.tile(jnp.arange(len(chance), dtype=jnp.int32)[None], (STEPS, 1))
    found = gradients_of(GivenHorizon(chances_of()), cell, horizons, chance)
    np.testing.assert_allclose(found, losses_slopes(cell), rtol=0, atol=1e-12)
    assert float(abs(gradients_of(GivenHorizon(chances_of()), cell, horizons + 1, chance) - found).max()) > 1e-3


def test_the_draws_have_the_chances_that_the_weights_undo():
    keys = jax.random.split(jax.random.key(0), 20_000)
    chances = chances_of(cap=6)
    drawn = np.asarray(Rolling(chances).drawn(keys))
    for j, q in enumerate(chances.survival()[:-1]):
        assert abs((drawn >= j).mean() - q) < 0.015
    assert drawn.max() == 5
    for step in (1, 4):
        cut = Segments(chances).drawn(keys, jnp.full(len(keys), step, jnp.int32))
        assert abs(float(cut.mean()) - chances.cuts()[step - 1]) < 0.015


def test_the_mean_length_and_the_mass_beyond_the_cap():
    assert eg.ARTBP().lost == pytest.approx(9.0**-3, rel=0.2)
    assert Chances(16, 200_000, 4.0, "paper").survival().sum() == pytest.approx(16, rel=1e-6)
    assert Chances(16, 10_000, 4.0, "constant").survival().sum() == pytest.approx(16, rel=1e-6)


def test_a_segment_ends_at_the_cap():
    """Without cuts: TBPTT(horizon=3), at the steps where that is due, with the weights of steps that were crossed."""
    cell = make_cell("rhn", units=3, scale=1.5)
    never = jnp.zeros((STEPS, 1), bool)
    found = gradients_of(GivenCuts(chances_of(cap=3)), cell, never, jnp.ones(1))
    assert [bool(abs(g).max() > 0) for g in found] == [False, False, True, False, False]


@pytest.mark.parametrize("settings", [{"mean": 1}, {"cap": 0}, {"alpha": 3.0}, {"schedule": "none"}])
def test_settings_that_cannot_be(settings):
    with pytest.raises(eg.InputError):
        eg.ARTBP(**settings)


def weight_after(steps, monkeypatch=None):
    """Of a cell whose only target is at step 0 and whose segment ends, at the cap, after step 2."""
    model = make_model("rnn")
    if monkeypatch is not None:
        monkeypatch.setattr(Segments, "has_target", lambda self, track, seen: seen.target)
    learner = eg.Learner(model, eg.ARTBP(mean=1_000_000, cap=3, schedule="constant"), optax.sgd(1.0))
    xs, ys, _ = make_data(steps)
    weights = np.zeros((steps, 2))
    weights[0] = 1
    state, _ = learner.run(learner.init(batch=2, key=jax.random.key(0)), xs, ys, weights=weights)
    return float(abs(state.model.cell.weight - model.cell.weight).max())


def test_a_segment_teaches_though_its_last_step_has_no_target(monkeypatch):
    assert weight_after(2) == 0
    assert weight_after(3) > 1e-3
    assert weight_after(3, monkeypatch) == 0  # planted: what happens where only the last step's target counts
