"""The linear part beside the network: recursive least squares on the change of the target.

    change / scale  ≈  w · (z, 1)   and the network learns what is left over, in units of its usual size

w starts at 0, so that the first predictions are persistence. Old samples are forgotten at the rate λ; an error larger
than usual counts as if it were of the usual size (Huber's weights), so that an outlier does not tear w away.
Reference: Haykin, Adaptive Filter Theory, ch. 10; Potter 1963 for the square root.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.river import robust
from evergrad.river.scaler import GROWTH, WARM, running_rate, within

FORGET = 0.995  # λ: a memory of 200 samples
RIDGE = 10.0  # how strongly w is held at 0 to begin with
TOLERATED = 1.0  # usual errors; larger ones lose weight
FARTHEST = 4.0  # usual errors; the network's targets end there
ORDINARY = 1.0  # mean changes; no smaller error is too large to be believed
NOTHING = 1e-3  # mean changes; if less is left over, the target stands still or is foretold
CALM = 1 / 32  # mean changes; if the newest 30 are no larger, the mean is out of date and begins again with these


class LinearPart(eqx.Module):
    """Of one stream."""

    weight: Float[Array, " f"]
    root: Float[Array, "f f"]  # S Sᵀ = P, the inverse of the forgetful Gram matrix of the features
    count: Float[Array, ""]
    scale: Float[Array, ""]  # mean size of a change
    usual: Float[Array, ""]  # mean size of what is left over, in units of scale
    moves: Float[Array, " n"]  # sizes of the newest changes, in a ring
    misses: Float[Array, " n"]  # and of what was left over


def start(features: int) -> LinearPart:
    zero, ring = jnp.zeros(()), jnp.zeros(robust.KEPT)
    return LinearPart(jnp.zeros(features + 1), jnp.eye(features + 1) / RIDGE**0.5, zero, zero, zero, ring, ring)


def predict(part: LinearPart, z: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The change that is expected, and what one unit of the network's output is worth."""
    return part.scale * (part.weight @ with_one(z)), part.scale * part.usual


def learn(
    part: LinearPart,
    z: Float[Array, " d"],
    change: Float[Array, ""],
    weight: Float[Array, ""],
    late: Float[Array, ""],
) -> tuple[LinearPart, Float[Array, ""]]:
    """The new part, and what the network should have said. Weight 0 changes nothing.

    Changes over k samples that begin at every sample say together no more than one in k of them: where targets come
    `late`, each counts for 1/(1 + late) and as much less is forgotten.
    """
    count, scale, moves = _sized(part, change)
    features = with_one(z)
    error = jnp.where(scale > 0, change / jnp.where(scale > 0, scale, 1), 0) - part.weight @ features
    misses = robust.keep(part.misses, count, jnp.abs(error) * scale)
    usual = _usual(part, count, scale, misses, jnp.abs(error))
    trust = jnp.minimum(1, TOLERATED * usual / jnp.maximum(jnp.abs(error), 1e-12))
    pace = 1 / (1 + late)
    kept = FORGET**pace
    w, root = absorb(part.weight, part.root / jnp.sqrt(kept), features, error, pace * trust)
    w, root = hold(w, root, count, 1 - kept)
    new = LinearPart(w, root, count, scale, usual, moves, misses)
    target = jnp.clip(error / jnp.where(usual > 0, usual, 1), -FARTHEST, FARTHEST)
    return jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, part), target


def _sized(part, change):
    """The mean size of a change: of the first ones robustly, later such that no outlier sets it."""
    count, size = part.count + 1, jnp.abs(change)
    rate = running_rate(count)
    bound = jnp.maximum(FARTHEST, GROWTH / rate) * part.scale  # as in the scaler
    moved = within(size, bound, count > WARM)
    moves = robust.keep(part.moves, count, size)
    known = robust.mean_size(moves, count)
    # on a plateau, where nothing has been left over for long, the size that changes had is kept for when it ends
    still = (part.usual < NOTHING) & (moved < part.scale)
    scale = jnp.where(still, part.scale, part.scale + rate * (moved - part.scale))
    calm = (count > WARM) & (moves.mean() < CALM * scale) & (2 * jnp.sum(moves > 0) >= WARM)
    count = jnp.where(calm, WARM + 1 + (count - 1) % WARM, count)
    return count, jnp.where((count <= WARM) | calm, known, scale), moves


def _usual(part, count, scale, misses, size):
    """The mean size of what is left over, likewise, in units of the mean change."""
    first = robust.mean_size(misses, count) / jnp.where(scale > 0, scale, 1)
    # an error of the size of a change is never an outlier, or else after a plateau, when hardly any were left over, all would be
    size = jnp.minimum(size, jnp.maximum(FARTHEST * part.usual, ORDINARY))
    later = part.usual + jnp.maximum(running_rate(count), 1 - FORGET) * (size - part.usual)
    return jnp.where(count > WARM, later, first)


def absorb(weight, root, features, error, trust):
    """One sample more: P' = P − share·(Pφ)(Pφ)ᵀ, in the square root of P, so that rounding cannot make P indefinite."""
    seen = features @ root
    gain = root @ seen
    rest = 1 / (1 + trust * (seen @ seen))
    share = trust * rest
    return weight + share * error * gain, root - share / (1 + jnp.sqrt(rest)) * gain[:, None] * seen[None]


def hold(weight, root, count, forgotten, ridge=RIDGE):
    """The pull of w to 0 would be forgotten too: it is renewed, one weight at a time in turn."""
    one = jnp.arange(len(weight), dtype=count.dtype) == count % len(weight)
    pull = ridge * forgotten * len(weight)
    return absorb(weight, root, jnp.asarray(one, weight.dtype), -jnp.sum(jnp.where(one, weight, 0)), pull)


def with_one(z):
    return jnp.concatenate([z, jnp.ones(1, z.dtype)])
