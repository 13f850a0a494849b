"""The head of a network that learns numbers: a linear part beside it, shares among experts, and intervals.

The network is believed as far as it has been right so far: what it adds to the linear part is taken s times, by least squares
with forgetting, and s is held at 0 where nothing is known:

    s = ⟨r n⟩ / (h + ⟨n²⟩), between 0 and 1      r what the linear part left over, n what the network added, in usual changes
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.river import bands, experts, linear

MEMORY = 0.999  # of the running errors that are reported
NAMES = experts.NAMES
DOUBT = 0.1  # h, squared mean changes
FARTHEST = 4.0  # mean changes; what was left over, or added, counts as no more


class Judge(eqx.Module):
    """Of one stream: what was made of the experts' words, and how it went."""

    mixture: experts.Mixture
    products: Float[Array, ""]  # ⟨r n⟩
    squares: Float[Array, ""]  # ⟨n²⟩
    bands: bands.Bands
    errors: Float[Array, " e1"]  # running mean size of the error, of each expert and of the mixture
    covered: Float[Array, ""]  # running share of targets within the interval of 90 %
    count: Float[Array, ""]


class Head(eqx.Module):
    part: linear.LinearPart
    judge: Judge


def start(slots: int, classes: int) -> Head:
    zero = jnp.zeros(())
    judge = Judge(experts.start(), zero, zero, bands.start(), jnp.zeros(len(NAMES) + 1), zero, zero)
    return Head(linear.start(slots), judge)


def say(part: linear.LinearPart, z: Float[Array, " d"]) -> tuple[Array, Array]:
    """What the linear part expects, and what one unit of the network's output is worth."""
    return linear.predict(part, z)


def tell(said: tuple[Array, Array], out: Float[Array, " 1"]) -> Float[Array, " e"]:
    """Every expert's word on the change."""
    base, unit = said
    return jnp.stack([jnp.zeros_like(base), base, base + unit * out[0]])


def conclude(judge: Judge, told: Float[Array, " e"]) -> Float[Array, " k1"]:
    """The prediction, and all levels of its distribution."""
    change = experts.combine(judge.mixture, believed(judge, told))
    return jnp.concatenate([change[None], change + bands.offsets(judge.bands)])


def believed(judge: Judge, told: Float[Array, " e"]) -> Float[Array, " e"]:
    """The experts' words, the network's as far as it has been right."""
    share = jnp.clip(judge.products / (DOUBT + judge.squares), 0, 1)
    return jnp.stack([told[0], told[1], told[1] + share * (told[2] - told[1])])


def teach(
    part: linear.LinearPart, z: Float[Array, " d"], change: Array, weight: Array, late: Array
) -> tuple[Float[Array, " 1"], linear.LinearPart, Array]:
    """What the network is to learn, the part after learning, and the unit to judge in."""
    unit = part.scale
    part, target = linear.learn(part, z, change, weight, late)
    return target[None], part, unit


def judged(judge: Judge, told: Float[Array, " e"], change: Array, weight: Array, unit: Array, late: Array) -> Judge:
    said = conclude(judge, told)
    count = judge.count + 1
    rate = jnp.maximum(1 / count, 1 - MEMORY)
    told_now = believed(judge, told)
    misses = jnp.abs(change - jnp.concatenate([told_now, said[:1]]))
    one = jnp.where(unit > 0, unit, 1)
    left, added = (jnp.clip(a / one, -FARTHEST, FARTHEST) for a in (change - told[1], told[2] - told[1]))
    low, high = (said[1 + bands.LEVELS.index(level)] for level in (0.05, 0.95))
    within = jnp.asarray((low <= change) & (change <= high), change.dtype)
    new = Judge(
        experts.learn(judge.mixture, told_now, change, unit, late),
        MEMORY * judge.products + left * added / (1 + late),
        MEMORY * judge.squares + added**2 / (1 + late),
        bands.learn(judge.bands, change - said[0]),
        judge.errors + rate * (misses - judge.errors),
        judge.covered + rate * (within - judge.covered),
        count,
    )
    return jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, judge)
