"""What is measured: a model, trained or not, and a stretch of its task's streams."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from evergrad._core import room
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import Model
from evergrad._core.names import refuse_unknown
from evergrad._core.sources import Data
from evergrad._estimators import Estimator
from evergrad._registry import ESTIMATORS, PARAMETERS
from evergrad._training.build import make_model, set_precision
from evergrad._training.folder import open_run
from evergrad._training.probing import emitted
from evergrad._training.run import load
from evergrad._training.settings import Settings
from evergrad._training.tasks import make_task


@dataclasses.dataclass(frozen=True)
class Subject:
    model: Model
    data: Data  # [T, B]
    words: str


def of_run(path: Path, *, steps: int, batch: int = 1, seed: int = 0) -> Subject:
    """The model of a run's last checkpoint. Copy strings keep the length it has reached; a text is read without resets."""
    folder = open_run(path)
    _, progress = load(folder)
    s = folder.settings
    model = progress.state.model
    length = int(progress.position.length) if s.task == "copy" else None
    data = _streams(s, model, length=length, steps=steps, batch=batch, seed=seed)
    reached = f", length {length}" if length else ""
    return Subject(model, data, f"{s.task}, {_network(s)}, {progress.step:,} steps of training{reached}")


def under_way(settings: Settings, model: Model, position: Any, *, steps: int, batch: int = 1) -> Subject:
    """A model in the middle of its training, and a stretch of what it is trained on."""
    length = int(position.length) if settings.task == "copy" else None
    data = _streams(settings, model, length=length, steps=steps, batch=batch, seed=settings.seed)
    return Subject(model, data, f"{settings.task}, {_network(settings)}")


def untrained(settings: Settings, *, steps: int, batch: int = 1) -> Subject:
    """The model that a run with these settings would start with."""
    set_precision(settings)
    task = make_task(dataclasses.replace(settings, batch=batch))
    model = make_model(settings, task)
    data = _streams(settings, model, length=settings.length, steps=steps, batch=batch, seed=settings.seed)
    return Subject(model, data, f"{settings.task}, {_network(settings)}, untrained")


def _network(settings: Settings) -> str:
    layers = f"{settings.layers} x " if (settings.layers or 1) > 1 else ""
    return f"{layers}{settings.cell.upper()} {settings.units}"


def _streams(settings, model, *, length, steps, batch, seed):
    fixed = {"copy": {"length": length, "longest": length}, "text": {"reset_probability": 0.0, "reset_every": None}}
    task = make_task(dataclasses.replace(settings, batch=batch, steps=None, **fixed.get(settings.task, {})))
    refuse_unless(
        task.steps is None or steps <= task.steps, f"--steps {steps}: the data has {task.steps} rows for a stream."
    )

    def streams():
        position = task.start(model, batch=batch, key=jax.random.key(seed + 1000))
        return emitted(task.source, position, steps)

    room.require(
        room.bytes_of(streams), f"a stretch of {steps:,} steps of {batch:,} streams", "lower --steps or --batch"
    )
    return streams()


def parse_estimator(text: str) -> Estimator:
    """From `name:parameter=value,…`, for instance ok:rank=8,window=16. TBPTT is of stride 1 unless it says otherwise."""
    name, _, rest = text.partition(":")
    refuse_unknown("estimator", name, ESTIMATORS)
    entry = ESTIMATORS[name]
    said = {"horizon": 25, "stride": 1} if name == "tbptt" else {}
    for item in filter(None, rest.split(",")):
        parameter, _, value = item.partition("=")
        refuse_unknown(f"parameter of {name}", parameter, entry.parameters)
        said[parameter] = _valued(text, parameter, value)
    return entry.load()(**said)


def _valued(text, parameter, value):
    kind = PARAMETERS[parameter].kind
    if kind is int and not value.isdecimal():
        raise InputError(f'--estimator {text}: {parameter} is "{value}", but must be a whole number.')
    try:
        return kind(value)
    except ValueError:
        raise InputError(f'--estimator {text}: {parameter} is "{value}", but must be a number.') from None
