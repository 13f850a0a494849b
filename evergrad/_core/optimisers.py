"""Optimisers of Optax as a learner can use them."""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import optax

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.parameters import parameters
from evergrad._core.printable import first_line


def usable(optimiser: Any, model: Any) -> optax.GradientTransformation:
    """The optimiser, or one that does for a single set of weights what it does for two (lookahead).

    Refused where it needs what a learner cannot give: the value of the loss at other weights, say.
    """
    refuse_unless(
        hasattr(optimiser, "init") and hasattr(optimiser, "update"),
        f"Learner needs an Optax optimiser such as optax.adam(3e-4), not {optimiser!r}.",
    )
    weights, standard = parameters(model), (jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"))
    with standard[0], standard[1]:
        error = _tried(optimiser, weights)
        if error is None:
            return optimiser
        two = _Two(optimiser)
        looking = optax.GradientTransformation(two.init, cast(Any, two.update))
        if _tried(looking, weights) is None:
            return looking
    raise InputError(
        f"this optimiser cannot be used with a Learner ({first_line(error)}). One that needs no more than gradients and weights "
        "can: optax.adam, sgd, lion, adafactor, lookahead, chain, … Those that ask for the value of the loss (polyak_sgd, "
        "lbfgs, reduce_on_plateau) cannot, since it changes from step to step with the data: lower the rate by a schedule instead."
    )


def _tried(optimiser: Any, weights: Any) -> Exception | None:
    """What goes wrong in a first update, which is not run."""

    def update(weights):
        state = optimiser.init(weights)
        return state, optimiser.update(weights, state, weights)[1]

    try:
        before, after = (_shapes(each) for each in eqx.filter_eval_shape(update, weights))
    except Exception as error:  # other people's code
        return error
    return None if before == after else TypeError("an update changes the form of its state")


def _shapes(tree: Any) -> list[Any]:
    return [(a.shape, a.dtype) for a in jax.tree.leaves(tree) if isinstance(a, jax.ShapeDtypeStruct)]


class _Looking(NamedTuple):
    inner: Any
    slow: Any


class _Two:
    """`optax.lookahead` wants fast and slow weights; here the slow ones are part of the optimiser's state."""

    def __init__(self, optimiser: Any):
        self.optimiser = optimiser

    def init(self, params: Any) -> _Looking:
        return _Looking(self.optimiser.init(optax.LookaheadParams.init_synced(params)), jax.tree.map(_copied, params))

    def update(self, updates: Any, state: _Looking, params: Any = None) -> tuple[Any, _Looking]:
        both = optax.LookaheadParams(params, state.slow)
        moves, inner = self.optimiser.update(updates, state.inner, both)
        return moves.fast, _Looking(inner, optax.apply_updates(state.slow, moves.slow))


def _copied(a: jax.Array) -> jax.Array:
    return a + jax.numpy.zeros((), a.dtype)


def in_words(optimiser: Any, model: Any) -> str:
    """By the states that it keeps, since Optax's have no names."""
    form = eqx.filter_eval_shape(optimiser.init, parameters(model))
    names = [name for name in _kinds(form) if name not in ("Empty", "tuple")]
    return " and ".join(dict.fromkeys(names)) or "without state"


def _kinds(form: Any) -> list[str]:
    if not isinstance(form, tuple):
        return []
    own = [type(form).__name__.lstrip("_").removesuffix("State")] if hasattr(form, "_fields") else []
    return own + [name for each in form for name in _kinds(each)]
