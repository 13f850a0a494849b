"""`evergrad plan`: what a choice of estimator costs, before starting."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from evergrad._cli.errors import explained
from evergrad._cli.json_option import JsonFile, check_json_file, write_json
from evergrad._registry import CELLS, ESTIMATORS, name_of


def plan(
    cell: Annotated[str, typer.Option(help=f"Recurrent cell. One of {', '.join(CELLS)}.")] = "rhn",
    units: Annotated[int, typer.Option(help="Size of the hidden state.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of such cells, one on top of the other.")] = 1,
    inputs: Annotated[int, typer.Option(help="Numbers, or symbols, that are read at a step.")] = 4,
    outputs: Annotated[
        int | None, typer.Option(help="Numbers, or symbols, that are predicted.", show_default="the inputs")
    ] = None,
    batch: Annotated[int, typer.Option(help="Streams learned from at once.")] = 16,
    memory: Annotated[
        str | None, typer.Option(help="Memory that may be used, such as 8GB.", show_default="no limit")
    ] = None,
    time_per_step: Annotated[
        str | None, typer.Option(help="Time that a step may take, such as 5ms.", show_default="no limit")
    ] = None,
    reach: Annotated[
        Path | None,
        typer.Option(
            help="A reach.json of `evergrad lab reach --out`: whether a horizon would do is then known.", metavar="FILE"
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Predict bytes, multiply-adds and time of a training step for every estimator, and recommend one.

    With a budget, each estimator is given the largest rank and window that fit; without one, usual ones.
    Example: evergrad plan --cell rhn --units 256 --inputs 50 --batch 32 --memory 8GB
    """
    with explained():
        check_json_file(json_file)
        from rich import box
        from rich.console import Console
        from rich.table import Table

        import evergrad as eg
        from evergrad._cells.stack import layered
        from evergrad._core.names import refuse_unknown

        refuse_unknown("cell", cell, CELLS)
        budget = {"memory": _quantity(memory, _BYTES, "--memory", "8GB")}
        budget |= {"seconds": _quantity(time_per_step, _SECONDS, "--time-per-step", "5ms")}
        known = None if reach is None else _read_reach(reach)
        budget |= {"reach": known and known.advised}
        _check_sizes(units=units, inputs=inputs, outputs=outputs or 1, batch=batch, layers=layers)

        def make_cell(key):
            return layered(CELLS[cell].load(), layers, inputs, units, key=key)

        found = _without_memory(make_cell, batch, outputs, budget)
        several = f"{layers} x " if layers > 1 else ""
        about = f"{several}{CELLS[cell].name}, {units} units, {inputs} inputs, {batch} streams"
        table = Table(title=about, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name in ("estimator", "bias", "memory", "mult-adds", "step", "fits"):
            table.add_column(name, justify="left" if name in ("estimator", "bias", "fits") else "right", no_wrap=True)
        for option in found.options:
            chosen = found.recommended is option
            table.add_row(
                _name(option.estimator),
                option.bias,
                _shown(option.bytes, _BYTES),
                f"{option.multiply_adds:.2g}",
                _shown(option.seconds, _SECONDS),
                "yes" if option.fits else "no",
                style="bold" if chosen else "" if option.fits else "dim",
            )
        console = Console()
        console.print(table)
        if found.recommended is not None:
            console.print(f"Recommended: {_name(found.recommended.estimator)}: {found.why}", highlight=False)
        if known is not None:
            console.print(f"By {reach}: {known}", markup=False, highlight=False, soft_wrap=True)
        write_json(json_file, _as_json(found))
        if found.recommended is None:
            raise eg.InputError(found.why)


def _read_reach(path: Path) -> Any:
    from evergrad.lab.reached import read

    return read(path)


def _check_sizes(**sizes: int) -> None:
    """Refuses what no machine could hold, and what would take long even to look at."""
    from evergrad._core.checks import refuse_unless

    for name, size in sizes.items():
        most = _MOST_LAYERS if name == "layers" else _LARGEST
        refuse_unless(size <= most, f"--{name} {size}: more than {most:,} cannot be planned for.")
    weights = sizes["units"] * (sizes["units"] + sizes["inputs"])
    refuse_unless(
        weights <= _MOST_WEIGHTS,
        f"--units {sizes['units']} --inputs {sizes['inputs']}: {weights:,} weights a gate cannot be planned for, only up "
        f"to {_MOST_WEIGHTS:,}.",
    )


def _without_memory(make_cell: Callable[[Any], Any], batch: int, outputs: int | None, budget: dict[str, Any]) -> Any:
    """The plan for a cell that is never made: only its shapes are looked at."""
    import equinox as eqx
    import jax

    import evergrad as eg
    from evergrad._core.planner import measured_rates

    found, rates = [], measured_rates()

    def look(key):
        found.append(eg.plan(make_cell(key), batch=batch, outputs=outputs, rates=rates, **budget))

    eqx.filter_eval_shape(look, jax.random.key(0))
    return found[0]


_LARGEST, _MOST_WEIGHTS, _MOST_LAYERS = 1_000_000, 200_000_000, 64
_BYTES = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def _quantity(text: str | None, units: dict[str, float], flag: str, example: str) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Zµ]+)\s*", text)
    if match is None or match[2] not in units:
        from evergrad._core.checks import InputError

        raise InputError(f"{flag} {text}: write a number and a unit ({', '.join(units)}), such as {example}.")
    return float(match[1]) * units[match[2]]


def _shown(value: float, units: dict[str, float]) -> str:
    names = [name for name in units if name not in ("KB", "us", "KiB", "MiB", "GiB")]
    name = [name for name in names if value >= units[name]][-1:] or names[:1]
    return f"{value / units[name[0]]:.3g} {name[0]}"


def _name(estimator) -> str:
    """With what can be chosen by name, and without what is so by default and says little about the cost."""
    kind = type(estimator)
    name = name_of(ESTIMATORS, kind)
    if name is None:
        return repr(estimator)
    chosen = {parameter: getattr(estimator, parameter) for parameter in ESTIMATORS[name].parameters}
    silent = {"mix": "sampling", "scales": "rows"}
    said = (f"{k}={v!r}" for k, v in chosen.items() if v is not None and silent.get(k) != v)
    return f"{kind.__name__}({', '.join(said)})"


def _as_json(found) -> dict:
    rows = [
        {
            "estimator": repr(o.estimator),
            "bias": o.bias,
            "bytes": o.bytes,
            "multiply_adds": o.multiply_adds,
            "seconds": o.seconds,
            "fits": o.fits,
        }
        for o in found.options
    ]
    best = found.recommended and repr(found.recommended.estimator)
    return {"options": rows, "recommended": best, "why": found.why}
