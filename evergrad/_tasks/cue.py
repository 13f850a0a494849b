"""The cue and the question: one thing to hold for a while, so that the lag alone makes the task hard."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from evergrad._core import across
from evergrad._core.checks import require_key, whole_number
from evergrad._core.placing import along, everywhere
from evergrad._core.sources import Data, Source

CUES = 2
INPUTS = CUES + 2  # which cue, whether there is a question, and the distractor


def _score(position):
    return position.asked, position.wrong


class CuePosition(eqx.Module):
    at: Int[Array, " B"]  # steps since the cue; below 0 before a stream's first
    gap: Int[Array, " B"]  # steps from the stream's cue to its question
    cue: Int[Array, " B"]
    asking: Bool[Array, " B"]  # whether the last step had the question
    asked: Int[Array, ""]  # questions of all streams since the score was last cleared
    wrong: Int[Array, ""]  # wrong answers to them
    keys: Array  # one a stream


class Cue(Source):
    """One of two cues, and `gap` to `gap_to` steps later the question which it was; the loss is at the questions only.

    x has four numbers: 1 for the cue in place 0 or 1, 1 for the question in place 2, and in place 3 a distractor, ±1 at
    every step. Every episode of every stream draws its own cue and its own gap, uniformly; the next begins on the step
    after the question, and a stream's first at a random step, so that streams are not in step. Streams are reset at
    their cues unless `resets` is False, when old cues have to be forgotten too. The best share of wrong answers is 0;
    who does not remember has a half.
    """

    gap: int = eqx.field(static=True)
    gap_to: int = eqx.field(static=True)
    resets: bool = eqx.field(static=True)

    def __init__(self, *, gap: int = 80, gap_to: int = 120, resets: bool = True):
        call = f"Cue(gap={gap}, gap_to={gap_to})"
        whole_number(gap, 1, call, "gap", "the fewest steps from the cue to its question")
        whole_number(gap_to, gap, call, "gap_to", "the most steps from the cue to its question")
        self.gap, self.gap_to, self.resets = gap, gap_to, resets

    def start(self, *, batch: int, key: jax.Array | None = None) -> CuePosition:
        """All streams waiting for their first cue."""
        key_wait, key_streams = jax.random.split(require_key(key, f"Cue().start(batch={batch})"))
        at = -jax.random.randint(key_wait, (batch,), 0, self.gap_to, jnp.int32)
        gap, cue = jnp.zeros((2, batch), jnp.int32)
        asked, wrong = jnp.zeros(2, jnp.int32)
        return CuePosition(at, gap, cue, at > 0, asked, wrong, jax.random.split(key_streams, batch))

    def emit(self, position):
        begins = position.at == 0
        gap, cue, distractor, keys = jax.vmap(self._draw)(begins, position.gap, position.cue, position.keys)
        asking = position.at == gap
        shown = jax.nn.one_hot(jnp.where(begins, cue, CUES), CUES)
        x = jnp.concatenate([shown, jnp.stack([jnp.asarray(asking, shown.dtype), distractor], axis=1)], axis=1)
        data = Data(x, cue, begins & self.resets, jnp.asarray(asking, x.dtype))
        at = jnp.where(asking, 0, position.at + 1)
        return data, CuePosition(at, gap, cue, asking, position.asked, position.wrong, keys)

    def hear(self, position, losses, model):
        # a loss above log 2 is a probability of the right answer below a half
        wrong = position.asking & (losses > jnp.log(2.0))
        asked, wrong = across.total((position.asking.sum(dtype=jnp.int32), wrong.sum(dtype=jnp.int32)))
        return eqx.tree_at(_score, position, (position.asked + asked, position.wrong + wrong))

    def stream_axes(self, position):
        return everywhere(self), eqx.tree_at(_score, along(0, position), (-1, -1))

    def _draw(self, begins, gap, cue, key):
        """A new gap and cue for a stream that begins an episode, and the step's distractor."""
        key_next, key_gap, key_cue, key_distractor = jax.random.split(key, 4)
        drawn = jax.random.randint(key_gap, (), self.gap, self.gap_to + 1, jnp.int32)
        gap = jnp.where(begins, drawn, gap)
        cue = jnp.where(begins, jax.random.randint(key_cue, (), 0, CUES, jnp.int32), cue)
        return gap, cue, jax.random.rademacher(key_distractor, (), jnp.result_type(float)), key_next


def unasked(position: CuePosition) -> CuePosition:
    """The same with no questions counted."""
    return eqx.tree_at(_score, position, jax.tree.map(jnp.zeros_like, _score(position)))
