"""Next-symbol prediction on a text."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, UInt32

from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.model import Model, encode
from evergrad._core.placing import along, everywhere
from evergrad._core.sources import Data, Source

_LANES, _LANE, _CONTEXT = 32, 512, 256


class TextPosition(eqx.Module):
    at: Int[Array, " B"]  # place in the text
    time: UInt32[Array, ""]
    keys: Array  # one a stream


class CharacterText(Source):
    """Streams that start at equally spaced places of one text and read on, round and round.

    A stream is reset at the text's beginning, and with probability `reset_probability` at a step or whenever its place
    is a multiple of `reset_every`. `text` has the numbers of the symbols.
    """

    text: Integer[Array, " N"]
    reset_probability: float = eqx.field(static=True)
    reset_every: int | None = eqx.field(static=True)

    def __init__(
        self, text: Integer[np.ndarray, " N"], *, reset_probability: float = 0.0, reset_every: int | None = None
    ):
        call = f"CharacterText(reset_probability={reset_probability}, reset_every={reset_every})"
        refuse_unless(len(text) >= 2, f"`{call}`: a text of {len(text)} symbols has no next symbol to predict.")
        refuse_unless(0 <= reset_probability <= 1, f"`{call}`: a probability lies between 0 and 1.")
        if reset_every is not None:
            whole_number(reset_every, 1, call, "reset_every", "the number of symbols from one reset to the next")
        self.text = jnp.asarray(text)
        self.reset_probability, self.reset_every = reset_probability, reset_every

    def start(self, *, batch: int, key: jax.Array | None = None) -> TextPosition:
        steps = len(self.text) - 1
        refuse_unless(
            batch <= steps, f"batch={batch} streams need as many places, but the text has only {steps}: use fewer."
        )
        keys = jax.random.split(require_key(key, f"CharacterText(...).start(batch={batch})"), batch)
        at = jnp.asarray(np.arange(batch) * steps // batch, jnp.int32)
        return TextPosition(at, jnp.zeros((), jnp.uint32), keys)

    def emit(self, position):
        at = position.at
        x, y = (jnp.asarray(self.text[place], jnp.int32) for place in (at, at + 1))
        following = jnp.where(at + 2 < len(self.text), at + 1, 0)
        data = Data(x, y, self._resets(position), jnp.ones(len(at), jnp.result_type(float)))
        return data, TextPosition(following, position.time + jnp.uint32(1), position.keys)

    def stream_axes(self, position):
        return everywhere(self), eqx.tree_at(lambda p: p.time, along(0, position), -1)

    def _resets(self, position):
        resets = position.at == 0
        if self.reset_every is not None and self.reset_every < len(self.text):
            resets |= position.at % self.reset_every == 0
        if self.reset_probability:
            keys = jax.vmap(jax.random.fold_in, (0, None))(position.keys, position.time)
            resets |= jax.vmap(lambda key: jax.random.bernoulli(key, self.reset_probability))(keys)
        return resets


def bits_per_symbol(model: Model, text: Integer[np.ndarray, " N"], *, reset_every: int | None = None) -> float:
    """Mean of −log₂ p(next symbol) over the whole text, every symbol but the first counted once, the state carried.

    With `reset_every` the state starts anew at every place that is a multiple of it.

    For speed the text is read in up to 32 lanes at once; a lane begins 256 symbols before its part, which it reads
    without counting them, so that it too starts with a state carried from before.
    """
    places, counted = _lanes(len(text) - 1)
    resets = np.zeros(places.shape, bool) if reset_every is None else places % reset_every == 0
    losses = _losses(model, jnp.asarray(text), jnp.asarray(places, jnp.int32), jnp.asarray(resets))
    losses = np.asarray(losses, np.float64)
    return float(losses[counted].sum() / counted.sum() / np.log(2))


@eqx.filter_jit
def _losses(model, text, places, resets) -> Float[Array, "T B"]:
    x, y = (jnp.asarray(text[at], jnp.int32) for at in (places, places + 1))
    return model.losses(x, y, resets)


def _lanes(steps: int) -> tuple[Int[np.ndarray, "T lanes"], np.ndarray]:
    """Places to read, and which of them count: those of each lane's own part."""
    lanes = max(1, min(_LANES, steps // _LANE))
    part = -(-steps // lanes)
    context = _CONTEXT if lanes > 1 else 0
    own = np.arange(lanes)[None] * part
    first = np.maximum(own - context, 0)
    places = first + np.arange(part + context)[:, None]
    counted = (places >= own) & (places < np.minimum(own + part, steps))
    return np.minimum(places, steps - 1), counted


@eqx.filter_jit
def sample(
    model: Model, prompt: Int[Array, " P"], length: int, temperature: Float[Array, ""], key: jax.Array
) -> Int[Array, " length"]:
    """`length` symbols that follow the prompt, drawn from softmax(z / temperature); temperature 0: the likeliest."""
    cell, readout = model.cell, model.readout

    def read(state, x):
        return cell.step(state, encode(cell, x)), None

    def write(carry, key):
        state, x = carry
        state = cell.step(state, encode(cell, x))
        z = readout(cell.output(state))
        noise = jax.random.gumbel(key, z.shape, z.dtype)
        x = jnp.asarray(jnp.argmax(z + temperature * noise), jnp.int32)
        return (state, x), x

    state, _ = jax.lax.scan(read, cell.initial(), prompt[:-1])
    return jax.lax.scan(write, (state, prompt[-1]), jax.random.split(key, length))[1]
