"""A run from its beginning, or from where it was left."""

import contextlib
import dataclasses
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

import evergrad
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import all_finite
from evergrad._core.not_none import not_none
from evergrad._core.room import ran_out
from evergrad._training.build import Job, make_job, takes_kernels
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.display import Display
from evergrad._training.divergence import Diverged
from evergrad._training.folder import Folder, check_free, check_unchanged, create, open_run
from evergrad._training.loop import Loop, Progress, Watch, begin, check_notes, form
from evergrad._training.machine_options import Machines
from evergrad._training.machines import make_mesh
from evergrad._training.metrics import Metrics, Unwritten, import_tensorboard
from evergrad._training.reports import rows
from evergrad._training.resolve import checked
from evergrad._training.settings import Settings, fields, flag
from evergrad._training.signals import listening
from evergrad._training.team import ALONE, Alone, Team


def train(
    settings: Settings,
    out: Path,
    console: Console,
    machines: Machines | None = None,
    team: Alone | Team = ALONE,
    watch: Callable[[Folder], Watch] | None = None,
) -> signal.Signals | None:
    """A new run in a new folder. Gives back the signal that stopped it, if one did. `watch` makes, of the folder, who looks at the
    run every `reach_every` steps."""
    if team.is_first:
        check_free(out)
    job = make_job(settings, machines and make_mesh(machines, team), fresh=True)
    if settings.tensorboard:
        import_tensorboard()
    _agree(team, machines, job)
    about = job.task.fingerprints, job.task.symbols, takes_kernels(job)
    team.first_alone(lambda: create(out, job.settings, *about))
    folder = _seen(out, team)
    try:
        with _locked(folder, team):
            return _go(folder, job, console, team, watch, resumed=False)
    except Exception as error:
        if team.is_first and ran_out(error):
            _remove_unused(folder)
        raise


def _remove_unused(folder: Folder) -> None:
    """A new run's folder, if nothing was learned yet."""
    if not rows(folder.metrics) and not any(folder.checkpoints.glob("[0-9]*")):
        shutil.rmtree(folder.path)


def resume(
    path: Path,
    changes: dict[str, Any],
    console: Console,
    machines: Machines | None = None,
    team: Alone | Team = ALONE,
    watch: Callable[[Folder], Watch] | None = None,
) -> signal.Signals | None:
    """Goes on from the last good checkpoint, or from the beginning if there is none."""
    folder = open_run(path)
    folder.check_may_write()
    with _locked(folder, team):
        team.first_alone(folder.clear)
        job = make_job(_changed(folder.settings, changes), machines and make_mesh(machines, team))
        check_unchanged(folder, job.task.fingerprints)
        _check_steps(folder, changes.get("steps"))
        _agree(team, machines, job)
        return _go(folder, job, console, team, watch, resumed=True)


def load(folder: Folder, complain=lambda text: None, *, with_data: bool = True) -> tuple[Job, Progress]:
    """The run as of its last good checkpoint, for reading only; `with_data` says whether its data matter too, which
    must then be what they were."""
    job = make_job(folder.settings, symbols=folder.symbols)
    if with_data:
        check_unchanged(folder, job.task.fingerprints)
    refuse_unless(folder.checkpoints.is_dir(), f"{folder.path} has no checkpoint yet: let it run for a while.")
    checkpoints = Checkpoints(folder.checkpoints, owner=folder.identity, read_only=True)
    progress = _restored(job, checkpoints, complain)
    if progress is None:
        raise InputError(f"{folder.path} has no checkpoint yet: let it run for a while.")
    return job, progress


def _changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    options = fields(settings.task)
    said = {name: checked(options[name], value, flag(name)) for name, value in changes.items() if value is not None}
    return dataclasses.replace(settings, **said)


def _check_steps(folder: Folder, steps: int | None) -> None:
    """What is done cannot be taken back."""
    names = [each.name for each in folder.checkpoints.glob("*")]
    done = max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)
    refuse_unless(
        steps is None or steps >= done,
        f"--steps {steps}, but {folder.path} has {done:,} behind it already: give more, or start a new run.",
    )


def _restored(job: Job, checkpoints: Checkpoints, complain) -> Progress | None:
    found = checkpoints.load(form(job), complain, check_notes)
    if found is None:
        return None
    arrays, notes = found
    progress = Progress(**arrays, **notes)
    if not all_finite(progress.state.model):
        raise Diverged(
            f"the weights of the checkpoint at step {progress.step:,} are not all finite: this run has diverged. Train anew "
            f"with a lower --learning-rate (it was {job.settings.learning_rate:g})."
        )
    return progress


