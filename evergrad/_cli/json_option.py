"""`--json FILE`, of all commands that measure or predict."""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from evergrad._cli.overwriting import check_may_replace

JsonFile = Annotated[Path | None, typer.Option("--json", help="File to write the figures to as well.")]


def check_json_file(path: Path | None) -> None:
    """Refuses a place that cannot be written to, or that has another's file, before anything is measured in vain."""
    from evergrad._core.checks import InputError

    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InputError(f"--json {path}: {error.strerror}. Name a file that can be written.") from None
    if path.is_dir():
        raise InputError(f"--json {path}: this is a folder. Name a file in it.")
    check_may_replace(path, "JSON", "--json")


def write_json(path: Path | None, document: dict[str, Any]) -> None:
    from evergrad._core.files import write_whole

    if path is not None:
        write_whole(path, json.dumps({"product": "evergrad"} | document, indent=1) + "\n")
