"""Learning curves: a run's figure and loss over its steps, in small CSV files."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evergrad._core.checks import InputError
from evergrad._core.files import write_whole

FIGURE = {"copy": "length", "text": "valid_bpc"}
_DENSE, _THIN = 50_000, 10_000  # steps up to which all reports are kept, and the multiples that are kept beyond


class Curve(NamedTuple):
    """Losses are empty where nobody wrote them down."""

    steps: np.ndarray
    values: np.ndarray
    losses: np.ndarray

    def at(self, step: int) -> float | None:
        """By interpolation; None where the curve does not reach."""
        if not len(self.steps) or step > self.steps[-1] or step < self.steps[0]:
            return None
        return float(np.interp(step, self.steps, self.values))

    def last(self, step: int) -> float:
        """The figure as it was last reported; that of the first report before there was one."""
        return float(self.values[self._place(step)])

    def last_loss(self, step: int) -> float:
        return float(self.losses[self._place(step)]) if len(self.losses) else 0.0

    def _place(self, step: int) -> int:
        return max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)


def of_points(points: Iterable[tuple[int, float]], losses: Iterable[float] = ()) -> Curve:
    points = list(points)
    return Curve(np.array([s for s, _ in points], int), np.array([v for _, v in points], float), np.array(list(losses)))


def of_reports(rows: list[dict[str, Any]], task: str, steps: int) -> Curve:
    """Reports of a run up to a step that have its figure. Older versions repeated it between validations: that is left out."""
    figure, found, last = FIGURE[task], [], None
    for row in (row for row in rows if row["step"] <= steps and row.get(figure) is not None):
        if task == "copy" or row[figure] != last:
            found.append(row)
        last = row[figure]
    return of_points(((row["step"], row[figure]) for row in found), (row["loss"] for row in found))


def thinned(curve: Curve) -> Curve:
    """Every report at first, every tenth later, and the last."""
    kept = (curve.steps <= _DENSE) | (curve.steps % _THIN == 0)
    kept[-1:] = True
    return Curve(*(each[kept] for each in curve))


def write(path: Path, curve: Curve, task: str) -> None:
    rows = zip(*(each.tolist() for each in (curve.steps, curve.losses, curve.values)), strict=True)
    lines = [f"step,loss_bits,{FIGURE[task]}", *(f"{step},{loss:.5g},{value:.6g}" for step, loss, value in rows)]
    write_whole(path, "\n".join(lines) + "\n")


def read(path: Path) -> Curve:
    with path.open(encoding="utf-8") as file:
        found = [(int(row[0]), float(row[1]), float(row[2])) for row in list(csv.reader(file))[1:]]
    return of_points(((step, value) for step, _, value in found), (loss for _, loss, _ in found))


def released(folder: Path | None, name: str, *, after: int = 0) -> list[Curve]:
    """The authors' curves, one a run; none where they were not given. `after` is added to their labels of steps."""
    if folder is None or not (folder / f"{name}.csv").exists():
        return []
    path = folder / f"{name}.csv"
    try:
        with path.open(encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        runs: dict[str, list[tuple[int, float]]] = {}
        for row in found:
            runs.setdefault(row["run"], []).append((int(row["step"]) + after, float(row.get("T") or row["valid_bpc"])))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check --reference.") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise InputError(f"{path} needs the columns run, step, and T or valid_bpc, with numbers in them.") from None
    return [of_points(points) for points in runs.values()]
