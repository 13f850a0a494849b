"""The command line: a thin door. Commands import what they need when they run, so that `--help` is quick."""

import typer

from evergrad.cli.bench import app as bench_app, peers
from evergrad.cli.bench_scale import scale
from evergrad.cli.compare import compare
from evergrad.cli.demo import demo
from evergrad.cli.evaluate import evaluate
from evergrad.cli.export import export
from evergrad.cli.import_model import import_app
from evergrad.cli.info import info
from evergrad.cli.lab import lab_app
from evergrad.cli.paper import paper_app
from evergrad.cli.plan import plan
from evergrad.cli.resume import resume
from evergrad.cli.sample import sample
from evergrad.cli.streams import app as streams_app
from evergrad.cli.train import train_app

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train recurrent networks online, with gradients that reach back to the beginning.\n\n"
    "Example: evergrad train copy --units 32 --steps 2000 --out runs/first",
)
app.add_typer(train_app, name="train")
app.add_typer(import_app, name="import")
app.add_typer(streams_app, name="streams")
app.add_typer(lab_app, name="lab")
app.add_typer(paper_app, name="paper")
bench_app.command()(peers)
bench_app.command()(scale)
app.add_typer(bench_app, name="bench")
for command in (demo, resume, evaluate, sample, compare, info, export, plan):
    app.command()(command)


def main() -> None:
    app()
