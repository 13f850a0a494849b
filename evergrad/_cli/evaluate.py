"""`evergrad evaluate RUN`."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained
from evergrad._cli.resume import Run


def evaluate(
    run: Run,
    data: Annotated[
        Path | None, typer.Option("--data", help="Other data, for runs on a text, or on a CSV or Parquet file.")
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Steps of fresh data, for tasks that make their own.", min=1, max=10**9)
    ] = 1000,
) -> None:
    """Measure a run's model as of its last checkpoint, with the weights held fixed; one JSON object is printed.

    copy: bits per symbol on fresh strings, all of the length reached. cue: the share of wrong answers to fresh questions.
    text: bits per character (with --bytes, per byte) of the valid and test text, or of --data. series: errors of forecasts
    with the final weights, on the rows it learned from or on --data. All others: the loss on fresh data, the least there
    is, and the excess over it.

    Example: evergrad evaluate runs/text
    """
    with explained():
        import json

        from evergrad._training.evaluation import evaluate
        from evergrad._training.folder import open_run

        print(json.dumps(evaluate(open_run(run), data, steps=steps), allow_nan=False))
