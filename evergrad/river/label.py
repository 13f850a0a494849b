"""The head of a network that learns labels: how often each comes, a linear part, the network, and their mixture.

The linear part is multinomial logistic regression by Newton steps, one block a class, with forgetting, twice: with weights
that are held at 0 strongly, and hardly:

    w_c ← w_c + P_c φ ([y = c] − p_c)         P_c⁻¹ ← λ P_c⁻¹ + p_c (1 − p_c) φ φᵀ

The mixture is Bayes' rule over the experts, with a little of everybody's share given to all (fixed share):

    p = Σ share_k p_k          share_k ← (1 − α) share_k p_k(y) / p(y) + α / N

so that its log loss over T samples is above that of any sequence of experts that changes m times by at most
ln N + m ln (N/α) + T α: what is calibrated among them makes it so.
Reference: Böhning 1992 for the blocks; Herbster and Warmuth 1998, Tracking the best expert.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad.river import linear

NAMES = ("frequencies", "linear, held", "linear, free", "network")
FORGET = 0.999  # λ
RIDGES = (10.0, 1.0)  # how strongly weights are held at 0: much for few samples, little where classes can be told apart
SHARED = 1e-3  # α
LEAST = 1e-6  # of a probability, so that no expert is ever ruled out
FLATTEST = 1e-2  # of p (1 − p): where the linear part is sure it still forgets
MEMORY = 0.999  # of the running errors that are reported


class SoftmaxPart(eqx.Module):
    """Of one stream, with either hold."""

    weight: Float[Array, "2 c f"]
    root: Float[Array, "2 c f f"]
    seen: Float[Array, " c"]  # how often each class came, with forgetting
    count: Float[Array, ""]


class Judge(eqx.Module):
    shares: Float[Array, " e"]
    losses: Float[Array, " e1"]  # running mean log loss of each expert and of the mixture
    errors: Float[Array, " e1"]  # running share of wrong labels
    count: Float[Array, ""]


class Head(eqx.Module):
    part: SoftmaxPart
    judge: Judge


def start(slots: int, classes: int) -> Head:
    f, e = slots + 1, len(NAMES)
    root = jnp.stack([jnp.tile(jnp.eye(f)[None] / ridge**0.5, (classes, 1, 1)) for ridge in RIDGES])
    part = SoftmaxPart(jnp.zeros((len(RIDGES), classes, f)), root, jnp.zeros(classes), jnp.zeros(()))
    return Head(part, Judge(jnp.full(e, 1 / e), jnp.zeros(e + 1), jnp.zeros(e + 1), jnp.zeros(())))


def say(part: SoftmaxPart, z: Float[Array, " d"]) -> Float[Array, "3 c"]:
    """The classes' frequencies, and the linear part's probabilities. Of classes that never came it says next to nothing."""
    often = (part.seen + 0.5) / (part.seen + 0.5).sum()
    logits = jnp.where((part.seen > 0)[None], part.weight @ linear.with_one(z), -10)
    return jnp.concatenate([often[None], jax.nn.softmax(logits, axis=1)])


def tell(said: Float[Array, "3 c"], out: Float[Array, " c"]) -> Float[Array, "e c"]:
    told = jnp.concatenate([said, out[None]])
    return (1 - LEAST) * told + LEAST / told.shape[1]


def conclude(judge: Judge, told: Float[Array, "e c"]) -> Float[Array, " c"]:
    return judge.shares @ told


def teach(
    part: SoftmaxPart, z: Float[Array, " d"], y: Int[Array, ""], weight: Array, late: Array
) -> tuple[Int[Array, ""], SoftmaxPart, Array]:
    """What the network is to learn, the part after learning, and nothing."""
    kept = FORGET ** (1 / (1 + late))
    features, p = linear.with_one(z), say(part, z)[1:]
    is_it = jnp.asarray(jnp.arange(p.shape[1], dtype=y.dtype) == y, p.dtype)
    count = part.count + 1

    def learn(w, root, p, is_it, ridge):
        curve = jnp.maximum(p * (1 - p), FLATTEST)
        error = (is_it - p) / curve
        w, root = linear.absorb(w, root / jnp.sqrt(kept), features, error, curve / (1 + late))
        return linear.hold(w, root, count, 1 - kept, ridge)

    each_class = jax.vmap(learn, (0, 0, 0, 0, None))
    ridges = jnp.asarray(RIDGES, p.dtype)
    w, root = jax.vmap(each_class, (0, 0, 0, None, 0))(part.weight, part.root, p, is_it, ridges)
    new = SoftmaxPart(w, root, kept * part.seen + is_it, count)
    return y, jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, part), jnp.zeros(())


def judged(judge: Judge, told: Float[Array, "e c"], y: Int[Array, ""], weight: Array, unit: Array) -> Judge:
    count = judge.count + 1
    rate = jnp.maximum(1 / count, 1 - MEMORY)
    everybody = jnp.concatenate([told, conclude(judge, told)[None]])
    losses = -jnp.log(everybody[:, y])
    wrong = jnp.asarray(everybody.argmax(1).astype(y.dtype) != y, losses.dtype)
    shares = judge.shares * told[:, y]
    shares = (1 - SHARED) * shares / shares.sum() + SHARED / len(shares)
    running = lambda mean, new: mean + rate * (new - mean)  # noqa: E731
    new = Judge(shares, running(judge.losses, losses), running(judge.errors, wrong), count)
    return jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, judge)
