"""A whole series whose targets come late, in one compiled loop, as if sample by sample.

Sample t is looked at, and then the target of sample t − j is learned, j being how many samples wait. The hidden state that is
looked from runs ahead of the one that is learned from, with the weights of its time.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from evergrad._core.sources import Data, Source


def ahead(
    look: Callable[[Any, Array], Any],
    learn: Callable[[Any, Array, Any], tuple[Any, Any]],
    state: Any,
    waiting: Array,
    room: int,
) -> tuple[Any, Any, Any]:
    """Over `room` samples: the last state, and all that `look(state, t)` and `learn(state, s, said of s)` gave.

    Sample t = s + `waiting` is looked at before s is learned from.
    """

    def only_look(t, said):
        return _keep(said, t, look(state, t))

    def both(said, s):
        state, said = said
        said = _keep(said, s + waiting, look(state, jnp.minimum(s + waiting, room - 1)))
        state, learned = learn(state, s, jax.tree.map(lambda a: a[s], said))
        return (state, said), learned

    one = jax.eval_shape(look, state, jnp.zeros((), jnp.int32))
    nothing = jax.tree.map(lambda a: jnp.zeros((room, *a.shape), a.dtype), one)
    said = jax.lax.fori_loop(0, waiting, only_look, nothing)
    (state, said), learned = jax.lax.scan(both, (state, said), jnp.arange(room, dtype=jnp.int32))
    return state, said, learned


def _keep(said, t, one):
    """At place t, nowhere if that is past the end."""
    return jax.tree.map(lambda all_, a: all_.at[t].set(a, mode="drop"), said, one)


class Looking(Source):
    """Steps to learn from; a step before the model learns from it, the one that is `waiting` later is looked at.

    The position is the index of the next step, the hidden state looked from, and what came out of every step so far.
    """

    data: Data
    waiting: Array
    look: Callable[[Any, Array, Array], tuple[Array, Array]] = eqx.field(static=True)  # of model, hidden and x

    def emit(self, position):
        s, hidden, outs = position
        return jax.tree.map(lambda a: a[s], self.data), (s + 1, hidden, outs)

    def hear(self, position, losses, model):
        s, hidden, outs = position
        t = s - 1 + self.waiting
        hidden, out = self.look(model, hidden, self.data.x[jnp.minimum(t, len(outs) - 1)])
        return s, hidden, outs.at[t].set(out, mode="drop")

    def first(self, model: Any, hidden: Array, outs: Array) -> tuple[Array, Array, Array]:
        """The position after looking at all that wait before the first target."""

        def one(t, carry):
            hidden, outs = carry
            hidden, out = self.look(model, hidden, self.data.x[t])
            return hidden, outs.at[t].set(out)

        return jnp.zeros((), jnp.int32), *jax.lax.fori_loop(0, self.waiting, one, (hidden, outs))
