"""A run from its beginning, or from where it was left."""

import dataclasses
import signal
from pathlib import Path
from typing import Any

from rich.console import Console

from evergrad.checkpoint import Checkpoints
from evergrad.checks import refuse_unless
from evergrad.training.build import Job, make_job
from evergrad.training.display import Display
from evergrad.training.folder import Folder, check_free, check_unchanged, create, open_run
from evergrad.training.loop import Loop, Progress, begin, form
from evergrad.training.metrics import Metrics, import_tensorboard
from evergrad.training.resolve import checked
from evergrad.training.settings import Settings, fields, flag
from evergrad.training.signals import listening


def train(settings: Settings, out: Path, console: Console) -> signal.Signals | None:
    """A new run in a new folder. Gives back the signal that stopped it, if one did."""
    check_free(out)
    job = make_job(settings, fresh=True)
    if settings.tensorboard:
        import_tensorboard()
    folder = create(out, job.settings, job.task.fingerprints, job.task.symbols)
    with folder.locked():
        return _go(folder, job, console, resumed=False)


def resume(path: Path, changes: dict[str, Any], console: Console) -> signal.Signals | None:
    """Goes on from the last good checkpoint, or from the beginning if there is none."""
    folder = open_run(path)
    with folder.locked():
        job = make_job(_changed(folder.settings, changes))
        check_unchanged(folder, job.task.fingerprints)
        folder = folder.with_settings(job.settings)
        return _go(folder, job, console, resumed=True)


def load(folder: Folder, complain=lambda text: None) -> tuple[Job, Progress]:
    """The run as of its last good checkpoint, for reading only."""
    job = make_job(folder.settings)
    refuse_unless(folder.checkpoints.is_dir(), f"{folder.path} has no checkpoint yet: let it run for a while.")
    checkpoints = Checkpoints(folder.checkpoints, read_only=True)
    progress = _restored(job, checkpoints, complain)
    refuse_unless(progress is not None, f"{folder.path} has no checkpoint yet: let it run for a while.")
    return job, progress


def _changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    options = fields(settings.task)
    said = {name: checked(options[name], value, flag(name)) for name, value in changes.items() if value is not None}
    return dataclasses.replace(settings, **said)


def _restored(job: Job, checkpoints: Checkpoints, complain) -> Progress | None:
    found = checkpoints.load(form(job), complain)
    if found is None:
        return None
    arrays, notes = found
    return Progress(**arrays, **notes)


def _go(folder, job, console, *, resumed):
    display = Display(console, job.task, job.learner.estimator, job.task.unit)
    checkpoints = Checkpoints(folder.checkpoints, keep=job.settings.keep)
    progress = None
    if resumed:
        progress = _restored(job, checkpoints, display.say)
        checkpoints.set_aside_after(progress.step if progress else 0)
        if progress is None:
            job = make_job(job.settings, fresh=True)
    progress = progress or begin(job)
    metrics = Metrics(folder, progress.step)
    try:
        with listening() as stop:
            Loop(job, progress, checkpoints, metrics, display, stop).run()
    finally:
        metrics.close()
        checkpoints.close()
    _say_how_it_ended(folder, progress, stop.signal, display)
    return stop.signal


def _say_how_it_ended(folder, progress, stopped, display):
    if stopped is not None:
        display.say(f"stopped by {stopped.name} at step {progress.step:,}; go on with: evergrad resume {folder.path}")
        return
    from evergrad.plots import plot_run

    plot_run(folder)
    display.say(f"done: {progress.step:,} steps; results in {folder.path} (metrics.jsonl, plot.png, checkpoints)")
