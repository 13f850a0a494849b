"""The head of a network that learns labels: how often each comes, a linear part, the network, and their mixture.

The linear part is logistic regression four times: by gradient descent, one class against the rest, as most streams are
learned; and multinomial by Newton steps, one block a class, with forgetting, with weights that are held at 0 strongly, and hardly:

    w_c ← w_c + P_c φ ([y = c] − p_c)         P_c⁻¹ ← λ P_c⁻¹ + p_c (1 − p_c) φ φᵀ

and a fourth time by Newton steps over the features and how far each is above its mean over the newest 4, 16 and 64 samples
or so: a label may say that something is higher than it lately was (`means`).

The mixture is Bayes' rule over the experts, with a little of everybody's share given to all (fixed share):

    p = Σ share_k p_k          share_k ← (1 − α) share_k p_k(y) / p(y) + α / N

so that its log loss over T samples is above that of any sequence of experts that changes m times by at most
ln N + m ln (N/α) + T α: what is calibrated among them makes it so.

Who has the least log loss need not be wrong least often. So which label is the likeliest is decided by the experts and
their mixture weighted by how often each was wrong, exp(−η wrong_k); where that is another label than the mixture's own, the
two share what they have, which costs ln 2 at most.
Reference: Böhning 1992 for the blocks; Herbster and Warmuth 1998, Tracking the best expert; Freund and Schapire 1997 for η.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad.river import linear

NAMES = ("frequencies", "linear, held", "linear, free", "linear, with means", "gradient descent", "network")
FORGET = 0.999  # λ
RIDGES = (10.0, 1.0)  # how strongly weights are held at 0: much for few samples, little where classes can be told apart
SPANS = (4.0, 16.0, 64.0)  # samples that the means of features reach back
SHARED = 1e-3  # α
SLOPE = 0.3  # η
HEAD_START = (
    20.0  # errors that gradient descent, the slowest and hardest to mislead, is ahead of the others to begin with
)
DESCENT = 0.01  # rate of the logistic regression by gradient descent, one class against the rest, that most users know
LEAST = 1e-6  # of a probability, so that no expert is ever ruled out
TIE = 1e-3  # of what two labels share, by which the chosen one is ahead
FLATTEST = 1e-2  # of p (1 − p): where the linear part is sure it still forgets
MEMORY = 0.999  # of the running errors that are reported


class SoftmaxPart(eqx.Module):
    """Of one stream, with either hold."""

    weight: Float[Array, "2 c f"]
    root: Float[Array, "2 c f f"]
    # those of features (z, 1) and of (z − mean, 0) for each span: apart, so that slots come first on every axis that grows with them
    weight_over_time: Float[Array, "c s1 f"]
    root_over_time: Float[Array, "c s1 f s1 f"]
    means: Float[Array, "s f"]
    plain: Float[Array, "c f"]  # weights that follow the gradient
    given: Float[Array, " f"]  # 1 for a feature as it was given, 0 for the last label, which these weights do without
    seen: Float[Array, " c"]  # how often each class came, with forgetting
    count: Float[Array, ""]


class Judge(eqx.Module):
    shares: Float[Array, " e"]
    losses: Float[Array, " e1"]  # running mean log loss of each expert and of the mixture
    errors: Float[Array, " e1"]  # running share of wrong labels
    wrong: Float[Array, " e1"]  # how many, with forgetting
    count: Float[Array, ""]


class Head(eqx.Module):
    part: SoftmaxPart
    judge: Judge


def start(slots: int, classes: int) -> Head:
    f, e = slots + 1, len(NAMES)
    root = jnp.stack([jnp.tile(jnp.eye(f)[None] / ridge**0.5, (classes, 1, 1)) for ridge in RIDGES])
    weight, plain = jnp.zeros((len(RIDGES), classes, f)), jnp.zeros((classes, f))
    rows = 1 + len(SPANS)
    one = (jnp.eye(rows * f) / RIDGES[1] ** 0.5).reshape(rows, f, rows, f)
    over_time = jnp.zeros((classes, rows, f)), jnp.tile(one[None], (classes, 1, 1, 1, 1)), jnp.zeros((len(SPANS), f))
    part = SoftmaxPart(weight, root, *over_time, plain, jnp.ones(f), jnp.zeros(classes), jnp.zeros(()))
    none = jnp.zeros(e + 1)
    behind = jnp.full(e + 1, HEAD_START).at[NAMES.index("gradient descent")].set(0)
    return Head(part, Judge(jnp.full(e, 1 / e), none, none, behind, jnp.zeros(())))


def say(part: SoftmaxPart, z: Float[Array, " d"]) -> Float[Array, "5 c"]:
    """The classes' frequencies, and the linear parts' probabilities. Of classes that never came these say next to nothing."""
    often = (part.seen + 0.5) / (part.seen + 0.5).sum()
    came = part.seen > 0
    over_time = jnp.einsum("csf,sf->c", part.weight_over_time, _over_time(part, z)[0])
    logits = jnp.concatenate([part.weight @ linear.with_one(z), over_time[None]])
    logits = jnp.where(came[None], logits, -10)
    alone = jnp.where(came, _against_the_rest(part, z), LEAST)
    return jnp.concatenate([often[None], jax.nn.softmax(logits, axis=1), alone[None] / alone.sum()])


def _over_time(part, z):
    """The features, and how far above their means they are, one row a span; and the means with this sample in them."""
    features = linear.with_one(z)
    rates = 1 / jnp.minimum(part.count + 1, jnp.asarray(SPANS, z.dtype))
    means = part.means + rates[:, None] * (features[None] - part.means)
    return jnp.concatenate([features[None], features[None] - means]), means


def _against_the_rest(part, z):
    """Of each class alone; never so sure that none is left."""
    return jnp.maximum(jax.nn.sigmoid(part.plain @ (part.given * linear.with_one(z))), LEAST)


def mark(head: Head, given: Float[Array, " d"]) -> Head:
    """Of all lanes: with other features than before taken for given."""
    wide = jnp.broadcast_to(linear.with_one(given)[None], head.part.given.shape)
    return eqx.tree_at(lambda head: head.part.given, head, wide)


def tell(said: Float[Array, "5 c"], out: Float[Array, " c"]) -> Float[Array, "e c"]:
    told = jnp.concatenate([said, out[None]])
    return (1 - LEAST) * told + LEAST / told.shape[1]


def conclude(judge: Judge, told: Float[Array, "e c"]) -> Float[Array, " c"]:
    mixed = judge.shares @ told
    trust = jax.nn.softmax(-SLOPE * judge.wrong)
    chosen, usual = (trust @ jnp.concatenate([told, mixed[None]])).argmax(), mixed.argmax()
    half = (mixed[chosen] + mixed[usual]) / 2
    shared = mixed.at[usual].set((1 - TIE) * half).at[chosen].set((1 + TIE) * half)
    return jnp.where(chosen == usual, mixed, shared)


def teach(
    part: SoftmaxPart, z: Float[Array, " d"], y: Int[Array, ""], weight: Array, late: Array
) -> tuple[Int[Array, ""], SoftmaxPart, Array]:
    """What the network is to learn, the part after learning, and nothing."""
    kept = FORGET ** (1 / (1 + late))
    features, said = linear.with_one(z), say(part, z)
    p, p_over_time = said[1 : 1 + len(RIDGES)], said[1 + len(RIDGES)]
    over_time, means = _over_time(part, z)
    is_it = jnp.asarray(jnp.arange(p.shape[1], dtype=y.dtype) == y, p.dtype)
    count = part.count + 1

    def learn(features, w, root, p, is_it, ridge):
        curve = jnp.maximum(p * (1 - p), FLATTEST)
        error = (is_it - p) / curve
        w, root = linear.absorb(w, root / jnp.sqrt(kept), features, error, curve / (1 + late))
        return linear.hold(w, root, count, 1 - kept, ridge)

    each_class = jax.vmap(learn, (None, 0, 0, 0, 0, None))
    ridges = jnp.asarray(RIDGES, p.dtype)
    w, root = jax.vmap(each_class, (None, 0, 0, 0, None, 0))(features, part.weight, part.root, p, is_it, ridges)
    flat = part.weight_over_time.reshape(len(is_it), -1), part.root_over_time.reshape(len(is_it), over_time.size, -1)
    w_t, root_t = each_class(over_time.reshape(-1), *flat, p_over_time, is_it, ridges[1])
    new_over_time = w_t.reshape(part.weight_over_time.shape), root_t.reshape(part.root_over_time.shape), means
    plain = part.plain + DESCENT * (is_it - _against_the_rest(part, z))[:, None] * (part.given * features)[None]
    new = SoftmaxPart(w, root, *new_over_time, plain, part.given, kept * part.seen + is_it, count)
    return y, jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, part), jnp.zeros(())


def judged(
    judge: Judge, told: Float[Array, "e c"], y: Int[Array, ""], weight: Array, unit: Array, late: Array
) -> Judge:
    count = judge.count + 1
    rate = jnp.maximum(1 / count, 1 - MEMORY)
    everybody = jnp.concatenate([told, conclude(judge, told)[None]])
    losses = -jnp.log(everybody[:, y])
    wrong = _wrong(everybody, y)
    mixed = jnp.concatenate([told, (judge.shares @ told)[None]])
    shares = judge.shares * told[:, y]
    shares = (1 - SHARED) * shares / shares.sum() + SHARED / len(shares)

    def running(mean, new):
        return mean + rate * (new - mean)

    sums = MEMORY * judge.wrong + _wrong(mixed, y)
    new = Judge(shares, running(judge.losses, losses), running(judge.errors, wrong), sums, count)
    return jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, judge)


def _wrong(everybody, y):
    return jnp.asarray(everybody.argmax(1).astype(y.dtype) != y, everybody.dtype)
