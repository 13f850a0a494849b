"""The compiled inside of the stream learners: look at a sample, learn from one, and a whole series in one loop."""

import dataclasses
import functools
import threading
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import evergrad as eg
from evergrad import _registry as registry
from evergrad._cells.base import output_of, outputs_of
from evergrad._cells.stack import layered
from evergrad._core import driver
from evergrad._core.linearize import flat_step, unflatten
from evergrad._core.sources import Data, Sequence
from evergrad.river import compiled, forks, label, late, number, scaler

CELLS = {name: entry.load() for name, entry in registry.CELLS.items()}
SMALL = 4096  # entries of an array that is joined to others
FEW = 2**16  # entries of a state that one core is quicker with than several
CLIPS = 5e-3  # what one update weighs in the share of those that were clipped
OPTIMISERS = {"adam": optax.adam, "sgd": optax.sgd, "rmsprop": optax.rmsprop}


@dataclasses.dataclass(frozen=True)
class Settings:
    """All that decides what is compiled; rates are numbers that a program is given. `classes` is 0 for a regression."""

    cell: str
    units: int
    estimator: eg.Estimator
    optimiser: str
    lanes: int
    slots: int
    classes: int
    dtype: str = dataclasses.field(default_factory=lambda: str(jnp.result_type(float)))  # float64 with JAX's x64
    layers: int = 1


class Inside(eqx.Module):
    """All that a stream learner knows, but for the names of things: one pytree."""

    scaler: scaler.Scaler  # lanes first
    head: number.Head | label.Head  # lanes first
    state: driver.State


class Buffers:
    """Small arrays joined, their bits as whole numbers: a compiled call costs some microseconds for every array in and out.

    Of NumPy's arrays NumPy's are made: outside a compiled function, that is, where JAX would compile a program for each.
    """

    def __init__(self, shapes: list[jax.ShapeDtypeStruct]):
        self.shapes = shapes
        self.large = [i for i, a in enumerate(shapes) if a.size > SMALL]
        small = [i for i, a in enumerate(shapes) if a.size <= SMALL]
        self.types = sorted({_bits(shapes[i].dtype) for i in small}, key=str)
        self.groups = [[i for i in small if _bits(shapes[i].dtype) == t] for t in self.types]

    def join(self, arrays: list[Any]) -> list[Any]:
        numbers = np if isinstance(arrays[0], np.ndarray) else jnp
        groups = zip(self.groups, self.types, strict=True)
        joined = [numbers.concatenate([_seen_as(arrays[i].reshape(-1), t) for i in group]) for group, t in groups]
        return [*joined, *(arrays[i] for i in self.large)]

    def split(self, buffers: list[Any]) -> list[Any]:
        numbers = np if isinstance(buffers[0], np.ndarray) else jnp
        found: dict[int, Any] = dict(zip(self.large, buffers[len(self.groups) :], strict=True))
        for group, buffer in zip(self.groups, buffers, strict=False):
            ends = np.cumsum([self.shapes[i].size for i in group])
            parts = zip(group, numbers.split(buffer, ends[:-1]), strict=True)
            found.update((i, _seen_as(part, self.shapes[i].dtype).reshape(self.shapes[i].shape)) for i, part in parts)
        return [found[i] for i in range(len(self.shapes))]

    def pack(self, buffers: list[Array]) -> list[np.ndarray]:
        """Plain arrays, from which `unpack` makes the same buffers again."""
        return [np.array(a) for a in self.split([np.asarray(a) for a in buffers])]

    def unpack(self, arrays: list[np.ndarray]) -> list[Array]:
        return [jnp.array(a) for a in self.join([np.asarray(a) for a in arrays])]


