"""The benchmark as a table and as JSON."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from evergrad._core.machine import machine
from evergrad.bench.growth import TOLERANCE, Fit
from evergrad.bench.row import Row


def tables(rows: list[Row], fits: list[Fit]) -> list[Table]:
    return [goals_table(rows), times_table(rows), *([growth_table(fits)] if fits else [])]


def goals_table(rows: Iterable[Row]) -> Table:
    table = Table(title="Speed", title_justify="left")
    for name in ("goal", "what", "measured", "wanted", ""):
        table.add_column(name, justify="right" if name in ("measured", "wanted") else "left")
    for row in rows:
        wanted = "" if row.bound is None else f"{'≥' if row.at_least else '≤'} {row.bound:g} {row.unit}"
        table.add_row(row.number, row.what, f"{row.measured:.3g} {row.unit}", wanted, _verdict(row.passed))
    return table


def times_table(rows: Iterable[Row]) -> Table:
    table = Table("at", "milliseconds a step", title="Times behind them", title_justify="left")
    for row in rows:
        if row.milliseconds:
            each = "\n".join(f"{name}: {value:.3g}" for name, value in row.milliseconds.items())
            table.add_row(row.what.split(":")[0], each)
    return table


def growth_table(fits: Iterable[Fit]) -> Table:
    table = Table(title=f"Growth: exponents, wanted within {TOLERANCE}", title_justify="left")
    for name in ("estimator", "of", "in", "table", "fitted", "", "measured"):
        table.add_column(name, justify="right" if name in ("table", "fitted") else "left")
    for fit in fits:
        scale, unit = (1e3, "ms") if fit.what == "time" else (1e-6, "MB")
        points = ", ".join(f"{at}: {value * scale:.3g}" for at, value in fit.points.items()) + f" {unit}"
        table.add_row(
            fit.name, fit.what, fit.over, f"{fit.expected:.3g}", f"{fit.fitted:.2f}", _verdict(fit.passed), points
        )
    return table


def _verdict(passed: bool | None) -> str:
    return "" if passed is None else "[green]pass" if passed else "[red]fail"


def as_json(rows: Iterable[Row], fits: Iterable[Fit], **about: Any) -> dict[str, Any]:
    def plain(thing):
        return dataclasses.asdict(thing) | {"passed": thing.passed}

    return {"about": machine() | about, "goals": [*map(plain, rows)], "growth": [*map(plain, fits)]}
