"""`evergrad paper`: the paper's figures and tables."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from evergrad._cli.errors import explained, leave_by_signal

paper_app = typer.Typer(
    no_args_is_help=True,
    help="The paper's figures and tables, reproduced.\n\nExample: evergrad paper run lemma2 --budget quick",
)
_BUDGET = "quick (minutes), desk (hours on two cores), long (days on one) or full (the paper's size)."
Budget = Annotated[str, typer.Option(help=_BUDGET)]
Out = Annotated[Path, typer.Option(help="Folder for runs and results.")]
Reference = Annotated[Path | None, typer.Option(help="Folder with the released curves (CSV), drawn behind ours.")]


@paper_app.command("list")
def list_(
    budget: Annotated[str | None, typer.Option(help="Show what this budget trains: lines, steps and seeds.")] = None,
) -> None:
    """The experiments by name; with --budget, what they train.

    Example: evergrad paper list --budget desk
    """
    with explained():
        from rich.console import Console

        from evergrad.paper import commands

        console = Console()
        console = console if console.is_terminal else Console(width=160)
        if budget is not None:
            commands.check_budget(budget)
            console.print(commands.table_of_lines(budget))
            return
        console.print(commands.table_of_experiments())
        for name, text in commands.BUDGETS.items():
            console.print(f"--budget {name}: {text}", highlight=False)


@paper_app.command()
def run(
    names: Annotated[list[str], typer.Argument(help="Names of `evergrad paper list`, or all.", metavar="NAME...")],
    budget: Annotated[str | None, typer.Option(help=f"{_BUDGET[:-1]}; quick, and long for a --line.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with Penn Treebank's train.txt, valid.txt, test.txt; else Python's text."),
    ] = None,
    reference: Reference = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of every line, instead of the budget's.", min=1, max=10_000)
    ] = None,
    out: Out = Path("runs/paper"),
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time; as many as there are cores.", min=1, max=1024)
    ] = None,
    background: Annotated[
        bool, typer.Option("--background", help="One run at a time, on one core, at a low priority.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure-only", help="Train nothing: measure networks as far as they have come.")
    ] = False,
    line: Annotated[str | None, typer.Option(help="Train this one line of a figure, and do nothing else.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of --line: its steps.", min=1)] = None,
    rate: Annotated[str | None, typer.Option(help="Of --line: its learning rate, such as 10^-2.5.")] = None,
    seed: Annotated[int, typer.Option(help="Of --line: its seed.", min=0)] = 0,
    exported: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Folder of `evergrad paper export`: go on from its networks, with an empty influence."
        ),
    ] = None,
) -> None:
    """Train and measure. What is finished is not done again; what was interrupted goes on where it was.

    Example: evergrad paper run lemma2 --budget quick --out runs/paper

    One line: evergrad paper run fig1 --line TBPTT-50 --steps 2000000 --rate 10^-2.5 --seed 1 --background

    Its training folder is gone: add --from experiments/long
    """
    with explained():
        if line is None and (steps or rate or seed):
            from evergrad._core.checks import InputError

            raise InputError("--steps, --rate and --seed are of one line: name it by --line, or leave them out.")
        budget = budget or ("quick" if line is None else "long")
        plan_of = _Options(budget, data, seeds, out, 1 if background else jobs, background, exported)
        one = None if line is None else (line, steps, rate, seed)
        stopped = _run(names, plan_of, reference, one, measure)
    leave_by_signal(stopped)


class _Options(NamedTuple):
    budget: str
    data: Path | None
    seeds: int | None
    out: Path
    jobs: int | None
    background: bool
    exported: Path | None


def _run(names, options, reference, one, measure):
    from rich.console import Console

    from evergrad._core.machine import cores
    from evergrad._training.signals import listening
    from evergrad.paper import commands
    from evergrad.paper.plan import Plan

    names = commands.chosen(names)
    commands.check_budget(options.budget)
    commands.check_folder(options.data, "--data")
    commands.check_folder(options.exported, "--from")
    commands.check_reference(reference)
    console = Console()

    def say(text):
        return console.print(text, markup=False, highlight=False, soft_wrap=True)

    with listening() as stop:
        data = None if options.data is None else str(options.data.resolve())
        jobs = options.jobs or cores()
        where = options.background, options.exported
        plan = Plan(options.budget, options.out, data, options.seeds, jobs, stop, say, *where)
        if one is not None:
            label, steps, rate, seed = one
            line = commands.one_line(plan, names, label, steps, commands.parse_rate(rate), seed)
            done = commands.train_line(plan, line, console)
        else:
            done = commands.run(plan, names, console, training=not measure)
    if not done:
        say("stopped; the same command goes on from here")
        return stop.signal
    if one is None:
        path, _ = commands.report(options.out / "results" / options.budget, reference)
        say(f"page: {path}")
    return None


@paper_app.command()
def export(
    out: Annotated[Path, typer.Argument(help="The --out of `evergrad paper run`.")],
    to: Annotated[Path, typer.Option(help="Folder for curves, records and networks, such as experiments/long.")],
    commit: Annotated[
        str | None, typer.Option(help="The commit of runs that were not started by `evergrad paper run`.")
    ] = None,
) -> None:
    """Small files that can be committed, of all runs there are, finished or not: a curve, a record and a network each.

    `evergrad paper run --from` goes on from there, on another machine too.

    Example: evergrad paper export runs/paper --to experiments/long
    """
    with explained():
        from evergrad.paper import commands, long

        commands.check_folder(out, "OUT")
        made = long.export(out, to, commit=commit)
        for record in made:
            on = (
                "no network to go on from"
                if record["network"] is None
                else f"to be gone on with from {record['network']:,}"
            )
            print(f"{record['id']}: step {record['steps']:,}, {on}")
        print(f"{len(made)} run{'s' * (len(made) != 1)} in {to / 'curves'}")


@paper_app.command()
def report(
    budget: Budget = "quick",
    reference: Reference = None,
    out: Out = Path("runs/paper"),
    results: Annotated[
        Path | None, typer.Option(help="Folder with results, if they are not in OUT/results/BUDGET.")
    ] = None,
    long: Annotated[
        Path | None, typer.Option(help="Folder of `evergrad paper export`: longer runs, taken into the lines.")
    ] = None,
) -> None:
    """One self-contained HTML page, and PNGs, of all results there are.

    Example: evergrad paper report --budget quick --out runs/paper
    """
    with explained():
        from evergrad.paper import commands

        commands.check_budget(budget)
        commands.check_reference(reference)
        commands.check_folder(long, "--long")
        path, count = commands.report(results or out / "results" / budget, reference, long)
        print(f"{path}: {count} experiment{'s' if count > 1 else ''}")
