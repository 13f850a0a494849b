"""`evergrad info RUN`."""

from evergrad._cli.errors import explained, warn
from evergrad._cli.resume import Run


def info(run: Run) -> None:
    """What a run is and how far it has come.

    Example: evergrad info runs/copy
    """
    with explained():
        import dataclasses

        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from evergrad._core.printable import printable
        from evergrad._training.checkpoint import Checkpoints
        from evergrad._training.folder import open_run
        from evergrad._training.reports import newest, rows

        folder = open_run(run)
        reports = rows(folder.metrics, warn)
        last = newest(reports) or {}
        measured = {name: row["step"] for row in reports for name in row}  # a validation is rarer than a report
        saved = Checkpoints(folder.checkpoints, read_only=True).steps() if folder.checkpoints.is_dir() else []
        table = Table(show_header=False)
        table.add_row("state", "running" if folder.is_locked() else "not running")
        table.add_row("steps", f"{last.get('step', 0):,} reported of {folder.settings.steps:,}")
        table.add_row("checkpoints", ", ".join(f"{step:,}" for step in saved) or "none yet")
        table.add_section()
        table.add_row(Text("reached", style="bold"), f"at step {last['step']:,}" if last else "nothing reported yet")
        for name, value in last.items():
            if name != "step":
                earlier = "" if measured[name] == last["step"] else f" (at step {measured[name]:,})"
                table.add_row(*(Text(printable(part)) for part in (name, _shown(value) + earlier)))
        table.add_section()
        table.add_row(Text("set", style="bold"), "when the run was made, or resumed")
        for name, value in dataclasses.asdict(folder.settings).items():
            if value is not None:
                table.add_row(name, Text(printable(_shown(value))))
        for place, digest in folder.fingerprints.items():
            table.add_row(Text(printable(place)), f"sha256 {digest[:16]}…")
        console = Console()
        console.print(
            Text(printable(str(run))), soft_wrap=True
        )  # a title would be broken into lines of the table's width
        console.print(table)


def _shown(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
