"""From settings to the things they name."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import evergrad as eg
from evergrad import _native as native
from evergrad._cells.base import outputs_of
from evergrad._cells.initial import read_initial
from evergrad._cells.stack import layered
from evergrad._core import driver
from evergrad._core.checks import refuse_unless
from evergrad._core.not_none import not_none
from evergrad._core.placing import check_divides, place
from evergrad._core.recipe import program
from evergrad._core.sources import Source, place_source, spread_axes
from evergrad._estimators.base import Estimator
from evergrad._registry import CELLS, ESTIMATORS, OPTIMISERS, READOUTS
from evergrad._training import probing
from evergrad._training.settings import Settings
from evergrad._training.sizes import check_room
from evergrad._training.tasks import Task, make_task


@dataclasses.dataclass(frozen=True)
class Job:
    """All that a run needs: made from its settings alone, so that it is the same when the run is resumed."""

    settings: Settings
    task: Task
    learner: eg.Learner
    source: Source  # of the task, where its arrays belong
    mesh: jax.sharding.Mesh | None = None  # that the run is spread over

    def start(self) -> tuple[Any, Any]:
        """The state and the position before the first step."""
        _, state_key, task_key = _keys(self.settings)
        batch = self.settings.batch
        position = self.task.start(self.learner.model, batch=batch, key=task_key)
        if self.mesh is None:
            return self.learner.init(batch=batch, key=state_key), position
        state = self.learner.init(batch=batch, key=state_key, mesh=self.mesh, shard=self.mesh.axis_names[0])
        return state, place_source(self.source, position, self.mesh)[1]


def set_precision(settings: Settings) -> None:
    jax.config.update("jax_enable_x64", settings.precision == "float64")


def make_job(
    settings: Settings, mesh: jax.sharding.Mesh | None = None, *, fresh: bool = False, symbols: str | None = None
) -> Job:
    """Refuses, before anything is written, what cannot be run. A `fresh` run starts from the weights of a file, if the
    settings name one; later all weights come from checkpoints, and the file need not be there any more. `symbols` are
    those that a run on a text began with.
    """
    set_precision(settings)
    task = make_task(settings, symbols)
    check_room(settings, task, _make_learner, mesh, fresh=fresh)
    model = make_model(settings, task)
    if fresh and settings.weights is not None:
        from evergrad._training.weights import started_from

        model = started_from(settings.weights, model)
    estimator = make_estimator(settings)
    probing.check(settings, estimator, mesh)
    settings = _spelt_out(settings, estimator, task)
    job = Job(settings, task, _learner_of(model, settings), task.source)
    return job if mesh is None else _spread(job, mesh)


def make_model(settings: Settings, task: Task, key: jax.Array | None = None) -> eg.Model:
    """With the weights that a run starts with, or those of another key."""
    cell_key, readout_key = jax.random.split(_keys(settings)[0] if key is None else key)
    cell_starts, readout_starts = _starts(settings.initial)
    cell = make_cell(settings, task.inputs, cell_key, **cell_starts)
    return eg.Model(cell, make_readout(settings, task, outputs_of(cell), readout_key, **readout_starts))


def make_readout(settings: Settings, task: Task, seen: int, key: jax.Array, **starts: str) -> eg.Readout:
    """The task's own, or the one that the settings name, with as many outputs, of `seen` numbers."""
    own = task.readout(seen, key, **starts)
    if settings.readout is None:
        return own
    kind = READOUTS[settings.readout].load()
    refuse_unless(
        kind.targets == own.targets,
        f"--readout {settings.readout} predicts {kind.targets}, but the targets of {settings.task} are {own.targets}: leave "
        f"--readout out, or use one for {own.targets}.",
    )
    return kind(seen, len(own.bias), key=key, **starts)


def make_cell(settings: Settings, inputs: int, key: jax.Array, **starts: str) -> eg.Cell:
    """One cell, or a stack of them; settings from before there were stacks say nothing of layers."""
    kind, depth = CELLS[settings.cell].load(), settings.depth or "exact"
    return layered(kind, settings.layers or 1, inputs, settings.units, key=key, depth=depth, **starts)


def _make_learner(settings: Settings, task: Task, key: jax.Array) -> eg.Learner:
    settings = _spelt_out(settings, make_estimator(settings), task)
    return _learner_of(make_model(settings, task, key), settings)


def _learner_of(model: eg.Model, settings: Settings) -> eg.Learner:
    """Of settings that are spelt out: a schedule must know how many steps there are."""
    estimator = make_estimator(settings)
    return eg.Learner(model, estimator, make_optimiser(settings, estimator.past.stride), clip=settings.clip)


def _spread(job: Job, mesh: jax.sharding.Mesh) -> Job:
    batch = job.settings.batch
    check_divides(batch, mesh, f"--batch {batch} --devices {mesh.size}")
    form, position = eqx.filter_eval_shape(job.start)
    driver.axes(form, job.learner.estimator, mesh)  # refuses an influence that cannot be split
    axes, _ = spread_axes(job.source, position, mesh)
    return dataclasses.replace(job, source=place(job.source, axes, mesh), mesh=mesh)


def make_estimator(settings: Settings) -> Estimator:
    entry = ESTIMATORS[settings.estimator]
    said = {p: getattr(settings, p) for p in entry.parameters if getattr(settings, p) is not None}
    return entry.load()(**said)


def _starts(initial: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """For the cell and for the readout; a run that does not say how weights start has what their classes do."""
    return ({}, {}) if initial is None else ({"initial": initial}, {"initial": read_initial(initial).spread})


def make_optimiser(settings: Settings, stride: int = 1) -> optax.GradientTransformation:
    """With its rate scheduled over the run's updates, one every `stride` steps."""
    return OPTIMISERS[settings.optimiser].load()(_rate(settings, -(-not_none(settings.steps) // stride)))


def momentum(rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=0.9)


def takes_kernels(job: Job) -> bool:
    """Whether native kernels take part in its steps: whether the program of one step, as it is on one device, calls any."""
    if jax.default_backend() != "cpu":
        return False
    start = eqx.filter_eval_shape(dataclasses.replace(job, mesh=None).start)
    fixed = job.learner._recipe, job.task.source, 1, jnp.int32(1)
    step, *_ = eqx.filter_make_jaxpr(program("follow", True))(fixed, *start)
    return native.PREFIX in str(step)


def _rate(settings: Settings, updates: int) -> float | optax.Schedule:
    """A number where it stays, so that the optimiser's state is what it was before there were schedules."""
    highest = settings.learning_rate
    if settings.schedule == "linear":
        return optax.linear_schedule(highest, 0.0, updates)
    if settings.schedule == "cosine":
        return optax.cosine_decay_schedule(highest, updates)
    if settings.schedule == "warmup-cosine":
        return optax.warmup_cosine_decay_schedule(0.0, highest, -(-updates // 20), updates)
    return highest


def _spelt_out(settings: Settings, estimator: Estimator, task: Task) -> Settings:
    """The settings with what was left to the estimator and to the task."""
    parameters = {p: getattr(estimator, p) for p in ESTIMATORS[settings.estimator].parameters}
    steps = task.steps if settings.steps is None else settings.steps
    return dataclasses.replace(settings, **parameters, steps=steps)


def _keys(settings: Settings) -> jax.Array:
    return jax.random.split(jax.random.key(settings.seed), 3)
