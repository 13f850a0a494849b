"""Command-line options made from the table of settings."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from evergrad._training.settings import default, flag, otherwise, text

RESUMED = "resume"  # in the place of a task: what is not said stays as it was


def _annotated(field: dataclasses.Field, task: str) -> Any:
    about = field.metadata
    choices = f" One of {', '.join(about['choices'])}." if about["choices"] else ""
    value = default(field, task)
    shown = otherwise(field, task) if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    shown = "as before" if task == RESUMED and about["resumable"] else shown
    names = (flag(field.name), f"--no-{flag(field.name)[2:]}") if about["kind"] is bool else (flag(field.name),)
    declaration = "/".join(names)
    option = typer.Option(
        declaration, help=text(field, task) + choices, show_default=shown or False, rich_help_panel=about["group"]
    )
    return Annotated[about["kind"] | None, option]


def with_options(options: Iterable[dataclasses.Field], task: str) -> Callable:
    """Gives a command that takes **given one option for each field, None where it was not said."""

    def decorate(command: Callable) -> Callable:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotated(f, task))
            for f in options
        ]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        command.__signature__ = inspect.Signature([*own, *made])
        command.__annotations__ = {p.name: p.annotation for p in (*own, *made)}
        return command

    return decorate
