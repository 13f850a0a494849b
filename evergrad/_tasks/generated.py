"""Tasks of streams that are alike and independent, and of which the best prediction is known."""

import abc
import math
from collections.abc import Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core import across
from evergrad._core.checks import require_key
from evergrad._core.placing import along, everywhere
from evergrad._core.sources import Data, Source


class GeneratedPosition(eqx.Module):
    streams: Any  # what each of B streams remembers
    keys: Array  # one a stream
    scored: Int[Array, ""]  # steps of all streams that have had a target since the score was last cleared


class Generated(Source):
    """A subclass says how *one* stream begins and goes on, and how well it can be predicted.

    y is a number below `classes`, for a Softmax readout, or where that is 0 a vector of `outputs` numbers, for a Linear
    one; losses are theirs, in nats or as a squared error.
    """

    inputs: eqx.AbstractVar[int]
    classes: ClassVar[int] = 0
    outputs: ClassVar[int] = 1

    @abc.abstractmethod
    def begin(self, number: Int[Array, ""], key: Array) -> Any:
        """What the stream of that number remembers before its first step: a pytree of arrays."""

    @abc.abstractmethod
    def proceed(self, stream: Any, key: Array) -> tuple[Data, Any]:
        """The next step of one stream, and what it remembers then."""

    @abc.abstractmethod
    def optimum(self) -> float:
        """The mean loss, at steps with a target, of who has seen all inputs up to then and knows the task."""

    @abc.abstractmethod
    def ignorance(self) -> float:
        """That of the best prediction that is always the same."""

    def start(self, *, batch: int, key: jax.Array | None = None) -> GeneratedPosition:
        """All streams before their first step."""
        key = require_key(key, f"{type(self).__name__}(...).start(batch={batch})")
        first, later = (jax.random.split(k, batch) for k in jax.random.split(key))
        streams = jax.vmap(self.begin)(jnp.arange(batch, dtype=jnp.int32), first)
        return GeneratedPosition(streams, later, jnp.zeros((), jnp.int32))

    def emit(self, position):
        keys, now = jnp.moveaxis(jax.vmap(jax.random.split)(position.keys), 1, 0)
        data, streams = jax.vmap(self.proceed)(position.streams, now)
        scored = across.total(jnp.sum(data.weight > 0, dtype=jnp.int32))
        return data, GeneratedPosition(streams, keys, position.scored + scored)

    def stream_axes(self, position):
        return everywhere(self), eqx.tree_at(lambda p: p.scored, along(0, position), -1)


def unscored(position: GeneratedPosition) -> GeneratedPosition:
    """The same with no steps counted."""
    return eqx.tree_at(lambda p: p.scored, position, jnp.zeros_like(position.scored))


def waiting(key: Array, longest: int) -> Int[Array, ""]:
    """Places before the first step of a first episode, drawn so that streams are not in step: −longest + 1 to 0."""
    return -jax.random.randint(key, (), 0, longest, jnp.int32)


def entropy(shares: Iterable[float]) -> float:
    """Of a distribution, in nats."""
    return -sum(p * math.log(p) for p in shares if p > 0)


def real(a: Any) -> Array:
    """A truth value or a whole number as a real one."""
    return jnp.asarray(a, jnp.result_type(float))
