"""The compiled inside of a pool: one network for all keys, and a row of numbers for each.

A row holds all that is one key's: scales, linear part, shares, intervals, hidden state and influence. A call is given the rows of the
keys that it is about, as many as a power of two, and gives back new ones: what is compiled does not depend on how many keys there are.
"""

import dataclasses
import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from evergrad.river.machine import Buffers, Inside, Settings, embed, machine


class Crowd:
    """The functions for one `Settings`, whose `lanes` are 1."""

    def __init__(self, settings: Settings):
        self.settings, self.machine = settings, machine(settings)
        shapes = self.machine.buffers.shapes
        two = machine(dataclasses.replace(settings, lanes=2)).buffers.shapes
        of_lane = [a.shape != b.shape for a, b in zip(shapes, two, strict=True)]
        self.own = [i for i, a in enumerate(shapes) if of_lane[i] and a.dtype.kind == "f"]
        self.rest = [i for i in range(len(shapes)) if i not in self.own]
        self.wide = [
            i for i in self.rest if of_lane[i]
        ]  # random numbers of every lane, of which an exact gradient needs none
        self.forms = [shapes[i].shape[1:] for i in self.own]
        self.ends = np.cumsum([int(np.prod(form)) for form in self.forms])
        self.buffers = Buffers([shapes[i] for i in self.rest])
        self.learn = jax.jit(self._learn)
        self.look = jax.jit(self._look)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self.ends[-1])

    def start(self, seed: int) -> tuple[list[Array], np.ndarray]:
        """The network, and the row of a key that is new."""
        arrays = self.machine.pack(self.machine.start(jax.random.key(seed)))
        return self.unpack([arrays[i] for i in self.rest]), self._row(arrays)[0]

    def pack(self, shared: list[Array]) -> list[np.ndarray]:
        return self.buffers.pack(shared)

    def unpack(self, arrays: list[np.ndarray]) -> list[Array]:
        return self.buffers.unpack(arrays)

    def inside(self, shared: list[Array], rows: Any) -> Inside:
        """Of the network and rows [B, w], as one of B lanes."""
        found: dict[int, Any] = dict(zip(self.rest, self.buffers.split(shared), strict=True))
        for i in self.wide:
            found[i] = jnp.tile(found[i], (len(rows), *(1,) * (found[i].ndim - 1)))
        found.update(zip(self.own, self._parts(rows), strict=True))
        return self.machine.assembled([found[i] for i in range(len(found))])

    def _parts(self, rows):
        parts = (
            jnp.split(rows, self.ends[:-1], axis=1) if isinstance(rows, Array) else np.split(rows, self.ends[:-1], 1)
        )
        return [part.reshape(len(rows), *form) for part, form in zip(parts, self.forms, strict=True)]

    def _row(self, arrays):
        kind: Any = np if isinstance(arrays[self.own[0]], np.ndarray) else jnp
        return kind.concatenate([arrays[i].reshape(len(arrays[i]), -1) for i in self.own], axis=1)

    def _apart(self, inside):
        arrays = self.machine.plain(inside)
        for i in self.wide:
            arrays[i] = arrays[i][:1]
        return self.buffers.join([arrays[i] for i in self.rest]), self._row(arrays)

    def _look(self, shared, rows, raws):
        """What samples raws [B, d] of the keys with these rows are predicted to be, and its levels."""
        return self.machine.looked(self.inside(shared, rows), None, raws)[3]

    def _learn(self, shared, rates, rows, turns, raws, targets, there, present):
        """So many turns, [R, B, …], each a step of the keys that are present and one update by the mean gradient over those
        whose target is there: the network, the rows, and what was predicted before each.
        """
        none = jnp.zeros((), raws.dtype)  # wait

        def step(t, carry):
            shared, rows, said = carry
            inside, raw = self.inside(shared, rows), raws[t]
            z, _, told, out = self.machine.looked(inside, None, raw)
            weight = there[t] * (len(rows) / jnp.maximum(there[t].sum(), 1))
            new = self.machine.learned(inside, rates, z, raw, told, targets[t], weight, none, full=False)
            shared, after = self._apart(new)
            return shared, jnp.where(present[t][:, None], after, rows), said.at[t].set(out[:, 0])

        carry = shared, rows, jnp.zeros(targets.shape, rows.dtype)
        return jax.lax.fori_loop(0, turns, step, carry) if len(raws) > 1 else step(0, carry)

    def grow(
        self, shared: list[Array], rows: np.ndarray, larger: "Crowd", seed: int
    ) -> tuple[list[Array], np.ndarray, np.ndarray]:
        """The network, all rows, and a new key's, with more slots: what is new is as at a start."""
        place, (network, fresh) = self.settings.slots, larger.start(seed)
        pairs = zip(self.pack(shared), larger.pack(network), strict=True)
        network = larger.unpack([embed(a, b, place) for a, b in pairs])
        many = np.repeat(fresh[None], len(rows), axis=0)
        parts = [
            embed(np.array(a), np.array(b), place) for a, b in zip(self._parts(rows), larger._parts(many), strict=True)
        ]
        return network, np.concatenate([a.reshape(len(rows), -1) for a in parts], axis=1), fresh


def crowd(settings: Settings) -> Crowd:
    """Pools with equal settings share what was compiled."""
    machine(settings)
    with _MAKING:
        return _crowd(settings)


_MAKING = threading.Lock()
_crowd = functools.lru_cache(maxsize=32)(Crowd)
