"""Training runs as child processes, several at a time; what is finished is left alone, what was killed is resumed."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from evergrad._core.checks import InputError
from evergrad._core.files import open_regular, write_whole
from evergrad._core.not_none import not_none
from evergrad._training.folder import open_run
from evergrad.paper.plan import Plan, Run
from evergrad.paper.record import EMPTY, note_start

_LOOK = 0.5  # seconds from one look at the children to the next
_SAY = 60.0  # seconds from line to line where there is no terminal
_DIVERGED = 3  # exit code
_LOW = 10  # the priority of a background run, as `nice` has it


class FailedRun(Exception):
    """A child ended badly; the message has the end of its log."""


def needed(plan: Plan, runs: Iterable[Run]) -> list[Run]:
    """Runs that are not finished, each once and as long as the longest that is asked for."""
    longest: dict[str, Run] = {}
    for run in runs:
        if run.id not in longest or longest[run.id].steps < run.steps:
            longest[run.id] = run
    return [run for run in longest.values() if not plan.finished(run)]


def run_all(plan: Plan, runs: Iterable[Run], console: Console, *, told: Callable[[], None] = lambda: None) -> None:
    """Brings all runs to their end; `told` after each. Raises Stopped when a signal came, with checkpoints made."""
    waiting = needed(plan, runs)
    if not waiting:
        return
    with _Watch(plan, waiting, console) as watch:
        children: dict[int, _Child] = {}
        try:
            while waiting or children:
                for slot in range(plan.jobs):
                    if slot not in children and waiting and plan.stop.signal is None:
                        run = waiting.pop(0)
                        children[slot] = _start(plan, run, slot)
                        watch.said(f"{'going on with' if children[slot].resumed else 'starting'} {run.id}")
                time.sleep(_LOOK)
                for slot, child in list(children.items()):
                    if child.process.poll() is not None:
                        del children[slot]
                        _ended(plan, child, watch)
                        told()
                watch.look([child.run for child in children.values()])
                plan.check()
        finally:
            _stop(children.values())


@dataclasses.dataclass(frozen=True)
class _Child:
    run: Run
    process: subprocess.Popen
    resumed: bool


def _start(plan, run, slot):
    path, log = plan.path(run), plan.log(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    continued = _continued(plan, run)
    resumed = path.exists()
    if resumed:
        _wait_for_another(plan, path)
        words = ["resume", str(path), "--steps", str(max(run.steps, not_none(open_run(path).settings.steps)))]
    else:
        words = [*run.arguments(), "--out", str(path)]
    note_start(plan.starts(run), plan.reached(run), **(EMPTY if continued else {}))
    with os.fdopen(open_regular(log, os.O_WRONLY | os.O_APPEND), "a") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "evergrad", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=_environment(plan),
            start_new_session=True,  # a Ctrl-C is for us, and we pass it on
        )
    _share_out(process.pid, slot, plan)
    return _Child(run, process, resumed)


def _continued(plan, run):
    """Whether the run goes on from an exported network."""
    if plan.exported is None:
        return False
    from evergrad.paper.networks import take_up

    step = take_up(plan, run)
    if step is not None:
        plan.say(f"{run.id}: on from step {step:,}, as {plan.exported} has it, with an empty influence")
    return step is not None


def _environment(plan):
    """Runs of the same settings share their compiled loop."""
    return {"JAX_COMPILATION_CACHE_DIR": str((plan.out / "compiled").absolute())} | os.environ


def _share_out(pid, slot, plan):
    """Every child its own cores, so that they do not step on each other's threads; one, and humbly, in the background."""
    with contextlib.suppress(OSError):
        if plan.background:
            os.setpriority(os.PRIO_PROCESS, pid, _LOW)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        mine = cores[-1:] if plan.background else cores[slot :: plan.jobs]
        if plan.background or 1 < plan.jobs <= len(cores):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(pid, mine)


def _wait_for_another(plan, path: Path):
    folder = open_run(path)
    if folder.is_locked():
        plan.say(f"another process is working on {path}: waiting for it")
    while folder.is_locked():
        plan.check()
        time.sleep(_LOOK)


def _ended(plan, child, watch):
    code, run = child.process.returncode, child.run
    if code == 0:
        watch.said(f"done {run.id}")
        return
    tail = "\n".join(plan.log(run).read_text(errors="replace").splitlines()[-6:])
    if code == _DIVERGED:
        write_whole(plan.diverged(run), tail + "\n")
        watch.said(f"diverged: {run.id}")
    elif code == 2:
        raise InputError(f"`evergrad {' '.join(run.arguments())}` was refused:\n{tail}")
    elif plan.stop.signal is None:
        raise FailedRun(f"{run.id} ended with code {code}; {plan.log(run)} ends with\n{tail}")


def _stop(children):
    """SIGTERM, which makes a checkpoint, and the time for it."""
    for child in children:
        child.process.terminate()
    for child in children:
        child.process.wait()


class _Watch:
    """Progress: bars on a terminal, lines elsewhere."""

    def __init__(self, plan: Plan, runs: list[Run], console: Console):
        self._plan, self._runs, self._console = plan, {run.id: run for run in runs}, console
        self._bars = _bars(console) if console.is_terminal else None
        self._tasks: dict[str, Any] = {}
        self._told = time.monotonic()

    def __enter__(self):
        total = sum(run.steps for run in self._runs.values())
        self.said(f"{len(self._runs)} runs, {total:,} steps, {self._plan.jobs} at a time")
        if self._bars is not None:
            self._all = self._bars.add_task("all", total=total)
            self._bars.start()
        return self

    def __exit__(self, *_):
        if self._bars is not None:
            self._bars.stop()

    def said(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def look(self, active: list[Run]) -> None:
        if self._bars is not None:
            self._move(active)
        elif time.monotonic() - self._told >= _SAY:
            self._told = time.monotonic()
            for run in active:
                self.said(f"{run.id}: step {self._plan.reached(run):,} of {run.steps:,}")

    def _move(self, active):
        bars = not_none(self._bars)
        for run in active:
            if run.id not in self._tasks:
                self._tasks[run.id] = bars.add_task(run.id, total=run.steps)
            bars.update(self._tasks[run.id], completed=self._plan.reached(run))
        for name in set(self._tasks) - {run.id for run in active}:
            bars.remove_task(self._tasks.pop(name))
        done = sum(min(run.steps, self._plan.reached(run)) for run in self._runs.values())
        bars.update(self._all, completed=done)


def _bars(console):
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,
    )
