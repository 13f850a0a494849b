"""Predictions before their targets; states that are given away; frozen use."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.beginning import begin
from evergrad._core.rated import rated
from tests.helpers import cast, crossed
from tests.training_helpers import command_line_config

KEY = jax.random.key(0)
XS, YS = (jax.random.normal(KEY, (6, 2, size)) for size in (3, 2))


def model_of(kind=eg.LSTM, units=4):
    return eg.Model(kind(3, units, key=KEY), eg.Linear(units, 2, key=KEY))


def learner_of(estimator=None, **how):
    return eg.Learner(model_of(), estimator or eg.RTRL(), optax.adam(1e-2), clip=1.0, **how)


def same(a, b):
    return eqx.tree_equal(a, b) is True or bool(eqx.tree_equal(a, b))


@pytest.mark.parametrize("estimator", [eg.RTRL(), eg.OK(rank=2, window=2), eg.TBPTT(horizon=2)], ids=repr)
def test_predict_and_learn_are_step_to_the_bit(estimator):
    learner = learner_of(estimator)
    one, two = (learner.init(batch=2, key=KEY) for _ in range(2))
    resets = np.array([False, True])
    for t, (x, y) in enumerate(zip(XS, YS, strict=True)):
        reset, weights = (resets, np.array([0.0, 1.0])) if t == 3 else (None, None)
        one, out = learner.step(one, x, y, reset, weights=weights)
        two, predictions = learner.predict(two, x, reset)
        two, late = learner.learn(two, y, weights=weights)
        assert same(predictions, out.predictions)
        assert same(late, out)
    assert same(one, two)


def test_no_target_is_the_same_as_weights_of_zero():
    learner = learner_of()
    one, two, three = (learner.init(batch=2, key=KEY) for _ in range(3))
    one, out = learner.step(one, XS[0], YS[0], weights=np.zeros(2))
    two, none = learner.step(two, XS[0], None)
    three, _ = learner.predict(three, XS[0])
    three, _ = learner.learn(three, None)
    assert same(one, two)
    assert same(two, three)
    assert same(none.predictions, out.predictions)
    assert not none.losses.any()
    assert int(two.time) == 1
    assert same(two.model, learner.model)


def test_what_waits_for_its_target_is_not_passed_over():
    learner = learner_of()
    state = learner.init(batch=2, key=KEY)
    with pytest.raises(eg.InputError, match=r"needs the state that `predict` returned.*learner.predict\(state, x\)"):
        learner.learn(state, YS[0])
    waiting, _ = learner.predict(state, XS[0])
    for again in (
        lambda: learner.step(waiting, XS[0], YS[0]),
        lambda: learner.run(waiting, XS, YS),
        lambda: learner.predict(waiting, XS[0]),
    ):
        with pytest.raises(eg.InputError, match=r"target has not come: call learner.learn\(state, y\) first"):
            again()


def test_a_state_that_was_given_away_is_named_and_its_model_too(tmp_path):
    learner = learner_of()
    old = learner.init(batch=2, key=KEY)
    learner.step(old, XS[0], YS[0])
    for use in (
        lambda: learner.step(old, XS[0], YS[0]),
        lambda: learner.run(old, XS, YS),
        lambda: learner.predict(old, XS[0]),
        lambda: old.model.losses(XS, YS),
        lambda: old.model.run(XS),
        lambda: eg.Learner(old.model, eg.RTRL(), optax.sgd(0.1)),
        lambda: eg.save(tmp_path / "old", old),
        lambda: eg.copy(old),
    ):
        with pytest.raises(eg.InputError, match=r"was given away.*eg.copy\(state.model\).*donate=False"):
            use()


def test_a_state_that_keeps_its_memory_can_be_used_again():
    learner = learner_of()
    first = learner.init(batch=2, key=KEY, donate=False)
    once, _ = learner.run(first, XS, YS)
    again, _ = learner.run(first, XS, YS)
    assert same(once, again)
    given, _ = learner.run(learner.init(batch=2, key=KEY), XS, YS)
    assert same(given.model, once.model)
    assert not once.donate


def test_a_copy_outlives_its_state():
    learner = learner_of()
    state = learner.init(batch=2, key=KEY)
    best = eg.copy(state.model)
    learner.step(state, XS[0], YS[0])
    assert same(best, learner.model)


@pytest.mark.parametrize("kind", [eg.LSTM, eg.GRU])
def test_a_frozen_model_predicts_what_a_learner_that_learns_nothing_does(kind):
    model = model_of(kind)
    learner = eg.Learner(model, eg.TBPTT(horizon=1), optax.set_to_zero())
    resets = np.zeros((6, 2), bool)
    resets[3, 1] = True
    after, out = learner.run(learner.init(batch=2, key=KEY), XS, YS, resets)
    state, predictions = model.run(XS, resets)
    np.testing.assert_allclose(predictions, out.predictions, atol=1e-12)
    assert jax.tree.structure(state) == jax.tree.structure(model.cell.initial())
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(lambda a: (2, *a.shape), model.cell.initial())
    np.testing.assert_allclose(after.cell_state, state, atol=1e-12)
    half, first = model.run(XS[:3])
    _, second = model.run(XS[3:], resets[3:], half)
    np.testing.assert_allclose(jnp.concatenate([first, second]), predictions, atol=1e-12)


def test_a_state_of_another_cell_is_refused():
    with pytest.raises(eg.InputError, match=r"a LSTM with 2 streams has .*state.cell_state"):
        model_of().run(XS, state=jnp.zeros((2, 4)))


def test_streams_before_steps_get_a_hint():
    learner = learner_of()
    state = learner.init(batch=2, key=KEY)
    with pytest.raises(eg.InputError, match=r"looks like \[B, T, ...\]: use xs.swapaxes\(0, 1\)"):
        learner.run(state, XS.swapaxes(0, 1), YS)
    with pytest.raises(eg.InputError, match=r"y has shape \[2, 6, 2\].*time comes first"):
        learner.run(state, XS, YS.swapaxes(0, 1))


def test_grad_through_a_learner_says_what_to_use_instead():
    learner = eg.Learner(model_of(), eg.RTRL(), optax.sgd(0.1))

    def loss(model):
        state = learner.init(batch=2, key=KEY, donate=False)
        return learner.run(eqx.tree_at(lambda s: s.model, state, model), XS, YS)[1].losses.mean()

    for grad in (jax.grad(loss), jax.jit(jax.grad(loss))):
        with pytest.raises(eg.InputError, match=r"model.losses\(xs, ys\).mean\(\).*eg.gradients"):
            grad(learner.model)
    assert np.isfinite(jax.jvp(loss, (learner.model,), (learner.model,))[1])  # forward mode keeps no past


def test_grad_through_what_has_double_precision_inside_says_so_too():
    """OK in float32: the derivative would stop at its float64 before it comes to what is learned."""
    with command_line_config():
        learner = eg.Learner(cast(model_of(), jnp.float32), eg.OK(rank=2, window=2), optax.sgd(0.1))
        state = learner.init(batch=2, key=KEY, donate=False)

        def loss(model):
            return learner.step(eqx.tree_at(lambda s: s.model, state, model), XS[0], YS[0])[1].losses.mean()

        with pytest.raises(eg.InputError, match=r"eg.gradients"):
            eqx.filter_grad(loss)(state.model)


def test_what_a_learner_is():
    said = repr(learner_of(eg.OK(rank=2)))
    assert said.startswith("Learner of LSTM(inputs=3, units=4) and Linear, 138 weights: OK(rank=2")
    assert "ScaleByAdam, clip=1.0" in said


def test_equal_learners_share_what_was_compiled():
    def compiled(learner):
        state = learner.init(batch=2, key=KEY)
        with jax.log_compiles(), Traces() as traces:
            learner.step(state, XS[0], YS[0])
        return traces.count

    def made(rate=1e-2, clip=1.0, estimator=None):
        return eg.Learner(model_of(), estimator or eg.UORO(), optax.adam(rate), clip=clip)

    assert compiled(made()) > 0
    assert compiled(made()) == 0
    assert compiled(made(clip=0.5)) == 0
    assert compiled(made(rate=2e-2)) == 0
    assert compiled(made(estimator=eg.UORO(window=1))) > 0


def test_the_first_state_is_one_program_and_to_the_bit_what_its_parts_are():
    """And its memory is its own: that of the model is not given away with it, nor is one array given away twice."""
    model, optimiser = model_of(), optax.adam(1e-2)
    learner = eg.Learner(model, eg.OK(rank=2, window=5), optimiser)
    with jax.log_compiles(), Traces("Compiling") as traces:
        at_once = learner.init(batch=2, key=KEY)
    assert traces.count == 1
    assert eqx.tree_equal(at_once, begin(model, learner.estimator, optimiser, 2, KEY))
    learner.step(at_once, XS[0], YS[0])
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(model) if eqx.is_array(leaf))


class Traces:
    """Counts the compilations of a learner's loop, or those whose message has another word in it."""

    def __init__(self, word="_drive"):
        self.word = word

    def __enter__(self):
        import logging

        self.count = 0
        self._logger, self._handler = logging.getLogger("jax._src.interpreters.pxla"), logging.Handler()
        self._handler.emit = self._heard
        self._logger.addHandler(self._handler)
        return self

    def _heard(self, record):
        self.count += self.word in record.getMessage()

    def __exit__(self, *_):
        self._logger.removeHandler(self._handler)


