"""Cells that have more than one form under one name."""

from collections.abc import Callable
from typing import Any

import equinox as eqx


class ByForm(type(eqx.Module)):
    """A cell whose options may ask for a form that is no Kronecker cell: `form(options)` names the class that is made then.

    `eg.GRU(..., reset="before")` gives a `ResetBeforeGRU`: another class, since its gates are linear in different vectors.
    """

    form: Callable[[dict[str, Any]], Any]

    def __call__(cls, *args: Any, **options: Any) -> Any:
        chosen = cls.form(options)
        return type(eqx.Module).__call__(cls, *args, **options) if chosen is None else chosen(*args, **options)
