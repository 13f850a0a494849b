"""`evergrad demo [cue|copy]`."""

from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained
from evergrad._cli.overwriting import check_may_replace

_TASKS = ("cue", "copy")


def demo(
    task: Annotated[str, typer.Argument(help="What to learn: cue or copy.", metavar="[cue|copy]")] = "cue",
    gap: Annotated[int | None, typer.Option(help="cue: fewest steps to the question.", show_default="80")] = None,
    gap_to: Annotated[
        int | None, typer.Option(help="cue: most steps to the question.", show_default="1.5 x --gap")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each learner.", show_default="cue: 35 x --gap-to; copy: 20000", min=1)
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds, from 0 on.", show_default="cue: 3; copy: 1", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the figures.")] = Path("runs/demo"),
) -> None:
    """See what an untruncated gradient is for: OK and TBPTT learn the same task side by side, in about two minutes.

    cue: answer a question about a cue that lies beyond all remembered steps. copy: say strings again that grow.

    Example: evergrad demo cue --gap 80 --seeds 3 --out runs/demo
    """
    with explained():
        from rich.console import Console

        from evergrad._core.checks import refuse_unless
        from evergrad._core.names import refuse_unknown
        from evergrad._demo.copy import copy_contest
        from evergrad._demo.cue import cue_contest
        from evergrad._demo.show import run_demo

        refuse_unknown("demo", task, _TASKS)
        for kind, ending in (("PNG", "png"), ("JSON", "json")):
            check_may_replace(out / f"{task}.{ending}", kind, "--out")
        if task == "cue":
            contest = cue_contest(80 if gap is None else gap, gap_to, steps, seeds or 3)
        else:
            refuse_unless(gap is None and gap_to is None, "copy has no --gap: its strings grow as they are learned.")
            contest = copy_contest(steps, seeds or 1)
        run_demo(contest, out, Console())