def _bits(dtype):
    """The type in which numbers of this one are kept: whole numbers of its size, if it has no more to it than bits."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind in "fiu" else dtype


def _seen_as(a, dtype):
    """The same bits."""
    if a.dtype == dtype:
        return a
    return a.view(dtype) if isinstance(a, np.ndarray) else jax.lax.bitcast_convert_type(a, dtype)


class Machine:
    """The functions for one `Settings`. A state is a short list of arrays here, which calls quickest."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.past = settings.estimator.past
        # every sample asks, and what Equinox makes of a method takes longer to call than the method
        self.full_after = functools.partial(type(self.past).full_after, self.past)
        self.head: Any = label if settings.classes else number
        self.teach = jax.vmap(self.head.teach, (0, 0, 0, 0, None))
        self.judged = jax.vmap(self.head.judged, (0, 0, 0, 0, 0, None))
        key = jax.random.key(0)
        inside = jax.eval_shape(self._start, key)
        shapes, self.treedef = jax.tree.flatten(inside)
        self.is_key = [jnp.issubdtype(a.dtype, jax.dtypes.prng_key) for a in shapes]
        self.buffers = Buffers(jax.eval_shape(self.plain, inside))
        after = settings.slots + inside.state.hidden.shape[1]
        self.ends = settings.slots, after, after + len(self.head.NAMES) * max(1, settings.classes)  # of what `see` says
        as_one: Any = compiled.as_one if self._is_small() else lambda function, **options: function
        self.look = compiled.jit(as_one(self._look))
        # nothing is given away: a call that is interrupted leaves the state it began with, and others may read that one
        self.learn = compiled.jit(as_one(self._learn, static_argnames="full"), static_argnames="full")
        self.again = compiled.jit(self._again)
        self.series = compiled.jit(self._series)
        self.late_series = compiled.jit(self._late_series)
        self.mark = compiled.jit(self._mark)

    def _is_small(self) -> bool:
        """Whether a sample's program is nothing but arithmetic on a few thousand numbers, as the default's is."""
        s = self.settings
        exact = isinstance(s.estimator, eg.RTRL) and issubclass(CELLS[s.cell], eg.UnitCell)
        return exact and s.layers == s.lanes == 1 and sum(a.size for a in self.buffers.shapes) <= FEW

    def start(self, key: Array) -> list[Array]:
        # by way of plain arrays, so that what comes back from a file is of the very same types and compiles nothing
        return self.unpack([np.asarray(a) for a in self.plain(self._start(key))])

    def inside(self, leaves: list[Array]) -> Inside:
        return self.assembled(self.buffers.split(leaves))

    def leaves(self, inside: Inside) -> list[Array]:
        return self.buffers.join(self.plain(inside))

    def assembled(self, plain: list[Any]) -> Inside:
        """Of plain arrays, for any number of lanes."""
        arrays = zip(plain, self.is_key, strict=True)
        return jax.tree.unflatten(self.treedef, [jax.random.wrap_key_data(a) if key else a for a, key in arrays])

    def plain(self, inside: Inside) -> list[Array]:
        leaves = zip(jax.tree.leaves(inside), self.is_key, strict=True)
        return [jax.random.key_data(a) if key else a for a, key in leaves]

    def _model(self, key):
        s = self.settings
        cell_key, readout_key = jax.random.split(key)
        cell = self._cell(cell_key)
        seen = outputs_of(cell)
        readout = eg.Softmax(seen, s.classes, key=readout_key) if s.classes else eg.Linear(seen, 1, key=readout_key)
        return eg.Model(cell, readout)

    def _cell(self, key):
        s = self.settings
        return layered(CELLS[s.cell], s.layers, s.slots, s.units, key=key)

    def _start(self, key):
        s = self.settings
        model_key, state_key = jax.random.split(key)

        def per_lane(part):
            return jax.tree.map(lambda a: jnp.tile(a[None], (s.lanes, *(1,) * a.ndim)), part)

        return Inside(
            per_lane(scaler.start(s.slots)),
            per_lane(self.head.start(s.slots, s.classes)),
            self._learner(self._model(model_key), jnp.ones(2)).init(batch=s.lanes, key=state_key),
        )

    def see(
        self, leaves: list[Array], hidden: np.ndarray | None, raw: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """`looked`, of a state and samples raw [B, d]; what every expert says is [B, …] numbers in a row."""
        given = raw if hidden is None else np.concatenate([raw, hidden], axis=1)
        seen = np.asarray(self.look(leaves, given))
        slots, told, out = self.ends
        return seen[:, :slots], seen[:, slots:told], seen[:, told:out], seen[:, out:]

    def _look(self, leaves, given):
        """One array in and one out."""
        slots = self.settings.slots
        hidden = given[:, slots:] if given.shape[1] > slots else None
        seen = self.looked(self.inside(leaves), hidden, given[:, :slots])
        return jnp.concatenate([a.reshape(len(a), -1) for a in seen], axis=1)

    def looked(self, inside: Inside, hidden: Array | None, raw: Array) -> tuple[Array, Array, Any, Array]:
        """Of samples raw [B, d]: z, the hidden state after them, what every expert says, and the prediction."""
        z = scaler.standardise(inside.scaler, raw)
        hidden, out = _step(inside.state.model, inside.state.hidden if hidden is None else hidden, z)
        told = jax.vmap(self.head.tell)(jax.vmap(self.head.say)(inside.head.part, z), out)
        return z, hidden, told, jax.vmap(self.head.conclude)(inside.head.judge, told)

    def step(
        self,
        leaves: list[Array],
        rates: np.ndarray,
        waiting: int,
        target: np.ndarray,
        weight: np.ndarray,
        seen: tuple[np.ndarray, np.ndarray, np.ndarray],
        full: bool,
    ) -> list[Array]:
        """`learned`, of a state and samples that were seen: z, raw, and what the experts said."""
        given = [rates, [waiting], target, weight, *[a.reshape(-1) for a in seen]]
        return self.learn(leaves, np.concatenate(given, dtype=self.settings.dtype, casting="same_kind"), full=full)

    def _learn(self, leaves, given, *, full):
        s, d = self.settings, self.settings.lanes * self.settings.slots
        rates, (waiting,), target, weight, z, raw, told = jnp.split(given, np.cumsum([2, 1, s.lanes, s.lanes, d, d]))
        target = target.astype(jnp.int32) if s.classes else target
        told = told.reshape(s.lanes, len(self.head.NAMES), *([-1] if s.classes else []))
        seen = z.reshape(s.lanes, -1), raw.reshape(s.lanes, -1), told, target, weight, waiting
        return self.leaves(self.learned(self.inside(leaves), rates, *seen, full=full))

    def learned(
        self,
        inside: Inside,
        rates: Array,
        z: Array,
        raw: Array,
        told: Any,
        target: Array,
        weight: Array,
        waiting: Array,
        *,
        full: bool,
    ) -> Inside:
        """The state after learning from samples that were looked at as z. A target is a change, or a class.

        `full` says whether the window is: known to the caller, it need not be a condition, past which all is copied.
        """
        wanted, part, unit = self.teach(inside.head.part, z, target, weight, waiting)
        judge = self.judged(inside.head.judge, told, target, weight, unit, waiting)
        if self.past.stride == 1:
            data = Data(z, wanted, jnp.zeros(weight.shape, bool), weight)
            update = self._learner(inside.state.model, rates)._recipe.update
            state = driver.take_one(self.settings.estimator, inside.state, data, update, full=full)
        else:
            state, _ = self._drive(inside.state, rates, 1, z[None], wanted[None], weight[None])
        return Inside(scaler.update(inside.scaler, raw), type(cast(Any, inside.head))(part, judge), state)

    def _again(self, leaves, z, target, weight):
        """The state after the linear part has learned once more from samples that were learned from: time stands still."""
        inside = self.inside(leaves)
        none = jnp.zeros((), z.dtype)
        _, part, _ = self.teach(inside.head.part, z, target, weight, none)
        return self.leaves(Inside(inside.scaler, type(cast(Any, inside.head))(part, inside.head.judge), inside.state))

    def _mark(self, leaves, given):
        """The state with the features [d] that were given told from those made here: 1 and 0. Only a label's head asks."""
        inside = self.inside(leaves)
        return self.leaves(Inside(inside.scaler, label.mark(cast(Any, inside.head), given), inside.state))

    def _series(self, leaves, rates, steps, raws, targets, weights):
        """Looking and learning, `steps` times: the state after it, and the prediction made before learning, at each.

        The arrays may be longer; what is past the last step must be NaN in raws and 0 in weights.
        """
        inside = self.inside(leaves)
        none = jnp.zeros((), raws.dtype)  # wait

        def teach(front, sample):
            (scale, part), (raw, target, weight) = front, sample
            z = scaler.standardise(scale, raw)
            said = jax.vmap(self.head.say)(part, z)
            wanted, part, unit = self.teach(part, z, target, weight, none)
            return (scaler.update(scale, raw), part), (z, wanted, said, unit)

        def judge(judge, sample):
            said, out, target, weight, unit = sample
            told = jax.vmap(self.head.tell)(said, out)
            concluded = jax.vmap(self.head.conclude)(judge, told)
            return self.judged(judge, told, target, weight, unit, none), concluded

        front = inside.scaler, inside.head.part
        (scale, part), (z, wanted, said, unit) = jax.lax.scan(teach, front, (raws, targets, weights))
        state, out = self._drive(inside.state, rates, steps, z, wanted, weights)
        judged, out = jax.lax.scan(judge, inside.head.judge, (said, out, targets, weights, unit))
        return self.leaves(Inside(scale, type(cast(Any, inside.head))(part, judged), state)), out

    def _late_series(self, leaves, rates, steps, waiting, raws, targets, weights):
        """`_series` where as many samples as `waiting` says wait for their targets."""
        inside, room = self.inside(leaves), len(raws)
        data = (
            targets,
            weights,
            jnp.clip(steps - 1 - jnp.arange(room, dtype=steps.dtype), 0, waiting).astype(raws.dtype),
        )

        def look(front, t):
            z = scaler.standardise(front[0], raws[t])
            return z, jax.vmap(self.head.say)(front[1], z)

        def teach(front, s, said):
            (scale, part), (target, weight, left) = front, (a[s] for a in data)
            wanted, part, unit = self.teach(part, said[0], target, weight, left)
            return (scaler.update(scale, raws[s]), part), (wanted, unit)

        front = inside.scaler, inside.head.part
        (scale, part), (z, said), (wanted, unit) = late.ahead(look, teach, front, waiting, room)
        state, out = self._drive_late(inside.state, rates, steps, waiting, Data(z, wanted, weights < 0, weights))
        told = jax.vmap(jax.vmap(self.head.tell))(said, out)

        def conclude(judge, t):
            return jax.vmap(self.head.conclude)(judge, told[t])

        def judge(judge, s, _):
            return self.judged(judge, told[s], targets[s], weights[s], unit[s], data[2][s]), ()

        judged, concluded, _ = late.ahead(conclude, judge, inside.head.judge, waiting, room)
        return self.leaves(Inside(scale, type(cast(Any, inside.head))(part, judged), state)), concluded

    def _drive(self, state, rates, steps, xs, ys, weights):
        source = Sequence(Data(xs, ys, jnp.zeros(weights.shape, bool), weights))
        start = jnp.zeros((), jnp.int32)
        state, _, out, _ = self._driven(state, rates, steps, source, start, len(xs), lambda out: out.predictions)
        return state, out

    def _drive_late(self, state, rates, steps, waiting, data):
        source = late.Looking(data, waiting, _step)
        outs = jnp.zeros((*data.y.shape[:2], len(state.model.readout.bias)), data.x.dtype)
        first = source.first(state.model, state.hidden, outs)
        state, (_, _, outs), _, _ = self._driven(state, rates, steps, source, first, len(outs), lambda out: ())
        return state, outs

    def _driven(self, state, rates, steps, source, position, room, keep):
        update = self._learner(state.model, rates)._recipe.update
        estimator = self.settings.estimator
        return driver.drive(estimator, state, source, position, room, limit=steps, keep=keep, consume=update)

    def _learner(self, model, rates):
        """With rates (learning rate, clip) that may be traced: another one compiles nothing."""
        learning_rate, clip = rates
        optimiser = optax.chain(clip_cell(clip), OPTIMISERS[self.settings.optimiser](learning_rate))
        return eg.Learner(model, self.settings.estimator, optimiser)

    def pack(self, leaves: list[Array]) -> list[np.ndarray]:
        """Plain arrays, from which `unpack` makes the same state again."""
        return self.buffers.pack(leaves)

    def unpack(self, arrays: list[np.ndarray]) -> list[Array]:
        return self.buffers.unpack(arrays)

    def grow(self, arrays: list[np.ndarray], larger: "Machine", seed: int) -> list[np.ndarray]:
        """The same packed state with more slots or with more classes: what is new is as at a start."""
        old, new = self.settings, larger.settings
        place = old.slots if new.slots > old.slots else old.classes
        fresh = larger.pack(larger.start(jax.random.key(seed)))
        return [embed(a, b, place) for a, b in zip(arrays, fresh, strict=True)]


def _step(model, hidden, z):
    """The hidden state [B, m] after z [B, d], and what comes out."""
    cell, readout = model.cell, model.readout
    hidden = jax.vmap(flat_step, (None, 0, 0))(cell, hidden, z)
    seen = jax.vmap(lambda h, z: output_of(cell, unflatten(cell, h), z))(hidden, z)
    return hidden, jax.vmap(lambda h: readout.predict(readout(h)))(seen)


class Clipped(NamedTuple):
    share: Array  # of the newest updates, some hundreds, that were clipped


def clip_cell(clip: Array) -> optax.GradientTransformation:
    """Bounds the norm of the recurrent gradient, the one of the cell, as `eg.Learner` does with a constant."""

    def update(gradient, state, params=None):
        norm = optax.tree.norm(gradient.cell)
        scale = jnp.minimum(1, clip / jnp.maximum(norm, clip))
        gradient = eqx.tree_at(lambda m: m.cell, gradient, jax.tree.map(lambda a: a * scale, gradient.cell))
        share = state.share + CLIPS * (jnp.asarray(norm > clip, state.share.dtype) - state.share)
        return gradient, Clipped(share)

    return optax.GradientTransformation(lambda params: Clipped(jnp.zeros(())), cast(Any, update))


def embed(small: np.ndarray, large: np.ndarray, place: int) -> np.ndarray:
    """`small` within `large`, with what is new at `place` of every axis that grew.

    Slots come first wherever they are: z, (z, 1) and ĥ = (z, h, 1).
    """
    where = (
        np.where(np.arange(old) < place, np.arange(old), np.arange(old) + new - old) if new != old else np.arange(old)
        for old, new in zip(small.shape, large.shape, strict=True)
    )
    large[np.ix_(*where)] = small
    return large


def machine(settings: Settings) -> Machine:
    """Learners with equal settings, clones for instance, share what was compiled."""
    forks.check()
    compiled.at_once()
    compiled.keep()
    with _MAKING:  # or else two threads would make two of one
        return _machine(settings)


_MAKING = threading.Lock()
_machine = functools.lru_cache(maxsize=128)(Machine)
