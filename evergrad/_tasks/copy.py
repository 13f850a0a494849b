"""The copy task: read a string of bits, then say it, with strings that grow as they are learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from evergrad._core import across
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.placing import along, everywhere
from evergrad._core.sources import Data, Source

ZERO, ONE, START, BLANK = 0, 1, 2, 3
SYMBOLS = 4
_WORD = 32


class CopyPosition(eqx.Module):
    length: Int[Array, ""]  # T, the longest string that is asked for now
    bits: Float[Array, ""]  # running mean of the bits per symbol
    at: Int[Array, " B"]  # place within the sequence
    own: Int[Array, " B"]  # length of the stream's string
    words: UInt32[Array, "B W"]  # the string, 32 bits a word
    keys: Array  # one a stream


class Copy(Source):
    """Input `# b₁…b_ℓ *^(ℓ+1)`, target `*^(ℓ+1) # b₁…b_ℓ`; symbols 0, 1, #, * are ids 0 to 3.

    Every stream draws its own ℓ uniformly from the `jitter` lengths up to T and starts anew, reset, when its sequence
    ends. The running mean of bits per symbol (decay 0.999, first 1) below `threshold` when a sequence starts makes T
    one longer and the mean 0.3. `length` is the first T, `longest` where it stops growing.
    """

    length: int = eqx.field(static=True)
    threshold: float = eqx.field(static=True)
    jitter: int = eqx.field(static=True)
    longest: int = eqx.field(static=True)

    def __init__(self, *, length: int = 1, threshold: float = 0.15, jitter: int = 5, longest: int = 256):
        call = f"Copy(length={length}, threshold={threshold}, jitter={jitter}, longest={longest})"
        whole_number(length, 1, call, "length", "the first string length")
        whole_number(jitter, 1, call, "jitter", "the number of lengths to draw from, T itself included")
        whole_number(longest, length, call, "longest", "the length at which the strings stop growing")
        refuse_unless(
            0 < threshold < 1, f"`{call}`: threshold is in bits per symbol and lies between 0 and 1 (the paper: 0.15)."
        )
        self.length, self.threshold, self.jitter, self.longest = length, threshold, jitter, longest

    def start(self, *, batch: int, key: jax.Array | None = None) -> CopyPosition:
        """All streams about to start their first string."""
        keys = jax.random.split(require_key(key, f"Copy().start(batch={batch})"), batch)
        at, own = jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32)
        words = jnp.zeros((batch, -(-self.longest // _WORD)), jnp.uint32)
        return CopyPosition(jnp.asarray(self.length, jnp.int32), jnp.ones(()), at, own, words, keys)

    def emit(self, position):
        begins = position.at == 0
        learned = across.anywhere(begins) & (position.bits < self.threshold) & (position.length < self.longest)
        length = position.length + jnp.where(learned, 1, 0)
        bits = jnp.where(learned, 0.3, position.bits)
        redraw = jax.vmap(self._draw, (0, 0, 0, 0, None))
        own, words, keys = redraw(begins, position.own, position.words, position.keys, length)
        x, y, ends = jax.vmap(_symbols)(position.at, own, words)
        at = jnp.where(ends, 0, position.at + 1)
        data = Data(x, y, begins, jnp.ones(len(x), bits.dtype))
        return data, CopyPosition(length, bits, at, own, words, keys)

    def hear(self, position, losses, model):
        bits = 0.999 * position.bits + 0.001 * across.mean(losses) / jnp.log(2.0)
        return eqx.tree_at(lambda p: p.bits, position, bits)

    def stream_axes(self, position):
        shared = eqx.tree_at(lambda p: (p.length, p.bits), along(0, position), (-1, -1))
        return everywhere(self), shared

    def _draw(self, begins, own, words, key, length):
        """A new string for a stream that begins one."""
        key_next, key_length, key_words = jax.random.split(key, 3)
        shortest = jnp.maximum(1, length - self.jitter + 1)
        drawn = jax.random.randint(key_length, (), shortest, length + 1, jnp.int32)
        return (
            jnp.where(begins, drawn, own),
            jnp.where(begins, jax.random.bits(key_words, words.shape, jnp.uint32), words),
            jnp.where(begins, key_next, key),
        )


def _symbols(at, own, words):
    """Input and target at a place of a sequence, and whether it is the last."""

    def bit(i):
        word = words[jnp.clip(i, 0) // _WORD]
        return jnp.asarray((word >> jnp.asarray(i % _WORD, jnp.uint32)) & 1, jnp.int32)

    x = jnp.where(at == 0, START, jnp.where(at <= own, bit(at - 1), BLANK))
    y = jnp.where(at <= own, BLANK, jnp.where(at == own + 1, START, bit(at - own - 2)))
    return x, y, at == 2 * own + 1
