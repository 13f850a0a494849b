"""A prediction out of several: persistence, the linear part, and the linear part with the network.

Each expert's regret is what the mixture has lost beside it; who lost to the mixture has no share, and the others share in
proportion to their regret over its variation (polynomially weighted averages with a learning rate for each expert):

    r_k = |y − ŷ| − |y − x_k|      R_k ← γ R_k + r_k      V_k ← γ V_k + r_k²      share_k ∝ max(R_k, 0) / (1 + V_k)

With γ = 1 the sum of r_k over T samples stays below a constant times √(N (1 + V_k) ln V), for every expert and any data;
γ < 1 follows a change of who is best. |r_k| is at most |ŷ − x_k|, so a wild target moves no share by itself; an expert's wild
prediction counts as `FARTHEST` mean changes.
Reference: Gaillard, Stoltz and van Erven 2014, A second-order bound with excess losses. Deviations: γ, and that
persistence has it all while nobody has a regret.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

NAMES = ("persistence", "linear", "network")
MEMORY = 0.999  # γ
FARTHEST = 4.0  # mean changes


class Mixture(eqx.Module):
    """Of one stream."""

    regret: Float[Array, " e"]
    energy: Float[Array, " e"]


def start() -> Mixture:
    return Mixture(jnp.zeros(len(NAMES)), jnp.zeros(len(NAMES)))


def shares(mixture: Mixture) -> Float[Array, " e"]:
    wanted = jnp.maximum(mixture.regret, 0) / (1 + mixture.energy)
    total = wanted.sum()
    first = jnp.asarray(jnp.arange(len(NAMES)) == 0, wanted.dtype)
    return jnp.where(total > 0, wanted / jnp.where(total > 0, total, 1), first)


def combine(mixture: Mixture, told: Float[Array, " e"]) -> Float[Array, ""]:
    return shares(mixture) @ told


def learn(mixture: Mixture, told: Float[Array, " e"], y: Float[Array, ""], unit: Float[Array, ""]) -> Mixture:
    """After the target y of a sample of which the experts had told so. `unit` is the mean size of a change."""
    unit = jnp.where(unit > 0, unit, 1)
    excess = (jnp.abs(y - combine(mixture, told)) - jnp.abs(y - told)) / unit
    excess = jnp.clip(excess, -FARTHEST, FARTHEST)
    return Mixture(MEMORY * mixture.regret + excess, MEMORY * mixture.energy + excess**2)
