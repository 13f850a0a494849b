"""A prediction out of several: persistence, the linear part, and the linear part with the network.

Each expert's regret is what the mixture has lost beside it; who lost to the mixture has no share, and the others share in
proportion to their regret over its variation (polynomially weighted averages with a learning rate for each expert):

    r_k = |y − ŷ| − |y − x_k|      R_k ← γ R_k + p r_k      V_k ← γ V_k + p^q r_k²
    share_k ∝ max(R_k − b √(1 + V_k), 0) / (1 + V_k)      of persistence: max(R_0 + c, 0) / (1 + V_0)

Errors of targets that come j samples late overlap and say together no more than one in 1 + j of them: p = 1/(1 + j). With
q < 1 their variation counts for more, so that an expert must be better by more: a wrong share is paid for j samples longer. With γ = p = 1 and
b = c = 0 the sum of r_k over T samples stays below a constant times √(N (1 + V_k) ln V), for every expert and any data. γ < 1 follows a
change of who is best. b asks that an expert be better than chance makes it, and c is what persistence is ahead to begin with, so
that where nothing can be foretold next to nothing is lost beside it. |r_k| is at most |ŷ − x_k|, so a wild target moves no share by itself; an expert's wild
prediction counts as `FARTHEST` mean changes.
Reference: Gaillard, Stoltz and van Erven 2014, A second-order bound with excess losses. Deviations: γ, p, q, b and c, and that
persistence has it all while nobody has a regret.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

NAMES = ("persistence", "linear", "network")
MEMORY = 0.999  # γ
CHANCE = 0.2  # b
AHEAD = 1.0  # c, mean changes
OVERLAP = 0.25  # q
FARTHEST = 4.0  # mean changes


class Mixture(eqx.Module):
    """Of one stream."""

    regret: Float[Array, " e"]
    energy: Float[Array, " e"]


def start() -> Mixture:
    return Mixture(jnp.zeros(len(NAMES)), jnp.zeros(len(NAMES)))


def shares(mixture: Mixture) -> Float[Array, " e"]:
    first = jnp.asarray(jnp.arange(len(NAMES)) == 0, mixture.regret.dtype)
    better = mixture.regret + AHEAD * first - CHANCE * (1 - first) * jnp.sqrt(1 + mixture.energy)
    wanted = jnp.maximum(better, 0) / (1 + mixture.energy)
    total = wanted.sum()
    return jnp.where(total > 0, wanted / jnp.where(total > 0, total, 1), first)


def combine(mixture: Mixture, told: Float[Array, " e"]) -> Float[Array, ""]:
    return shares(mixture) @ told


def learn(
    mixture: Mixture, told: Float[Array, " e"], y: Float[Array, ""], unit: Float[Array, ""], late: Float[Array, ""]
) -> Mixture:
    """After the target y of a sample of which the experts had told so. `unit` is the mean size of a change."""
    unit = jnp.where(unit > 0, unit, 1)
    excess = (jnp.abs(y - combine(mixture, told)) - jnp.abs(y - told)) / unit
    excess = jnp.clip(excess, -FARTHEST, FARTHEST)
    pace = 1 / (1 + late)
    return Mixture(MEMORY * mixture.regret + pace * excess, MEMORY * mixture.energy + pace**OVERLAP * excess**2)
