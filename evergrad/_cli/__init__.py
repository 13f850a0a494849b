"""The command line: a thin door. Commands import what they need when they run, so that `--help` is quick."""

import inspect
from typing import Annotated

import typer

from evergrad._cli.arena import arena_app
from evergrad._cli.bench import app as bench_app, peers
from evergrad._cli.bench_scale import scale
from evergrad._cli.compare import compare
from evergrad._cli.demo import demo
from evergrad._cli.evaluate import evaluate
from evergrad._cli.export import export
from evergrad._cli.import_model import import_app
from evergrad._cli.info import info
from evergrad._cli.lab import lab_app
from evergrad._cli.paper import paper_app
from evergrad._cli.plan import plan
from evergrad._cli.resume import resume
from evergrad._cli.sample import sample
from evergrad._cli.serve import serve
from evergrad._cli.streams import app as streams_app
from evergrad._cli.train import train_app

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(train_app, name="train")
app.add_typer(import_app, name="import")
app.add_typer(streams_app, name="streams")
app.add_typer(lab_app, name="lab")
app.add_typer(paper_app, name="paper")
app.add_typer(arena_app, name="arena")
bench_app.command()(peers)
bench_app.command()(scale)
app.add_typer(bench_app, name="bench")
for command in (demo, resume, evaluate, sample, compare, info, export, plan, serve):
    app.command()(command)


def _say_version(asked: bool) -> None:
    if asked:
        import evergrad

        typer.echo(f"evergrad {evergrad.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version and leave.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Train recurrent networks online, with gradients that reach back to the beginning.

    Example: evergrad train copy --units 32 --steps 2000 --out runs/first
    """


def _reflow(branch: typer.Typer) -> None:
    """Lets a terminal break the lines of docstrings where it ends, rather than where the source does."""
    for command in branch.registered_commands:
        paragraphs = inspect.cleandoc(command.help or inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for group in branch.registered_groups:
        if group.typer_instance is not None:
            _reflow(group.typer_instance)


_reflow(app)


def main() -> None:
    app()
