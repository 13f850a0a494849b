"""Reports, one JSON object a line, and TensorBoard event files on request.

`metrics.jsonl` has nothing that depends on the clock, so that two runs with the same settings write the same bytes;
how fast it went is in `speed.jsonl`.
"""

import json
import math
import os
from typing import Any

from evergrad.checks import InputError
from evergrad.files import write_whole
from evergrad.training.folder import Folder, rows


def import_tensorboard() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs tensorboardX: install `evergrad[tensorboard]`.") from None
    return SummaryWriter


class Unwritten:
    """The reports of a process that writes none, since process 0 does: only the last is known."""

    def __init__(self, folder: Folder, step: int):
        self.last = next((row for row in reversed(rows(folder.metrics)) if row["step"] <= step), None)

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        self.last = row

    def make_durable(self) -> None: ...

    def close(self) -> None: ...


class Metrics:
    """Writes the reports of a run that goes on after `step`: later ones, of an interrupted process, are dropped."""

    def __init__(self, folder: Folder, step: int):
        for path in (folder.metrics, folder.speed):
            lines = [row for row in rows(path) if row["step"] <= step]
            write_whole(path, "".join(_line(row) for row in lines))
        self.last = next(iter(rows(folder.metrics)[-1:]), None)
        self._metrics = folder.metrics.open("a", encoding="utf-8")
        self._speed = folder.speed.open("a", encoding="utf-8")
        self._board = None
        if folder.settings.tensorboard:
            self._board = import_tensorboard()(str(folder.events), purge_step=step + 1)

    def report(self, row: dict[str, Any], speed: dict[str, Any]) -> None:
        self.last = row
        for file, content in ((self._metrics, row), (self._speed, {"step": row["step"]} | speed)):
            file.write(_line(content))
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


def _line(row: dict[str, Any]) -> str:
    return json.dumps({name: finite_or_none(value) for name, value in row.items()}, allow_nan=False) + "\n"


def finite_or_none(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