OPTIMISERS = {
    "adam": optax.adam,
    "sgd": lambda rate: optax.sgd(rate, momentum=0.5),
    "adamw": lambda rate: optax.chain(optax.clip(1.0), optax.adamw(rate, weight_decay=0.1)),
    "rmsprop": optax.rmsprop,
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_another_rate_is_no_other_program_and_learns_as_it_says(name):
    """Beside what Optax itself makes of the same gradients."""
    counts = []
    for rate in (0.03, 0.1):
        optimiser = OPTIMISERS[name](rate)
        learner = eg.Learner(model_of(), eg.RTRL(), optimiser)
        state = learner.init(batch=2, key=KEY)
        with jax.log_compiles(), Traces() as traces:
            state, _ = learner.run(state, XS, YS)
        counts.append(traces.count)
        model, before = model_of(), optimiser.init(eg.parameters(model_of()))
        _, gradients = eg.gradients(model, eg.RTRL(), XS[:1], YS[:1], key=KEY)
        first, _ = eg.clip_and_update(model, optimiser, before, jax.tree.map(lambda a: a[0], gradients))
        once, _ = learner.run(learner.init(batch=2, key=KEY), XS[:1], YS[:1])
        np.testing.assert_allclose(once.model.cell.weight, first.cell.weight, rtol=1e-12, atol=1e-14)
    assert counts[0] > 0
    assert counts[1] == 0


def test_a_schedule_is_part_of_the_program():
    """Its numbers are inside a function, which nobody can look into."""
    kept = rated(optax.adam(optax.cosine_decay_schedule(1e-3, 10)))
    assert kept.rates == ()
    assert kept.form != rated(optax.adam(optax.cosine_decay_schedule(1e-2, 10))).form


def test_another_clip_clips_otherwise():
    """The norm is an argument of what is shared."""
    models = []
    for clip in (1e-3, 10.0):
        learner = eg.Learner(model_of(), eg.RTRL(), optax.sgd(1.0), clip=clip)
        models.append(learner.step(learner.init(batch=2, key=KEY), XS[0], YS[0])[0].model.cell.weight)
    moved = [float(jnp.linalg.norm(weight - model_of().cell.weight)) for weight in models]
    assert moved[0] == pytest.approx(1e-3)
    assert moved[1] > 2e-3


HALVES = [(e, which) for e in (eg.OK(rank=2, window=2), eg.TBPTT(horizon=2), eg.RTRL()) for which in ("all", "cell")]


@pytest.mark.parametrize(
    ("estimator", "which"), crossed(HALVES, lambda *case: case in (HALVES[0], HALVES[3], HALVES[5]))
)
def test_half_precision_of_all_weights_or_of_the_cell_alone_trains(estimator, which):
    """Under JAX's usual promotion of types, which a user has."""
    model = model_of()
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), model)
    model = half if which == "all" else eqx.tree_at(lambda m: m.cell, model, half.cell)
    with jax.numpy_dtype_promotion("standard"):
        learner = eg.Learner(model, estimator, optax.adam(2e-2), clip=1.0)
        state, out = learner.run(learner.init(batch=2, key=KEY), jnp.tile(XS, (10, 1, 1)), jnp.tile(YS, (10, 1, 1)))
    assert out.losses[-6:].mean() < out.losses[:6].mean()
    assert jax.tree.map(lambda a: a.dtype, state.model) == jax.tree.map(lambda a: a.dtype, model)
