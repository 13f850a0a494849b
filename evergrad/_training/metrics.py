"""Reports, one JSON object a line, and TensorBoard event files on request.

`metrics.jsonl` has nothing that depends on the clock, so that two runs with the same settings write the same bytes;
how fast it went is in `speed.jsonl`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergrad._core.callbacks import summary_writer
from evergrad._core.files import open_regular, write_whole
from evergrad._training.folder import Folder
from evergrad._training.reports import line, newest, read, rows


def import_tensorboard() -> Any:
    return summary_writer("--tensorboard")


class Unwritten:
    """The reports of a process that writes none, since process 0 does: only the newest figures are known."""

    def __init__(self, folder: Folder, step: int):
        self.last = newest([row for row in rows(folder.metrics) if row["step"] <= step])

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        self.last = (self.last or {}) | row

    def make_durable(self) -> None: ...

    def close(self) -> None: ...


class Metrics:
    """Writes the reports of a run that goes on after `step`.

    Later ones, of an interrupted process, are dropped where they are made `again`, to the last bit. All other lines that
    cannot stay are set aside, and `say` hears of it.
    """

    def __init__(
        self,
        folder: Folder,
        step: int,
        *,
        again: Callable[[int], bool] = lambda step: True,
        say: Callable[[str], None] = lambda text: None,
    ):
        for path in (folder.metrics, folder.speed):
            _take_up(path, step, again, say)
        self.last = newest(rows(folder.metrics))
        self._metrics, self._speed = _appending(folder.metrics), _appending(folder.speed)
        self._board = None
        if folder.settings.tensorboard:
            self._board = import_tensorboard()(str(folder.events), purge_step=step + 1)

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        self.last = (self.last or {}) | row
        for file, content in ((self._metrics, row), (self._speed, {"step": row["step"]} | speed)):
            file.write(line(content))
            file.flush()
        if self._board is not None:
            for name, value in (row | speed).items():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, row["step"])

    def make_durable(self) -> None:
        """On the disk, so that no checkpoint is ever ahead of its reports."""
        os.fsync(self._metrics.fileno())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        self._metrics.close()
        self._speed.close()
        if self._board is not None:
            self._board.close()


def _take_up(path: Path, step: int, again: Callable[[int], bool], say: Callable[[str], None]) -> None:
    """Leaves the reports up to a step in the file."""
    found = read(path)
    late = [row for row in found.rows if row["step"] > step and not again(row["step"])]
    _set_aside(path, [text for _, text in found.unread], "could not be read", say)
    _set_aside(
        path, [line(row).encode() for row in late], f"of later than step {step:,} may not come out the same", say
    )
    write_whole(path, "".join(line(row) for row in found.rows if row["step"] <= step))


def _set_aside(path: Path, lines: list[bytes], why: str, say: Callable[[str], None]) -> None:
    if not lines:
        return
    aside = path.with_name(f"{path.stem}.aside{path.suffix}")
    with _appending(aside) as file:
        for text in lines:
            file.buffer.write(text.rstrip(b"\r\n") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    say(f"{path}: {len(lines)} of its lines {why}; kept in {aside}")


def _appending(path: Path) -> Any:
    return os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8")
