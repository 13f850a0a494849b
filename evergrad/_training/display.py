"""What a run shows while it goes: one line a report, and on a terminal a live bar below them."""

import contextlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.live import Live
from rich.text import Text

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
    """`console` decides: a terminal gets a bar below the reports, anything else the reports alone. If whoever reads them hangs up,
    as `head` does, `unread` is the signal for that, and what is still to be said goes to stderr."""

    def __init__(self, console: Console, task: Task, estimator: Any, unit: str, mesh: jax.sharding.Mesh | None = None):
        self._console, self._task, self._estimator, self._unit = console, task, str(estimator), unit
        self._mesh, self._live, self._started = mesh, None, time.monotonic()
        self._step, self._steps, self._rate, self._figures = 0, 1, 0.0, ""
        self._compiled = False
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self._bar, refresh_per_second=4)
        self.unread: signal.Signals | None = None
        console.on_broken_pipe = self._hung_up  # where Rich would end the process

    def start(self, step: int, steps: int) -> None:
        self._step, self._steps, self._started = step, steps, time.monotonic()
        self.say(f"{self._estimator} on {device_name(self._mesh)}, steps {step:,} to {steps:,}")
        if self._live is not None:
            self._live.start()

    def moved(self, step: int, rate: float, loss: float | None, row: dict[str, Any] | None) -> None:
        """After every call of the compiled loop."""
        parts = [] if loss is None else [f"loss {loss:.4g} {self._unit}"]
        parts += [] if row is None else [self._task.headline(row), *in_words(row)]
        parts = [part for part in parts if part]
        self._step, self._rate, self._figures, self._compiled = step, rate, " · ".join(parts), True

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        """A line that stays; on a terminal no wider than that."""
        rate, width = speed["steps_per_second"], None if self._live is None else self._width()
        left = f"left {_clock((self._steps - row['step']) / rate)}" if rate else ""
        speeds = f"{rate:,.0f} steps/s" if rate else "", left, f"{speed['memory_mib']:,.0f} MiB"
        loss = self._loss(row["loss"], "" if width else f" {self._unit}")
        figures = "  ".join([self._task.headline(row), *in_words(row)])
        parts = [f"step {row['step']:,}/{self._steps:,}", loss, figures, *speeds]
        self.say("  ".join(fitting(parts, width, [5, 2, 1, 4, 3])))

    def _loss(self, loss: float | None, unit: str) -> str:
        return f"loss {'–' if loss is None else f'{loss:.4f}'}{unit}"

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

    def in_words(self, row: dict[str, Any]) -> str:
        """Loss and figure of a report."""
        return f"{self._loss(row['loss'], f' {self._unit}')}  {self._task.headline(row)}".rstrip()

    def stop(self) -> None:
        if self._live is not None and self._live.is_started:
            self._live.stop()

    def _width(self) -> int:
        return self._console.width - 3  # of which two for the ^C that a terminal may write behind it

    def _bar(self) -> Text:
        """Two lines: how far it is, and how well it does."""
        width, elapsed = self._width(), _clock(time.monotonic() - self._started)
        step = f"{self._step:,}/{self._steps:,}"
        if not self._compiled:
            said = [step, f"compiling {elapsed}"]
        elif self._rate:
            left = _clock((self._steps - self._step) / self._rate)
            said = [step, f"{self._rate:,.0f} steps/s", f"left {left}", elapsed]
        else:
            said = [step, elapsed]
        first = "  ".join(fitting(said, width, list(range(len(said)))[:0:-1]))
        room = min(24, width - len(first) - 2)
        bar = _drawn(self._step / self._steps, room) + "  " if room >= 4 else ""
        parts = [self._figures or "…", self._estimator, f"{memory_mib():,.0f} MiB", device_name(self._mesh)]
        second = " · ".join(fitting(parts, width, [3, 2, 1, 0], gap=3))
        return Text(f"{bar}{first}\n{second}", no_wrap=True, overflow="crop")


def fitting(parts: list[str], width: int | None, order: list[int], gap: int = 2) -> list[str]:
    """The parts that have room beside each other. In this order they are cut where a good piece remains, or else left out."""
    kept = {place: part for place, part in enumerate(parts) if part}
    for place in order:
        over = 0 if width is None else sum(map(len, kept.values())) + gap * (len(kept) - 1) - width
        if over > 0 and place in kept:
            rest = len(kept[place]) - over - 1
            kept[place] = f"{kept[place][:rest]}…" if rest >= _PIECE else ""
            kept = {place: part for place, part in kept.items() if part}
    return list(kept.values())


_PIECE = 12  # characters


def _drawn(share: float, width: int) -> str:
    done = int(width * min(1.0, share))
    return "━" * done + "─" * (width - done)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
