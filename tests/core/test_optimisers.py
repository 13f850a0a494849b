"""Optimisers of Optax: those that a learner can use, and a sentence for the others."""

import inspect
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg

KEY = jax.random.key(0)
XS, YS = (jax.random.normal(KEY, (6, 2, size)) for size in (3, 2))
# which want the value of the loss
REFUSED = {"polyak_sgd", "lbfgs"}


def by_rate():
    """Optax's optimisers that are made from a learning rate alone."""
    for name in sorted(vars(optax)):
        make = getattr(optax, name)
        if inspect.isfunction(make) and "learning_rate" in inspect.signature(make).parameters:
            needed = [p for p in inspect.signature(make).parameters.values() if p.default is p.empty]
            if {p.name for p in needed if p.kind is not p.VAR_KEYWORD} <= {"learning_rate"}:
                yield name


def learner_of(optimiser):
    model = eg.Model(eg.RNN(3, 4, key=KEY), eg.Linear(4, 2, key=KEY))
    return eg.Learner(model, eg.TBPTT(horizon=1), optimiser)


def test_all_of_optax_is_there():
    assert len(list(by_rate())) > 20


@pytest.mark.parametrize("name", list(by_rate()))
def test_an_optimiser_works_or_is_refused_in_a_sentence(name):
    with warnings.catch_warnings(action="ignore"):
        optimiser = getattr(optax, name)(learning_rate=1e-2)
    if name in REFUSED:
        with pytest.raises(
            eg.InputError, match=r"cannot be used with a Learner.*(value of the loss|form of its state)"
        ):
            learner_of(optimiser)
        return
    learner = learner_of(optimiser)
    data = learner.sequence(XS, YS, batch=2).data
    eqx.filter_eval_shape(lambda: learner._recipe.drive(data, learner._start(2, KEY)))  # the loop, traced


def test_lookahead_is_what_optax_says():
    optimiser = optax.lookahead(optax.sgd(0.1), sync_period=2, slow_step_size=0.5)
    learner = learner_of(optimiser)
    state, _ = learner.run(learner.init(batch=2, key=KEY), XS, YS)

    params = optax.LookaheadParams.init_synced(learner.model)
    inner = optimiser.init(params)
    hidden = learner.init(batch=2, key=KEY).hidden
    for x, y in zip(XS, YS, strict=True):
        one = eg.Learner(params.fast, eg.TBPTT(horizon=1), optax.sgd(1.0))
        begun = one.init(batch=2, key=KEY)
        begun = type(begun)(**{**vars(begun), "hidden": hidden})
        moved, _ = one.step(begun, x, y)
        gradient = jax.tree.map(jnp.subtract, params.fast, moved.model)
        hidden = moved.hidden
        with jax.numpy_dtype_promotion("standard"):
            updates, inner = optimiser.update(gradient, inner, params)
        params = optax.apply_updates(params, updates)
    for a, b in zip(jax.tree.leaves(state.model), jax.tree.leaves(params.fast), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_a_rate_in_the_state_needs_no_other_program():
    learner = learner_of(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1))
    state = learner.init(batch=2, key=KEY)
    state.optimiser.hyperparams["learning_rate"] = jnp.zeros_like(state.optimiser.hyperparams["learning_rate"])
    state, _ = learner.step(state, XS[0], YS[0])
    np.testing.assert_array_equal(state.model.cell.weight, learner.model.cell.weight)
