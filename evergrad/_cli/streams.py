"""`evergrad streams`: stream learners on data."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained, leave
from evergrad._cli.json_option import write_json
from evergrad._cli.overwriting import check_may_replace

app = typer.Typer(help="Stream learners on data.", no_args_is_help=True)


@app.callback()
def streams() -> None:
    """Stream learners on data."""


@app.command()
def bench(
    data: Annotated[Path | None, typer.Option(help="Folder with respiratory/, ett/, exchange/ and elec2/.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Of one data set; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 5,
    deep_river: Annotated[
        Path, typer.Option(help="Python of an environment with deep-river; without it, it is left out.")
    ] = Path(".venv-deep-river/bin/python"),
    out: Annotated[Path, typer.Option(help="Folder for results.csv, summary.json and errors.png.")] = Path(
        "runs/streams"
    ),
    rows: Annotated[int | None, typer.Option(min=100, help="The most of a data set, for all models.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Of one model; may be given several times.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="What results.csv has already is not run again.")] = False,
) -> None:
    """Compare by progressive validation with persistence, river, rolling TBPTT and deep-river's LSTM."""
    with explained():
        _bench(data, only or [], model or [], seeds, deep_river, out, rows, resume)


@app.command()
def delays(
    data: Annotated[Path | None, typer.Option(help="Folder with respiratory/, ett/, exchange/ and elec2/.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Of one series; may be given several times.")] = None,
    at: Annotated[list[int] | None, typer.Option(min=0, max=64, help="A delay; several times. All to 60 else.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 1,
    out: Annotated[Path, typer.Option(help="The file for all ratios.")] = Path("runs/streams/delays.csv"),
) -> None:
    """The regressor's error beside persistence's when targets come late. Fails if it is above by more than 1 % anywhere."""
    with explained():
        found = _delays(data, only or [], at, seeds, out)
    if not found:
        raise typer.Exit(1)


@app.command()
def seasons(
    data: Annotated[Path, typer.Option(help="Folder with ett/.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 5,
    rows: Annotated[int, typer.Option(min=400, max=4000, help="Of the series.")] = 4000,
) -> None:
    """Forecasts of ETTh1 a day ahead beside the seasonal naive one, Holt–Winters and SNARIMAX."""
    with explained():
        import rich

        from evergrad.bench.streams import seasons as daily

        found = []
        for row in daily.rows(data, seeds, rows):
            rich.print(f"{row.model}, seed {row.seed}: {row.all_steps:.4f}, 24 ahead {row.last_step:.4f}")
            found.append(row)
        rich.print(daily.table(found))


@app.command()
def labels(
    data: Annotated[Path | None, typer.Option(help="Folder with elec2/; without it Elec2 is left out.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Of one data set; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 5,
    rows: Annotated[int, typer.Option(min=100, max=20000, help="The most of a data set.")] = 20000,
) -> None:
    """The classifier beside river's logistic regression: errors and log loss."""
    with explained():
        import rich

        from evergrad.bench.streams import labels as comparison

        found = []
        for row in comparison.rows(data, only or [], seeds, rows):
            rich.print(
                f"{row.stream}: {row.model}, seed {row.seed}: {row.wrong:.4f} wrong, log loss {row.log_loss:.4f}"
            )
            found.append(row)
        rich.print(comparison.table(found))


def _delays(data, only, at, seeds, out):
    import rich

    from evergrad.bench.streams import delays as late

    check_may_replace(out, "CSV", "--out")
    found = []
    for row in late.rows(data, only, at or list(late.DELAYS), seeds):
        rich.print(f"{row.series}, {row.delay} late, seed {row.seed}: {row.ours:.5g}, {row.ratio:.4f} of persistence")
        found.append(row)
    out.parent.mkdir(parents=True, exist_ok=True)
    late.write_csv(found, out)
    rich.print(late.table(found))
    return all(row.ratio <= late.ALLOWED for row in found)


def _bench(data, only, models, seeds, deep_river, out, rows, resume):
    import rich

    from evergrad._core.machine import processor
    from evergrad.bench.streams import bench as comparison, sets

    chosen = [stream.beginning(rows) for stream in sets.streams(data, only)]
    for name, kind in (("results.csv", "CSV"), ("summary.json", "JSON"), ("errors.png", "PNG")):
        check_may_replace(out / name, kind, "--out")
    results = comparison.read_csv(out / "results.csv") if resume else []
    done, failure = {(each.stream, each.model, each.seed) for each in results}, None

    def wanted(stream, model, seed):
        return (stream, model, seed) not in done and (not models or model in models)

    try:
        for stream in chosen:
            for result in comparison.compare(stream, seeds, wanted):
                _note(result, results, out)
        if deep_river.exists():
            for result in comparison.compare_deep_river(chosen, seeds, deep_river.absolute(), wanted):
                _note(result, results, out)
        else:
            rich.print(f"[yellow]deep-river is left out: there is no {deep_river}. `make bench-streams` makes it.")
    except comparison.FailedRival as error:
        failure = error
    _write(results, out, {"seeds": seeds, "processor": processor()})
    if failure is not None:
        leave(str(failure), 1)


def _note(result, results, out):
    """On the disk as soon as it is known, so that `--resume` can go on from there."""
    import rich

    from evergrad.bench.streams import bench as comparison

    rich.print(f"{result.stream}: {result.model}, seed {result.seed}: {result.error:.4f}, {result.median_ms:.3f} ms")
    results.append(result)
    comparison.write_csv(results, out / "results.csv")


def _write(results, out, settings):
    import rich

    from evergrad.bench.streams import bench as comparison, report, sets

    rows = comparison.summary(results)
    rows.sort(key=lambda row: sets.NAMES.index(str(row["stream"])))
    write_json(out / "summary.json", {"settings": settings, "rows": rows})
    report.plot(rows, out / "errors.png")
    rich.print(report.table(rows))
    rich.print(settings)
