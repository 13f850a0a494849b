"""The sign trick: a sum of two products as one product, right in the mean, with the norms shared out evenly."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._native.norms import norm


def balance(*norms: Float[Array, ""]) -> tuple[Float[Array, ""], ...]:
    """Factors, of product 1, that bring all norms to their geometric mean; all 0 where a norm is 0.

    A product with a vanishing factor is itself zero: dropping it whole is exact and adds no noise.
    """
    vanishes = jnp.stack(norms).min() == 0
    logs = jnp.log(jnp.where(vanishes, 1, jnp.stack(norms)))
    return tuple(jnp.where(vanishes, 0, jnp.exp(logs.mean() - logs)))


def mixed(
    old: tuple[Any, ...], new: tuple[Any, ...], signs: tuple[Array, ...], norms: tuple[Array, ...] | None = None
) -> tuple[Any, ...]:
    """(a + s₁a') ⊗ (b + s₂b') ⊗ …, which is a ⊗ b ⊗ … + a' ⊗ b' ⊗ … in the mean over fitting signs of product 1.

    Each of the two products is first rescaled to factors of equal norm, where the cross terms are smallest. `norms` are
    those of the new factors, where they are known without a pass over them.
    """
    scale_old, scale_new = balance(*map(norm, old)), balance(*(map(norm, new) if norms is None else norms))
    terms = zip(scale_old, old, signs, scale_new, new, strict=True)
    return tuple(jax.tree.map(lambda v, w, x=x, y=s * y: x * v + y * w, a, b) for x, a, s, y, b in terms)
