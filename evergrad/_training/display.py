"""What a run shows while it goes: a live bar on a terminal, one line a report elsewhere."""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from evergrad._core.not_none import not_none
from evergrad._core.printable import printable_lines
from evergrad._training.probing import in_words
from evergrad._training.tasks import Task


def memory_mib() -> float:
    """Resident memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:  # no /proc: the most there has been
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def device_name(mesh: jax.sharding.Mesh | None = None) -> str:
    device = jax.local_devices()[0]
    stats = device.memory_stats() or {}
    used = f", {stats['bytes_in_use'] / 2**20:.0f} MiB on it" if "bytes_in_use" in stats else ""
    many = "" if mesh is None else f"{mesh.size} x "
    return f"{many}{device.device_kind}{used}"


class Display:
    """`console` decides: a terminal gets the bar, anything else plain lines. If whoever reads them hangs up, as `head` does,
    `unread` is the signal for that, and what is still to be said goes to stderr."""

    def __init__(self, console: Console, task: Task, estimator: Any, unit: str, mesh: jax.sharding.Mesh | None = None):
        self._console, self._task, self._estimator, self._unit = console, task, str(estimator), unit
        self._progress = _progress(console) if console.is_terminal else None
        self._bar, self._mesh = None, mesh
        self.unread: signal.Signals | None = None
        console.on_broken_pipe = self._hung_up  # where Rich would end the process

    def start(self, step: int, steps: int) -> None:
        self._steps = steps
        if self._progress is not None:
            self._bar = self._progress.add_task("", total=steps, completed=step, figures="", machine="")
            self._progress.start()
        self.say(f"{self._estimator} on {device_name(self._mesh)}, steps {step:,} to {steps:,}")

    def moved(self, step: int, rate: float, loss: float | None, row: dict[str, Any] | None) -> None:
        """After every call of the compiled loop."""
        if self._progress is not None:
            parts = [f"{rate:,.0f} steps/s"] if rate else []
            parts += [] if loss is None else [f"loss {loss:.4g} {self._unit}"]
            parts += [] if row is None else [self._task.headline(row), *in_words(row)]
            machine = f"{self._estimator} · {device_name(self._mesh)} · {memory_mib():,.0f} MiB"
            self._progress.update(not_none(self._bar), completed=step, figures=" · ".join(parts), machine=machine)

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        if self._progress is None:
            rate, left = speed["steps_per_second"], self._steps - row["step"]
            loss = "–" if row["loss"] is None else f"{row['loss']:.4f}"
            self.say(
                f"step {row['step']:,}/{self._steps:,}  loss {loss} {self._unit}  "
                f"{'  '.join([self._task.headline(row), *in_words(row)])}  "
                f"{rate:,.0f} steps/s  left {_clock(left / rate if rate else 0)}  {speed['memory_mib']:,.0f} MiB"
            )

    def say(self, text: str) -> None:
        if self.unread is None:
            self._console.print(Text(printable_lines(text)), soft_wrap=True)
            return
        with contextlib.suppress(OSError):  # stderr may have gone the same way
            print(printable_lines(text), file=sys.stderr, flush=True)

    def _hung_up(self):
        self.unread = signal.SIGPIPE
        with contextlib.suppress(OSError, ValueError):  # nor may Python complain when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _progress(console):
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}\n{task.fields[machine]}", markup=False),
        console=console,
        refresh_per_second=4,
    )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
