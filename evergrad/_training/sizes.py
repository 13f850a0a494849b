"""What a run needs, from its settings, before there is a folder or a network."""

import contextlib
import dataclasses
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

import evergrad as eg
from evergrad._core import planner, room
from evergrad._core.checks import InputError
from evergrad._core.placing import share
from evergrad._registry import CELLS
from evergrad._training.settings import Settings, default, flag
from evergrad._training.tasks import Task, make_task

_SIZES = ("units", "layers", "batch", "rank", "window", "copies", "horizon", "longest")
_OFF = (
    1.3  # a prediction is true within this factor (tests/core/test_plan.py): only what is surely too large is refused
)
MakeLearner = Callable[[Settings, Task, jax.Array], eg.Learner]


def check_room(
    settings: Settings, task: Task, make_learner: MakeLearner, mesh: jax.sharding.Mesh | None = None, *, fresh: bool
) -> None:
    """Refuses a run that needs more memory than there is. A `fresh` one can still be given other sizes."""
    there = room.there_is()
    needed = share(_needed(settings, task, make_learner, there), mesh)
    if there is None or needed <= _OFF * there:
        return
    lower = " or ".join(map(flag, _too_large(settings, task, make_learner, there))) or "its sizes"
    remedy = f"lower {lower}" if fresh else f"go on where there is more, or start a new run with lower {lower}"
    room.require(needed, "the run", remedy, there=there)


def _needed(settings: Settings, task: Task, make_learner: MakeLearner, there: int | None) -> int:
    """Bytes. Weights that could not even be held are not looked at further, which would take long."""
    weights = _weights(settings, task)
    return weights if there is not None and weights > there else _planned(settings, task, make_learner)


def _weights(settings: Settings, task: Task) -> int:
    """Bytes of the cell's weights four times over: as they are, as they were, their gradient and the new ones."""
    n, kind = settings.units, CELLS[settings.cell].load()
    inputs = [task.inputs] + [kind.seen_of_unit * n] * ((settings.layers or 1) - 1)
    return 4 * sum(math.prod(kind.weight_shape(p, n)) for p in inputs) * jnp.result_type(float).itemsize


def _planned(settings: Settings, task: Task, make_learner: MakeLearner) -> int:
    """The state and a step's scratch, the copies that a run keeps to go back to, and the position in the streams, which
    is kept twice and drawn anew."""
    batch, found = settings.batch, []

    def look(key):
        learner = make_learner(settings, task, key)

        def state():
            return learner.init(batch=batch, key=key)

        def kept():
            return (learner.model, eqx.tree_at(lambda s: s.track, state(), None))

        def position():
            return task.start(learner.model, batch=batch, key=key)

        held = room.bytes_of(state) + room.bytes_of(kept) + 3 * room.bytes_of(position)
        found.append(held + planner.scratch(learner.model.cell, learner.estimator, batch))

    eqx.filter_eval_shape(look, jax.random.key(0))
    return found[0]


def _too_large(settings: Settings, task: Task, make_learner: MakeLearner, there: int) -> list[str]:
    """The sizes that would do if they were as usual, each alone; if none would, those that matter."""
    needed, without = _needed(settings, task, make_learner, there), {}
    for name in _SIZES:
        with contextlib.suppress(InputError):
            usual = _as_usual(settings, name)
            other = make_task(usual) if usual.task == "copy" else task
            without[name] = _needed(usual, other, make_learner, there)
    enough = [name for name, less in without.items() if less <= there]
    return enough or [name for name, less in without.items() if less < needed]


def _as_usual(settings: Settings, name: str) -> Settings:
    """With the default of a size, unless it is lower already or a file of weights decides it."""
    usual = default(Settings.__dataclass_fields__[name], settings.task)
    value, decided = getattr(settings, name), name == "units" and settings.weights is not None
    if value is None or value <= (usual or 0) or decided:
        return settings
    return dataclasses.replace(settings, **{name: usual}, **({"stride": None} if name == "horizon" else {}))
