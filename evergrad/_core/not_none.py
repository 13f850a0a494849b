"""For the type checker alone: what a reader knows of a value and its type does not say."""

from typing import TypeVar, cast

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """The value as it is, where something that was checked before says that it is not None."""
    return cast(T, value)
