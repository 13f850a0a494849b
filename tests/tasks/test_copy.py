"""The copy task: its streams are what PAPER.md says, and OK learns it."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._tasks import Copy
from evergrad._tasks.copy import BLANK, START, SYMBOLS
from tests.helpers import cast

pytestmark = pytest.mark.optimised

BATCH = 3


def streams(task, steps, length):
    """x, y, reset [steps, BATCH], without a curriculum."""
    position = eqx.tree_at(lambda p: p.length, task.start(batch=BATCH, key=jax.random.key(0)), jnp.int32(length))

    def step(position, _):
        data, position = task.emit(position)
        return position, data

    _, data = jax.lax.scan(step, position, None, length=steps)
    return np.asarray(data.x), np.asarray(data.y), np.asarray(data.reset)


def sequences(x, y, reset):
    """The whole sequences of one stream."""
    cuts = np.flatnonzero(reset)
    return [(x[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]


def test_sequences_are_those_of_the_paper():
    x, y, reset = streams(Copy(), 3000, length=40)
    assert reset[0].all()
    lengths = []
    for stream in range(BATCH):
        for xs, ys in sequences(x[:, stream], y[:, stream], reset[:, stream]):
            length = len(xs) // 2 - 1
            bits = xs[1 : length + 1]
            assert set(bits) <= {0, 1}
            assert (xs == np.r_[START, bits, [BLANK] * (length + 1)]).all()
            assert (ys == np.r_[[BLANK] * (length + 1), START, bits]).all()
            lengths.append(length)
    assert set(lengths) == {36, 37, 38, 39, 40}
    ones = np.mean(x[(x == 0) | (x == 1)])
    assert abs(ones - 0.5) < 0.04  # about 4,300 bits: five standard errors
    assert (x[:, 0] != x[:, 1]).any()


def test_short_strings_have_at_least_one_bit():
    x, y, reset = streams(Copy(), 400, length=2)
    assert {len(xs) // 2 - 1 for xs, _ in sequences(x[:, 0], y[:, 0], reset[:, 0])} == {1, 2}


def test_strings_grow_when_they_are_learned():
    task = Copy(length=3, longest=4)
    position = task.start(batch=BATCH, key=jax.random.key(0))
    for _ in range(4):  # to the middle of the first sequences
        _, position = task.emit(position)
    learned = eqx.tree_at(lambda p: p.bits, position, jnp.asarray(0.149))
    while int(learned.at.min()) > 0:
        assert int(learned.length) == 3  # not before a sequence starts
        _, learned = task.emit(learned)
    _, grown = task.emit(learned)
    assert (int(grown.length), float(grown.bits)) == (4, pytest.approx(0.3))
    again = eqx.tree_at(lambda p: (p.bits, p.at), grown, (jnp.asarray(0.1), jnp.zeros(BATCH, jnp.int32)))
    assert int(task.emit(again)[1].length) == 4  # longest


def test_running_mean_of_bits():
    task = Copy()
    position = task.start(batch=2, key=jax.random.key(0))
    heard = task.hear(position, jnp.log(2.0) * jnp.array([2.0, 4.0]), None)
    assert float(heard.bits) == pytest.approx(0.999 + 0.003)


@pytest.mark.optimised
def test_ok_learns_to_copy_five_bits_within_20_000_steps():
    """RHN 64, 16 streams, OK(8, window 8), float32: half a minute."""
    keys = jax.random.split(jax.random.key(0), 4)
    model = eg.Model(eg.RHN(SYMBOLS, 64, key=keys[0]), eg.Softmax(64, SYMBOLS, key=keys[1]))
    learner = eg.Learner(cast(model, jnp.float32), eg.OK(rank=8, window=8), optax.adam(10**-2.75), clip=1.0)
    task = Copy()
    state, position = learner.init(batch=16, key=keys[2]), task.start(batch=16, key=keys[3])
    position = cast(position, jnp.float32)
    while int(position.length) < 5 and int(state.time) < 20_000:
        state, position, _ = learner.follow(state, task, position, 1000)
    assert int(position.length) >= 5, f"length {int(position.length)} after {int(state.time)} steps"
