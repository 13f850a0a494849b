"""`evergrad compare RUN…`."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained, warn
from evergrad._cli.overwriting import check_may_replace


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs of one task.", metavar="RUN...")],
    plot: Annotated[Path, typer.Option("--plot", help="Where the picture goes.")] = Path("compare.png"),
) -> None:
    """A table and a plot of several runs.

    Example: evergrad compare runs/copy runs/other --plot compare.png
    """
    with explained():
        from rich.console import Console
        from rich.text import Text

        from evergrad._core.printable import printable
        from evergrad._training.comparison import named_runs, table
        from evergrad._training.plots import plot_comparison

        found = named_runs(runs, warn)
        check_may_replace(plot, "PNG", "--plot")
        plot_comparison(found, plot)
        console = Console()
        console = console if console.is_terminal else Console(width=200)
        console.print(table(found))
        console.print(Text(printable(f"plot: {plot}")))
