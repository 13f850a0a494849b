"""What learns online is not differentiated through: a reason, where somebody tries."""

from typing import Any, NoReturn

import equinox as eqx
import jax
from jaxtyping import Array

from evergrad._core.checks import InputError


def forward_only(tree: Any) -> Any:
    """The tree as it is, with a reason for those who would carry a derivative back through it."""
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(_forward_only, arrays), rest)


@jax.custom_jvp
def _forward_only(a: Array) -> Array:
    return a


@_forward_only.defjvp
def _forward_only_jvp(primals, tangents):
    return primals[0], jax.custom_derivatives.linear_call(_as_it_is, _refused, (), tangents[0])


def _as_it_is(nothing, tangent):
    return tangent


def _refused(nothing, cotangent):
    refuse_derivative()


def refuse_derivative() -> NoReturn:
    raise InputError(
        "jax.grad cannot go back through Learner.step or run, which learn online and keep no past for it. For the gradient of "
        "a sequence use `jax.grad(lambda model: model.losses(xs, ys).mean())(model)`, which is full backpropagation, or "
        "`eg.gradients(model, estimator, xs, ys, key=key)`, which is what the learner uses."
    )
