import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real, waiting

BITS, ON, DISTRACTORS = 6, 3, 5
PATTERNS = np.array([[i in on for i in range(BITS)] for on in itertools.combinations(range(BITS), ON)], np.float64)


class TraceStream(eqx.Module):
    at: Int[Array, ""]  # steps since the pattern; below 0 before a stream's first
    isi: Int[Array, ""]  # steps from the pattern to the reward
    length: Int[Array, ""]  # from the pattern to the next
    pattern: Int[Array, ""]


class Trace(Generated):
    """Trace patterning: a pattern of six bits, three of them on, and if it is one of the ten good ones of twenty, a reward
    `isi` to `isi_to` steps later; the next pattern follows `iti` to `iti_to` steps after that.

    x is the pattern for one step, the reward for one step, and five distractors that fire with chance 1/(10 j). The
    target is what the reward of this trial is worth now, discount^(left − 1) while it is `left` steps away, else 0. The
    reward's time is drawn, so that the optimum is the variance that it leaves, summed exactly. Which patterns are good
    is drawn from `seed`. Reference: Rafiee et al. 2023; Javed et al. 2023.
    """

    inputs: ClassVar[int] = BITS + 1 + DISTRACTORS
    isi: int = eqx.field(static=True)
    isi_to: int = eqx.field(static=True)
    iti: int = eqx.field(static=True)
    iti_to: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    good: Bool[Array, " 20"]

    def __init__(
        self,
        *,
        isi: int = 14,
        isi_to: int = 26,
        iti: int = 80,
        iti_to: int = 120,
        discount: float = 0.9,
        seed: int = 0,
    ):
        call = f"Trace(isi={isi}, isi_to={isi_to}, iti={iti}, iti_to={iti_to}, discount={discount}, seed={seed})"
        whole_number(isi, 1, call, "isi", "the fewest steps from a pattern to its reward")
        whole_number(isi_to, isi, call, "isi_to", "the most steps from a pattern to its reward")
        whole_number(iti, 1, call, "iti", "the fewest steps from a reward to the next pattern")
        whole_number(iti_to, iti, call, "iti_to", "the most steps from a reward to the next pattern")
        whole_number(seed, 0, call, "seed", "of which patterns are good")
        refuse_unless(0 < discount <= 1, f"`{call}`: discount must be above 0 and at most 1.")
        self.isi, self.isi_to, self.iti, self.iti_to, self.discount = isi, isi_to, iti, iti_to, float(discount)
        self.good = jnp.asarray(np.random.default_rng(seed).permutation(len(PATTERNS)) < len(PATTERNS) // 2)

    def begin(self, number, key):
        zero = jnp.zeros((), jnp.int32)
        return TraceStream(waiting(key, self.isi_to + self.iti_to), zero, zero, zero)

    def proceed(self, stream, key):
        key_trial, key_distractors = jax.random.split(key)
        begins = stream.at == 0
        stream = jax.tree.map(lambda new, old: jnp.where(begins, new, old), self._drawn(key_trial), stream)
        rewarded, left = self.good[stream.pattern] & (stream.at >= 0), stream.isi - stream.at
        shown = jnp.asarray(PATTERNS, jnp.result_type(float))[stream.pattern] * real(begins)
        chances = 1 / (10 * jnp.arange(1.0, DISTRACTORS + 1))
        distractors = real(jax.random.bernoulli(key_distractors, chances))
        x = jnp.concatenate([shown, real(rewarded & (left == 0))[None], distractors])
        y = jnp.where(rewarded & (left > 0), self.discount ** real(jnp.maximum(left, 1) - 1), 0.0)
        after = jnp.where(stream.at + 1 == stream.length, 0, stream.at + 1)
        data = Data(x, y[None], jnp.zeros((), bool), real(stream.at >= 0))
        return data, eqx.tree_at(lambda s: s.at, stream, jnp.where(stream.at < 0, stream.at + 1, after))

    def _drawn(self, key):
        key_isi, key_iti, key_pattern = jax.random.split(key, 3)
        isi = jax.random.randint(key_isi, (), self.isi, self.isi_to + 1, jnp.int32)
        iti = jax.random.randint(key_iti, (), self.iti, self.iti_to + 1, jnp.int32)
        pattern = jax.random.randint(key_pattern, (), 0, len(PATTERNS), jnp.int32)
        return TraceStream(jnp.zeros((), jnp.int32), isi, isi + iti, pattern)

    def optimum(self):
        """Σ over the steps after a good pattern of the variance of the target, given that no reward has come yet."""
        left_over = 0.0
        for since in range(self.isi_to):
            values = self._worth(since)
            left_over += len(values) * values.var()
        return 0.5 * left_over / self._times().size / self._length()

    def ignorance(self):
        every = np.concatenate([self._worth(since) for since in range(self.isi_to)])
        share = 0.5 / self._times().size / self._length()
        return float(share * (every**2).sum() - (share * every.sum()) ** 2)

    def _times(self):
        """All times from a pattern to its reward, which are equally likely."""
        return np.arange(self.isi, self.isi_to + 1)

    def _worth(self, since):
        """The target so many steps after a good pattern, for all of those times that are still possible."""
        times = self._times()
        return self.discount ** (times[times > since] - since - 1.0)

    def _length(self):
        """Of a trial, in the mean."""
        return float(self._times().mean() + (self.iti + self.iti_to) / 2)