def _agree(team: Alone | Team, machines: Machines | None, job: Job) -> None:
    """Refuses processes that were told different things."""
    told = dataclasses.asdict(job.settings) | {f"hash of {k}": v for k, v in job.task.fingerprints.items()}
    told |= {
        "evergrad": evergrad.__version__,
        "jax": jax.__version__,
        "shard": machines and machines.shard,
        "devices": job.mesh and job.mesh.size,
    }
    everyone = team.gather(told)
    for id, theirs in enumerate(everyone):
        for name in sorted({*everyone[0], *theirs}):
            mine, other = everyone[0].get(name), theirs.get(name)
            what = flag(name) if name.isidentifier() else name
            refuse_unless(
                mine == other,
                f"process 0 has {what} {mine} and process {id} has {other}: all processes need the same settings.",
            )


def _seen(out: Path, team: Alone | Team) -> Folder:
    refuse_unless(
        (out / "settings.json").exists(),
        f"process {team.id} does not see {out}, which process 0 has made: --out must be on a file system that all share.",
    )
    return open_run(out)


@contextlib.contextmanager
def _locked(folder: Folder, team: Alone | Team) -> Iterator[None]:
    """By process 0, for all."""
    with folder.locked() if team.is_first else contextlib.nullcontext():
        team.gather(None)
        yield


def _go(folder, job, console, team, watch, *, resumed):
    _check_watched(job)
    display = Display(console, job.task, job.learner.estimator, job.task.unit, job.mesh)
    checkpoints = Checkpoints(folder.checkpoints, owner=folder.identity, keep=job.settings.keep, team=team)
    progress, exact = None, True
    if resumed:
        progress = _restored(job, checkpoints, display.say)
        checkpoints.set_aside_after(progress.step if progress else 0)
        if progress is None:
            job = make_job(job.settings, job.mesh, fresh=True)
        exact = _same_kernels(folder, takes_kernels(job), display.say)
        team.first_alone(lambda: folder.with_settings(job.settings, takes_kernels(job)))
        folder = dataclasses.replace(folder, settings=job.settings)
    progress = progress or begin(job)

    def again(step):
        return exact and _is_reported(job.settings, step)

    if team.is_first:
        metrics = Metrics(folder, progress.step, again=again, say=display.say)
    else:
        metrics = Unwritten(folder, progress.step)
    try:
        with listening() as stop:
            looks = None if watch is None or job.settings.reach_every is None else watch(folder)
            Loop(job, progress, checkpoints, metrics, display, stop, team, looks).run()
    finally:
        metrics.close()
        checkpoints.close()
    if team.is_first:
        _say_how_it_ended(folder, progress, stop.signal, display, metrics.last)
    return stop.signal


def _check_watched(job: Job) -> None:
    refuse_unless(
        job.settings.reach_every is None or job.mesh is None,
        f"--reach-every {job.settings.reach_every} is for a run on one device: leave it out, and use `evergrad lab reach` afterwards.",
    )


def _is_reported(settings: Settings, step: int) -> bool:
    return step == settings.steps or (step < not_none(settings.steps) and step % settings.report == 0)


def _same_kernels(folder: Folder, now: bool, say: Callable[[str], None]) -> bool:
    """Whether the run goes on with native kernels if it had them, and without if it had none; if not, it says so."""
    if folder.kernels in (None, now):
        return True
    had, has = ("with", "without") if folder.kernels else ("without", "with")
    say(
        f"{folder.path} was trained {had} native kernels so far and goes on {has} them: the result is as good, but need "
        "not be the same to the last bit. EVERGRAD_NATIVE=0 does without them; a C++ compiler is needed to have them."
    )
    return False


def _say_how_it_ended(folder, progress, stopped, display, last):
    if stopped is not None:
        why = "since nobody reads its output any more (SIGPIPE)" if stopped == signal.SIGPIPE else f"by {stopped.name}"
        display.say(f"stopped {why} at step {progress.step:,}; go on with: evergrad resume {folder.path}")
        return
    from evergrad._training.plots import plot_run

    plot_run(folder)
    display.say(
        f"done: {progress.step:,} steps  {display.in_words(last)}" if last else f"done: {progress.step:,} steps"
    )
    display.say(f"results in {folder.path} (metrics.jsonl, plot.png, checkpoints)")
