"""`evergrad sample RUN`."""

import sys
from typing import Annotated

import typer

from evergrad._cli.errors import explained
from evergrad._cli.resume import Run


def sample(
    run: Run,
    length: Annotated[int, typer.Option(help="Symbols to write.", min=1, max=10**9)] = 500,
    temperature: Annotated[
        float, typer.Option(help="0: always the likeliest symbol; 1: as the model believes.", min=0)
    ] = 1.0,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="What the text begins with.", show_default="a newline, or the first character learned if there is none"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Let a model that was trained on text write.

    Example: evergrad sample runs/text --length 300 --temperature 0.7 --prompt "The "
    """
    with explained():
        from evergrad._core.printable import printable_lines
        from evergrad._training.evaluation import write
        from evergrad._training.folder import open_run

        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:  # what the terminal cannot show becomes a question mark
            reconfigure(errors="replace")
        text = write(open_run(run), prompt, length=length, temperature=temperature, seed=seed)
        print(printable_lines(text) if sys.stdout.isatty() else text)  # a file gets every character as it is
