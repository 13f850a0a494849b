"""The linear part beside the network: recursive least squares on the change of the target.

    change / scale  ≈  w · (z, 1)   and the network learns what is left over, in units of its usual size

w starts at 0, so that the first predictions are persistence. Old samples are forgotten at the rate λ; an error larger
than usual counts as if it were of the usual size (Huber's weights), so that an outlier does not tear w away.
Reference: Haykin, Adaptive Filter Theory, ch. 10; Potter 1963 for the square root.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad.river.scaler import GROWTH, running_rate, within

FORGET = 0.995  # λ: a memory of 200 samples
RIDGE = 10.0  # how strongly w is held at 0 to begin with
TOLERATED = 1.0  # usual errors; larger ones lose weight
FARTHEST = 4.0  # usual errors; the network's targets end there
ORDINARY = 1.0  # mean changes; no smaller error is too large to be believed
NOTHING = 1e-3  # mean changes; if less is left over, the target stands still or is foretold
WARM = 10  # samples after which the usual size of an error is known


class LinearPart(eqx.Module):
    """Of one stream."""

    weight: Float[Array, " f"]
    root: Float[Array, "f f"]  # S Sᵀ = P, the inverse of the forgetful Gram matrix of the features
    count: Float[Array, ""]
    scale: Float[Array, ""]  # mean size of a change
    usual: Float[Array, ""]  # mean size of what is left over, in units of scale


def start(features: int) -> LinearPart:
    zero = jnp.zeros(())
    return LinearPart(jnp.zeros(features + 1), jnp.eye(features + 1) / RIDGE**0.5, zero, zero, zero)


def predict(part: LinearPart, z: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The change that is expected, and what one unit of the network's output is worth."""
    return part.scale * (part.weight @ _with_one(z)), part.scale * part.usual


def learn(
    part: LinearPart, z: Float[Array, " d"], change: Float[Array, ""], weight: Float[Array, ""]
) -> tuple[LinearPart, Float[Array, ""]]:
    """The new part, and what the network should have said. Weight 0 changes nothing."""
    count = part.count + 1
    rate = running_rate(count)
    bound = jnp.maximum(FARTHEST, GROWTH / rate) * part.scale  # as in the scaler, so that no outlier sets the unit
    moved = within(jnp.abs(change), bound, count > WARM)
    # on a plateau, where nothing has been left over for long, the size that changes had is kept for when it ends
    still = (count > WARM) & (part.usual < NOTHING) & (moved < part.scale)
    scale = jnp.where(still, part.scale, part.scale + rate * (moved - part.scale))
    features = _with_one(z)
    error = jnp.where(scale > 0, change / jnp.where(scale > 0, scale, 1), 0) - part.weight @ features
    # an error of the size of a change is never an outlier, or else after a plateau, when hardly any were left over, all would be
    most = jnp.maximum(FARTHEST * part.usual, ORDINARY)
    size = jnp.where(count > WARM, jnp.minimum(jnp.abs(error), most), jnp.abs(error))
    usual = part.usual + jnp.maximum(rate, 1 - FORGET) * (size - part.usual)
    trust = jnp.minimum(1, TOLERATED * usual / jnp.maximum(jnp.abs(error), 1e-12))
    w, root = _absorb(part.weight, part.root / FORGET**0.5, features, error, trust)
    w, root = _hold(w, root, count)
    new = LinearPart(w, root, count, scale, usual)
    target = jnp.clip(error / jnp.where(usual > 0, usual, 1), -FARTHEST, FARTHEST)

    def keep(a, b):
        return jnp.where(weight > 0, a, b)

    return LinearPart(*(keep(a, b) for a, b in zip(_fields(new), _fields(part), strict=True))), target


def _absorb(weight, root, features, error, trust):
    """One sample more: P' = P − share·(Pφ)(Pφ)ᵀ, in the square root of P, so that rounding cannot make P indefinite."""
    seen = features @ root
    gain = root @ seen
    rest = 1 / (1 + trust * (seen @ seen))
    share = trust * rest
    return weight + share * error * gain, root - share / (1 + jnp.sqrt(rest)) * gain[:, None] * seen[None]


def _hold(weight, root, count):
    """The pull of w to 0 would be forgotten too: it is renewed, one weight at a time in turn."""
    one = jnp.arange(len(weight), dtype=count.dtype) == count % len(weight)
    pull = RIDGE * (1 - FORGET) * len(weight)
    return _absorb(weight, root, jnp.asarray(one, weight.dtype), -jnp.sum(jnp.where(one, weight, 0)), pull)


def _with_one(z):
    return jnp.concatenate([z, jnp.ones(1, z.dtype)])


def _fields(part):
    return part.weight, part.root, part.count, part.scale, part.usual
