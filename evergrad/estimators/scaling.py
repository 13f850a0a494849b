"""Norms shared out evenly among the factors of a product, which makes its random mixing quietest."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def balance(*norms: Float[Array, ""]) -> tuple[Float[Array, ""], ...]:
    """Factors, of product 1, that bring all norms to their geometric mean; all 0 where a norm is 0.

    A product with a vanishing factor is itself zero: dropping it whole is exact and adds no noise.
    """
    vanishes = jnp.stack(norms).min() == 0
    logs = jnp.log(jnp.where(vanishes, 1, jnp.stack(norms)))
    factors = jnp.where(vanishes, 0, jnp.exp(logs.mean() - logs))
    return tuple(factors)
