"""`evergrad lab`: estimators measured."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained
from evergrad._cli.json_option import JsonFile, check_json_file, write_json
from evergrad._cli.overwriting import check_may_replace

lab_app = typer.Typer(
    no_args_is_help=True,
    help="Measure estimators.\n\nExample: evergrad lab noise --units 16 --steps 100 --repetitions 5 --out noise",
)
_CERTIFIED = ["ok:rank=8,window=16", "ok:rank=8,window=16,mix=truncate"]
_ESTIMATORS = ["ok:rank=8,window=16", "ok:rank=8,window=0,mix=signs", "kf:copies=8", "tbptt:horizon=25"]


MaybeRun = Annotated[Path | None, typer.Argument(help="Folder of a run: its model and its data.", metavar="[RUN]")]
Task = Annotated[str, typer.Option(help="Without a RUN: copy or text, for an untrained network.")]
CellName = Annotated[str, typer.Option(help="Without a RUN: its cell.")]
Units = Annotated[int, typer.Option(help="Without a RUN: its size.", min=1)]
Length = Annotated[int, typer.Option(help="Without a RUN: length of the copy strings.", min=1)]
TextFile = Annotated[str | None, typer.Option(help="Without a RUN: the text.")]

_YOUNG = (
    "note: this network has not been trained. It looks less far back than its task asks for: what has not been learned yet has no "
    "gradient to show. Train one (evergrad train copy --out runs/copy) and measure that (evergrad lab reach runs/copy)."
)
_UNTRAINED = (
    "note: this network has not been trained. Its gradient hardly reaches back, so that all estimators look alike: for what they "
    "do where it matters, train one (evergrad train copy --out runs/copy) and measure that (evergrad lab noise runs/copy)."
)


@lab_app.callback()
def lab() -> None:
    """Measure estimators."""


@lab_app.command()
def noise(
    run: MaybeRun = None,
    task: Task = "copy",
    cell: CellName = "rhn",
    units: Units = 64,
    length: Length = 10,
    data: TextFile = None,
    estimator: Annotated[
        list[str], typer.Option(help="name:parameter=value,…; may be given several times.", metavar="NAME:...")
    ] = _ESTIMATORS,
    steps: Annotated[int, typer.Option(help="Steps with frozen weights.", min=2, max=10**8)] = 1000,
    repetitions: Annotated[int, typer.Option(help="Draws of each estimator.", min=2)] = 20,
    batch: Annotated[int, typer.Option(help="Streams.", min=1, max=2**31 - 1)] = 1,
    smallest: Annotated[float, typer.Option(help="Steps with a smaller exact gradient show no cosine.", min=0)] = 1e-4,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**32 - 1)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for noise.json and noise.png.")] = Path("noise"),
) -> None:
    """How far estimates are from the exact gradient: bias (a z-score over random directions; above 4 is hardly chance), squared error,
    cosine, the noise that a step injects into the influence (± its standard error) and the estimator's own bound on it.

    Example: evergrad lab noise --units 16 --steps 100 --repetitions 5 --estimator ok:rank=2 --estimator kf --out noise
    """
    with explained():
        _noise(run, (task, cell, units, length, data), estimator, steps, repetitions, batch, smallest, seed, out)


def _noise(run, untrained, names, steps, repetitions, batch, smallest, seed, out):
    from rich.console import Console
    from rich.text import Text

    from evergrad._core.files import write_whole
    from evergrad._core.machine import machine
    from evergrad._core.printable import printable
    from evergrad.lab import subject
    from evergrad.lab.report import noise_of
    from evergrad.lab.summary import plot, table

    estimators = {name: subject.parse_estimator(name) for name in names}
    check_may_replace(out / "noise.png", "PNG", "--out")
    check_may_replace(out / "noise.json", "JSON", "--out")
    chosen = _chosen(run, untrained, steps, batch, seed)
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    with console.status("the exact gradient") as status:
        done = dict.fromkeys(["exact", *estimators], 0)

        def told(name, more):
            done[name] += more
            said = f"{name}: {done[name]:,} of {steps:,} steps"
            status.update(said)
            if not console.is_terminal:
                print(said, file=sys.stderr, flush=True)

        rows = noise_of(chosen, estimators, repetitions=repetitions, smallest=smallest, seed=seed, told=told)
    settings = {"subject": chosen.words, "steps": steps, "repetitions": repetitions, "batch": batch}
    settings |= {"smallest": smallest, "seed": seed} | machine()
    document = {"product": "evergrad", "settings": settings, "estimators": rows}
    write_whole(out / "noise.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    plot(chosen.words, rows, out / "noise.png")
    console.print(table(f"{chosen.words}; {steps:,} steps, {repetitions} repetitions", rows))
    if run is None:
        console.print(Text(_UNTRAINED), soft_wrap=True)
    console.print(Text(printable(f"results: {out / 'noise.json'}, {out / 'noise.png'}")))


@lab_app.command()
def depth(
    run: Annotated[Path, typer.Argument(help="Folder of a run of a stack (--layers 2 or more).", metavar="RUN")],
    steps: Annotated[int, typer.Option(help="Steps with frozen weights.", min=2, max=10**8)] = 300,
    batch: Annotated[int, typer.Option(help="Streams.", min=1, max=2**31 - 1)] = 4,
    probes: Annotated[int, typer.Option(help="Random directions for each layer.", min=2, max=10**6)] = 64,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**32 - 1)] = 0,
    json_file: JsonFile = None,
) -> None:
    """What training a stack layer by layer (--depth layerwise) drops of the gradient of each layer, on a run's network and data.

    Example: evergrad lab depth runs/stack
    """
    with explained():
        check_json_file(json_file)
        _depth(run, steps, batch, probes, seed, json_file)


def _depth(run, steps, batch, probes, seed, json_file):
    import jax
    from rich.console import Console
    from rich.text import Text

    from evergrad._core.printable import printable
    from evergrad.lab import subject
    from evergrad.lab.depth import dropped

    console = Console()
    chosen = subject.of_run(run, steps=steps, batch=batch, seed=seed)
    data = chosen.data
    with console.status("carrying directions forward"):
        given = chosen.model, data.x, data.y, data.reset
        found = dropped(*given, weights=data.weight, probes=probes, key=jax.random.key(seed))
    console.print(Text(printable(f"{chosen.words}; {steps:,} steps of {batch} streams, {probes} directions a layer")))
    for layer in found:
        console.print(Text(str(layer)), soft_wrap=True)
    layers = [dataclasses.asdict(layer) for layer in found]
    write_json(json_file, {"subject": chosen.words, "steps": steps, "probes": probes, "seed": seed, "layers": layers})


@lab_app.command()
def reach(
    run: MaybeRun = None,
    task: Task = "copy",
    cell: CellName = "rhn",
    units: Units = 64,
    length: Length = 10,
    data: TextFile = None,
    steps: Annotated[
        int, typer.Option(help="Steps with frozen weights; no lag beyond them is seen.", min=4, max=10**8)
    ] = 400,
    batch: Annotated[int, typer.Option(help="Streams.", min=1, max=2**31 - 1)] = 4,
    samples: Annotated[int, typer.Option(help="Steps whose gradient is taken apart.", min=2, max=10**6)] = 32,
    probes: Annotated[
        int | None,
        typer.Option(
            help="Look at lags 1, 2, 4, … along so many random directions, for sequences too long to be kept.",
            min=2,
            max=10**6,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**32 - 1)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for reach.json and reach.png.")] = None,
) -> None:
    """How far back the gradient of a run's network looks on its data, exactly: what a horizon of so many steps would have of it.

    Example: evergrad lab reach runs/copy --out runs/copy-reach
    """
    with explained():
        _reach(run, (task, cell, units, length, data), steps, batch, samples, probes, seed, out)


def _reach(run, untrained, steps, batch, samples, probes, seed, out):
    import jax
    from rich.console import Console
    from rich.text import Text

    from evergrad._core.files import write_whole
    from evergrad._core.machine import machine
    from evergrad._core.printable import printable
    from evergrad.lab import reach
    from evergrad.lab.summary import plot_reach

    for name, kind in (("reach.png", "PNG"), ("reach.json", "JSON")) if out else ():
        check_may_replace(out / name, kind, "--out")
    console = Console()
    chosen = _chosen(run, untrained, steps, batch, seed)
    data, key = chosen.data, jax.random.key(seed)
    how = {"samples": samples} if probes is None else {"probes": probes}
    with console.status("carrying gradients back" if probes is None else "carrying directions forward"):
        found = reach(chosen.model, data.x, data.y, data.reset, weights=data.weight, key=key, **how)
    looked = f"{found.looked_at} {'gradients taken apart' if probes is None else 'directions'}"
    words = f"{chosen.words}; {looked}, {steps:,} steps of {batch} streams"
    console.print(Text(printable(words)), soft_wrap=True)
    console.print(Text(str(found)), soft_wrap=True)
    if run is None:
        console.print(Text(_YOUNG), soft_wrap=True)
    if out is None:
        return
    document = {"product": "evergrad", "subject": chosen.words, "steps": steps, "batch": batch, "probes": probes}
    document |= {"seed": seed} | machine() | found.as_json()
    write_whole(out / "reach.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    plot_reach(words, found, out / "reach.png")
    console.print(Text(printable(f"results: {out / 'reach.json'}, {out / 'reach.png'}")), soft_wrap=True)


@lab_app.command()
def probe(
    run: Annotated[Path, typer.Argument(help="Folder of a run: its model and its data.", metavar="RUN")],
    estimator: Annotated[
        list[str], typer.Option(help="name:parameter=value,…; may be given several times.", metavar="NAME:...")
    ] = _ESTIMATORS,
    steps: Annotated[int, typer.Option(help="Steps with frozen weights.", min=2, max=10**8)] = 200,
    batch: Annotated[int, typer.Option(help="Streams.", min=1, max=2**31 - 1)] = 1,
    probes: Annotated[int, typer.Option(help="Random directions.", min=2, max=10**6)] = 64,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**32 - 1)] = 0,
    json_file: JsonFile = None,
) -> None:
    """Cosine and squared error of estimators at any size, without exact RTRL: along random directions that are carried forward.

    Example: evergrad lab probe runs/copy --estimator ok:rank=8 --estimator snap1 --estimator tbptt:horizon=16
    """
    with explained():
        check_json_file(json_file)
        _probe(run, estimator, steps, batch, probes, seed, json_file)


def _probe(run, names, steps, batch, probes, seed, json_file):
    import jax
    from rich.console import Console
    from rich.text import Text

    from evergrad._core.printable import printable
    from evergrad.lab import probe, subject

    console = Console()
    estimators = {name: subject.parse_estimator(name) for name in names}
    chosen = subject.of_run(run, steps=steps, batch=batch, seed=seed)
    data, key = chosen.data, jax.random.key(seed)
    given = data.x, data.y, data.reset
    with console.status("carrying directions forward"):
        found = probe(chosen.model, estimators, *given, weights=data.weight, probes=probes, key=key)
    words = f"{chosen.words}; {steps:,} steps of {batch} streams, {probes} directions"
    console.print(Text(printable(words)), soft_wrap=True)
    for name, row in found.items():
        console.print(Text(printable(f"{name}: {row}")), soft_wrap=True)
    rows = {name: dataclasses.asdict(row) for name, row in found.items()}
    write_json(json_file, {"subject": chosen.words, "steps": steps, "probes": probes, "seed": seed, "estimators": rows})


@lab_app.command()
def certificate(
    run: Annotated[Path, typer.Argument(help="Folder of a run: its model and its data.", metavar="RUN")],
    estimator: Annotated[
        list[str], typer.Option(help="ok:parameter=value,…; may be given several times.", metavar="OK:...")
    ] = _CERTIFIED,
    steps: Annotated[int, typer.Option(help="Steps with frozen weights.", min=1, max=10**8)] = 200,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0, max=2**32 - 1)] = 0,
    json_file: JsonFile = None,
) -> None:
    """A bound on the error of OK's influence that needs no exact one, and whether it says anything on a run's network and data.

    Example: evergrad lab certificate runs/copy --estimator ok:rank=8,mix=truncate
    """
    with explained():
        check_json_file(json_file)
        _certificate(run, estimator, steps, seed, json_file)


def _certificate(run, names, steps, seed, json_file):
    import jax
    from rich.console import Console
    from rich.text import Text

    from evergrad._core.printable import printable
    from evergrad.lab import certificate, subject

    console = Console()
    estimators = {name: subject.parse_estimator(name) for name in names}
    chosen = subject.of_run(run, steps=steps, batch=1, seed=seed)
    console.print(Text(printable(f"{chosen.words}; {steps:,} steps")), soft_wrap=True)
    rows = {}
    for name, each in estimators.items():
        with console.status(name):
            found = certificate(chosen.model, each, chosen.data.x, chosen.data.reset, key=jax.random.key(seed))
        console.print(Text(printable(f"{name}: {found}")), soft_wrap=True)
        arrays = {key: getattr(found, key).tolist() for key in ("steps", "bounds", "sizes", "growth")}
        rows[name] = arrays | {"unbiased": found.unbiased, "vacuous": found.vacuous}
    write_json(json_file, {"subject": chosen.words, "steps": steps, "seed": seed, "estimators": rows})


def _chosen(run, untrained, steps, batch, seed):
    """The network of a run, or one made on the spot."""
    from evergrad.lab import subject

    if run is not None:
        return subject.of_run(run, steps=steps, batch=batch, seed=seed)
    return subject.untrained(_settings(*untrained, seed=seed), steps=steps, batch=batch)


def _settings(task, cell, units, length, data, seed):
    from evergrad._core.names import refuse_unknown
    from evergrad._training.resolve import resolve

    refuse_unknown("task", task, ("copy", "text"))
    own = {"copy": {"length": length}, "text": {"data": data}}[task]
    settings = resolve(task, {"cell": cell, "units": units, "seed": seed} | own)
    return dataclasses.replace(settings, initial=None)  # as the classes start
