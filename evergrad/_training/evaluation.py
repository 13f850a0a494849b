"""What a trained model is worth, its weights held fixed."""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import evergrad as eg
from evergrad._core import room
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import Model
from evergrad._core.not_none import not_none
from evergrad._core.printable import printable_lines
from evergrad._tasks.reading import Text, encode, read_text
from evergrad._tasks.text import bits_per_symbol, sample
from evergrad._training.divergence import Diverged
from evergrad._training.folder import Folder
from evergrad._training.loop import most_steps
from evergrad._training.run import load
from evergrad._training.tasks import CopyTask, SeriesTask, Task, TextTask, make_task


def _complain(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)


def evaluate(folder: Folder, data: Path | None, *, steps: int) -> dict[str, Any]:
    result = _evaluated(folder, data, steps)
    bad = [name for name, value in result.items() if isinstance(value, float) and not math.isfinite(value)]
    if bad:
        raise Diverged(
            f"{bad[0]} is {result[bad[0]]}: the weights of {folder.path} are so large that this run has diverged. Train anew "
            f"with a lower --learning-rate (it was {folder.settings.learning_rate:g})."
        )
    return result


def _evaluated(folder, data, steps):
    job, progress = load(folder, _complain, with_data=data is None)
    result = {"step": progress.step}
    model, task = progress.state.model, job.task
    if isinstance(task, TextTask):
        return result | _text(model, task, data)
    if isinstance(task, SeriesTask):
        return result | _series(folder, model, task, data)
    refuse_unless(data is None, f"the {folder.settings.task} task makes its own data: leave --data out.")
    if isinstance(task, CopyTask):
        return result | _copy(folder, model, int(progress.position.length), steps)
    return result | _anew(folder, model, steps)


def _text(model: Model, task: TextTask, data: Path | None) -> dict[str, Any]:
    if data is None:
        return {"valid_bpc": bits_per_symbol(model, task.valid), "test_bpc": bits_per_symbol(model, task.test)}
    text = read_text(data, as_bytes=task.symbols is None)
    refuse_unless(len(text.content) >= 2, f"{data} has one symbol: there is no next one to predict.")
    return {"data": str(data), "bpc": bits_per_symbol(model, encode(text, task.symbols))}


def _series(folder: Folder, model: Model, own: SeriesTask, data: Path | None) -> dict[str, Any]:
    """On the columns of the run's `own` task, found by name in other data."""
    changes = {"batch": 1, "steps": None} if data is None else {"batch": 1, "steps": None, "data": str(data)}
    task = SeriesTask(dataclasses.replace(folder.settings, **changes), columns=own.columns)
    figures = _frozen(model, task, 1, not_none(task.steps), seed=0)
    return {"data": str(data or folder.settings.data)} | figures


def _copy(folder: Folder, model: Model, length: int, steps: int) -> dict[str, Any]:
    """On strings that are all of this length, and do not grow."""
    s = dataclasses.replace(folder.settings, length=length, longest=length, jitter=1)
    return _frozen(model, CopyTask(s), s.batch, steps, seed=s.seed + 1)


def _anew(folder: Folder, model: Model, steps: int) -> dict[str, Any]:
    """On other draws; a chaotic series is all there is to draw, where other tasks have what was learned in their seed."""
    s = folder.settings
    other = dataclasses.replace(s, seed=s.seed + 1) if s.task == "chaos" else s
    return _frozen(model, make_task(other), s.batch, steps, seed=s.seed + 1)


def _frozen(model: Model, task: Task, batch: int, steps: int, *, seed: int) -> dict[str, Any]:
    """What a report says of `steps` steps in which nothing is learned."""
    learner = eg.Learner(model, eg.TBPTT(horizon=1, stride=1), optax.set_to_zero())
    state_key, task_key = jax.random.split(jax.random.key(seed))
    position = task.start(model, batch=batch, key=task_key)
    state, total = learner.init(batch=batch, key=state_key), 0.0
    most = most_steps(batch, steps)
    for done in range(0, steps, most):
        now = min(most, steps - done)
        state, position, losses = learner.follow(state, task.source, position, now, room=most)
        total += float(np.asarray(losses, np.float64).sum())
    return task.figures(position, total / (steps * batch), steps)


def write(folder: Folder, prompt: str | None, *, length: int, temperature: float, seed: int) -> str:
    """The prompt and what the model makes of it."""
    refuse_unless(
        folder.settings.task == "text", f"{folder.path} learned {folder.settings.task}, and only text can be sampled."
    )
    prompt = _usual_prompt(folder.symbols) if prompt is None else prompt
    refuse_unless(len(prompt) > 0, "--prompt is empty: give at least one character to begin with.")
    raw = prompt.encode("utf-8", "surrogateescape")  # the bytes of the command line
    _check_length(length)
    _, progress = load(folder, _complain)
    symbols = folder.symbols
    ids = encode(Text("--prompt", raw if symbols is None else _as_text(raw)), symbols)
    drawn = sample(
        progress.state.model,
        jnp.asarray(ids, jnp.int32),
        length,
        jnp.asarray(temperature, jnp.result_type(float)),
        jax.random.key(seed),
    )
    drawn = np.asarray(drawn)
    if symbols is None:
        return (raw + bytes(drawn.tolist())).decode("utf-8", "replace")
    return prompt + "".join(symbols[i] for i in drawn)


def _check_length(length: int) -> None:
    """A key, a number, a character and a reference to it, for every symbol."""
    room.require(length * (8 + 4 + 4 + 8), f"--length {length}", "write less at a time")


def _usual_prompt(symbols: str | None) -> str:
    return "\n" if symbols is None or "\n" in symbols else symbols[0]


def _as_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InputError("--prompt is not UTF-8 text, and the run learned characters: give it in UTF-8.") from None
