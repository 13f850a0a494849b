"""The one loop around compiled steps: calls of about two seconds, and between them callbacks."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence as Several
from typing import Any, Protocol, runtime_checkable

import numpy as np

from evergrad._core.checks import DivergedError, InputError, refuse_unless, whole_number
from evergrad._core.not_none import not_none
from evergrad._core.sources import Data, Sequence, Source

_CALL = 2.0  # seconds that a call should take: so long a signal may have to wait
_TRIAL = 16  # steps of the first call that is timed
_LOSSES = 1 << 22  # that a call gives back at most


def most_steps(batch: int, wanted: int) -> int:
    """Of one call, so that its losses take little memory however many are wanted."""
    return min(wanted, max(1, _LOSSES // batch))


class Pace:
    """How many steps a call should take. The clock may decide, since cutting a run differently changes none of it."""

    def __init__(self):
        self.steps_per_second = 0.0  # 0 while nothing is known but how long compiling takes
        self.length = 1  # the first call compiles, and says nothing of the speed
        self._calls = 0

    def took(self, steps: int, seconds: float) -> None:
        self._calls += 1
        if self._calls == 1:
            self.length = _TRIAL
        else:
            self.steps_per_second = steps / seconds
            self.length = max(1, int(_CALL * steps / seconds))


@runtime_checkable
class Moving(Protocol):
    """What changes while steps are taken."""

    state: Any
    position: Any
    step: int


@runtime_checkable
class Watcher(Protocol):
    """What is told of every call, and may bound how many steps it takes."""

    def until(self) -> int:
        """Steps that may be taken before it is told."""
        ...

    def moved(self, losses: np.ndarray, pace: Pace) -> None:
        """After a call, whose losses [steps, B] these are."""
        ...

    def diverged(self, error: DivergedError) -> bool:
        """Whether something was done about it, so that the loop can go on."""
        ...


def advance(
    learner: Any,
    source: Source,
    now: Moving,
    last: int,
    watchers: Several[Watcher],
    *,
    room: int,
    stopped: Callable[[], bool],
    agree: Callable[[int], int] = int,
) -> None:
    """Takes steps up to the `last`, or until it is to stop, and tells the watchers after every call.

    No call has more than `room` steps; all share one compiled loop. Where several processes go in step, they `agree` on what
    depends on a clock.
    """
    pace = Pace()
    while now.step < last and not stopped():
        steps = min(agree(pace.length), room, last - now.step, *(each.until() for each in watchers))
        started = time.monotonic()
        try:
            now.state, now.position, losses = learner.follow(now.state, source, now.position, steps, room=room)
            pace.took(steps, time.monotonic() - started)
            now.step += steps
            for each in watchers:
                each.moved(losses, pace)
        except DivergedError as error:
            if not any(each.diverged(error) for each in watchers):
                raise


@dataclasses.dataclass
class Progress:
    """What a callback of `Learner.fit` is told. `state` is given away to the next step: `eg.copy` what is to be kept.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> xs = ys = jnp.ones((20, 2, 1))
        >>> def watch(now):
        ...     print(now.step, "of", now.steps)
        >>> state, _ = learner.fit(learner.init(batch=2, key=key), (xs, ys), 20, callbacks=[watch], every=10)
        10 of 20
        20 of 20
    """

    learner: Any
    state: Any
    position: Any
    step: int  # taken so far
    steps: int  # to take
    loss: float = math.nan  # mean over streams and steps since this callback was last called
    steps_per_second: float = 0.0  # without the time that compiling took; 0 while it is not known
    stopped: bool = False

    def stop(self) -> None:
        """No further step is taken."""
        self.stopped = True


class _Turns:
    """Calls a function of a Progress at every multiple of so many steps, and at the end."""

    def __init__(self, function: Callable[[Progress], Any], every: int, now: Progress):
        self.function, self.every, self.now = function, every, now
        self._sum, self._steps = 0.0, 0

    def until(self) -> int:
        return self.every - self.now.step % self.every

    def moved(self, losses: np.ndarray, pace: Pace) -> None:
        self._sum += float(np.asarray(losses, np.float64).mean(axis=1).sum())
        self._steps += len(losses)
        if self.now.step % self.every and self.now.step != self.now.steps:
            return
        self.now.loss, self.now.steps_per_second = self._sum / self._steps, pace.steps_per_second
        self._sum, self._steps = 0.0, 0
        self.function(self.now)

    def diverged(self, error: DivergedError) -> bool:
        return False


def fit(
    learner: Any,
    state: Any,
    source: Any,
    steps: int,
    *,
    position: Any = None,
    key: Any = None,
    callbacks: Several[Callable[[Progress], Any]] = (),
    every: int = 1000,
) -> tuple[Any, Any]:
    """`Learner.fit`, which says what it does."""
    call = f"Learner.fit(steps={steps}, every={every})"
    whole_number(steps, 1, call, "steps", "the number of steps to take")
    whole_number(every, 1, call, "every", "the steps from one call of a callback to the next")
    batch = len(state.hidden)
    source, position = _begun(learner, source, position, steps, batch, key)
    now = Progress(learner, state, position, 0, steps)
    turns = [_Turns(each, _interval(each, every), now) for each in callbacks]
    room = most_steps(batch, min([steps, *(turn.every for turn in turns)]))
    advance(learner, source, now, steps, turns, room=room, stopped=lambda: now.stopped)
    return now.state, now.position


def _interval(callback: Any, every: int) -> int:
    refuse_unless(
        callable(callback),
        f"Learner.fit(callbacks=[{callback!r}]): a callback is a function of one argument, the progress, such as eg.Log().",
    )
    own = getattr(callback, "every", None)
    return every if own is None else own


def _begun(learner: Any, source: Any, position: Any, steps: int, batch: int, key: Any) -> tuple[Source, Any]:
    """A source, and where to begin in it."""
    if isinstance(source, tuple | Data):
        source = _sequence(learner, source, batch)
    refuse_unless(
        isinstance(source, Source),
        f"Learner.fit(source=...) is a {type(source).__name__}: pass (xs, ys), (xs, ys, resets) or (xs, ys, resets, weights) of "
        "[T, B, ...], or a Source (evergrad.extend). For a stream that comes as it comes, call `step` for each sample.",
    )
    if isinstance(source, Sequence):
        position = np.int32(0) if position is None else np.int32(position)
        there = len(source.data.reset) - int(position)
        refuse_unless(
            steps <= there, f"Learner.fit(steps={steps}): there are {there} steps in the data: ask for fewer."
        )
    if position is None:
        start: Callable[..., Any] | None = getattr(source, "start", None)
        refuse_unless(
            start is not None and key is not None,
            f"Learner.fit({type(source).__name__}) must know where to begin: pass position=..., or key=jax.random.key(0) for a "
            "source that has a `start`.",
        )
        position = not_none(start)(batch=batch, key=key)
    return source, position


def _sequence(learner: Any, given: Any, batch: int) -> Sequence:
    if isinstance(given, Data):
        return Sequence(given)
    if not 2 <= len(given) <= 4:
        raise InputError(
            "Learner.fit(source=(xs, ys, resets, weights)): resets and weights may be left out, and no more."
        )
    xs, ys, resets, weights = (*given, None, None)[:4]
    return learner.sequence(xs, ys, resets, weights, batch=batch)
