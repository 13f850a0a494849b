"""The classifier's experts: what is said is calibrated, which label is the likeliest is decided by errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from river import linear_model, preprocessing
from river.datasets import synth

from evergrad.river import OnlineRNNClassifier, label

UNSURE, SURE = label.NAMES.index("linear, held"), label.NAMES.index("network")


def judged(told, y):
    """The label said before each y, the probability that was given to y, and the last judge; told [T, e, c]."""

    def step(judge, sample):
        told, y = sample
        p = label.conclude(judge, told)
        zero = jnp.zeros(())
        return label.judged(judge, told, y, jnp.ones(()), zero, zero), (p.argmax(), p[y], p.sum())

    start = label.start(1, told.shape[2]).judge
    judge, (said, given, total) = jax.lax.scan(step, start, (jnp.asarray(told), jnp.asarray(y, jnp.int32)))
    np.testing.assert_allclose(total, 1, atol=1e-9)
    return np.asarray(said), np.asarray(given), judge


def two_experts():
    """One is right more often and unsure, one is surer and wrong more often; of log loss the second has less."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    right = rng.random(3000) < 0.9
    sure = rng.random(3000) < 0.85
    unsure = np.where((y == 1) == right, 0.55, 0.45)
    strong = np.where((y == 1) == sure, 0.85, 0.15)
    told = np.full((3000, len(label.NAMES), 2), 0.5)
    for place, p in ((UNSURE, unsure), (SURE, strong)):
        told[:, place] = np.stack([1 - p, p], axis=1)
    return told, y


def test_the_label_is_that_of_who_is_wrong_least_often():
    told, y = two_experts()
    said, given, _ = judged(told, y)
    loss = -np.log(np.take_along_axis(told, y[:, None, None], 2)[..., 0])
    wrong = (told.argmax(2) != y[:, None]).mean(0)
    assert wrong[UNSURE] < wrong[SURE]
    assert loss[:, UNSURE].mean() > loss[:, SURE].mean()
    assert (said != y)[200:].mean() < wrong[UNSURE] + 0.01
    assert -np.log(given)[200:].mean() < loss[:, SURE].mean() + 0.1


def test_gradient_descent_does_without_the_last_label():
    head = jax.tree.map(lambda a: a[None], label.start(2, 2))
    part = label.mark(head, jnp.asarray([1.0, 0.0])).part
    part = jax.tree.map(lambda a: a[0], part)
    for _ in range(5):
        _, part, _ = label.teach(part, jnp.asarray([1.0, 1.0]), jnp.asarray(1, jnp.int32), jnp.ones(()), jnp.zeros(()))
    assert part.plain[1, 0] > 0
    assert part.plain[1, 1] == 0
    assert part.weight[0, 1, 1] != 0, "the others have it"


def above_its_mean(span):
    """A level that wanders, and whether it is above its mean over the newest samples."""
    level = np.cumsum(np.random.default_rng(0).normal(size=2000))
    mean = level.copy()
    for t in range(1, len(level)):
        mean[t] = mean[t - 1] + (level[t] - mean[t - 1]) / span
    return level, level > mean


def test_what_is_higher_than_it_lately_was_is_learned_by_the_linear_part_with_means():
    """The mean reaches back 30 samples or so, which none of those that are kept does. The other linear parts cannot know it."""
    level, y = above_its_mean(30)

    def step(part, sample):
        z, y = sample
        said = label.say(part, z[None]).argmax(1).astype(y.dtype)
        return label.teach(part, z[None], y, jnp.ones(()), jnp.zeros(()))[1], said != y

    given = jnp.asarray(level / 20), jnp.asarray(y, jnp.int32)
    wrong = np.asarray(jax.lax.scan(step, label.start(1, 2).part, given)[1])[500:].mean(0)
    others = [wrong[label.NAMES.index(name)] for name in ("linear, held", "linear, free", "gradient descent")]
    assert wrong[label.NAMES.index("linear, with means")] < 0.06
    assert min(others) > 0.2


@pytest.mark.slow
def test_no_worse_than_logistic_regression_where_that_is_the_truth():
    rows = list(synth.SEA(variant=0, seed=1).take(3000))
    theirs, wrong = preprocessing.StandardScaler() | linear_model.LogisticRegression(), 0
    for x, y in rows:
        wrong += theirs.predict_one(x) != y
        theirs.learn_one(x, y)
    X, y = np.array([list(x.values()) for x, _ in rows]), [y for _, y in rows]
    assert sum(OnlineRNNClassifier(seed=0).run(X, y) != np.array(y)) <= wrong
