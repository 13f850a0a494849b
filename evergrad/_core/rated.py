"""Optimisers and their learning rates apart, so that another rate needs no other program.

Optax multiplies by a rate in `optax.scale`, wherever in an optimiser that is: the number that it multiplies by is taken out,
and handed in again as an array when the optimiser is used. Whatever else an optimiser is made of stays in it.
"""

import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from evergrad._core.checks import is_traced
from evergrad._core.sameness import Same

_SCALE = cast(types.FunctionType, optax.scale(1.0).update).__code__
_OUT = 1.0  # stands where a rate was
_DEEPEST = 12  # of functions within functions


class Rated(eqx.Module):
    """An optimiser without its rates, and the rates."""

    form: Same = eqx.field(static=True)
    rates: tuple[Array, ...]

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """As it was given, with rates that may be traced."""
        rates = iter(self.rates)
        return _changed(self.form.value, lambda _: next(rates), 0)


def rated(optimiser: optax.GradientTransformation) -> Rated:
    found: list[float] = []

    def out(rate):
        found.append(rate)
        return _OUT

    form = _changed(optimiser, out, 0)
    return Rated(Same(form), tuple(jnp.asarray(rate) for rate in found))


def functions_in(value: Any, depth: int = 0) -> Iterator[types.FunctionType]:
    """All that an optimiser is made of."""
    if depth > _DEEPEST:
        return
    if isinstance(value, tuple):
        for each in value:
            yield from functions_in(each, depth + 1)
    elif isinstance(value, types.FunctionType):
        yield value
        for each in _contents(value):
            yield from functions_in(each, depth + 1)


def _changed(value: Any, number: Callable[[float], Any], depth: int) -> Any:
    """The same with `number(rate)` for every rate, in the order in which they are met."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, tuple):
        parts = [_changed(each, number, depth + 1) for each in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, types.FunctionType) and value.__closure__:
        old = list(_contents(value))
        rates = value.__code__ is _SCALE
        new = [number(each) if rates and _is_rate(each) else _changed(each, number, depth + 1) for each in old]
        return value if all(a is b for a, b in zip(new, old, strict=True)) else _with(value, new)
    return value


def _is_rate(value: Any) -> bool:
    return isinstance(value, float | jax.Array) and not is_traced(value)


def _contents(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing was put into it yet
            yield None


def _with(function: types.FunctionType, contents: list[Any]) -> types.FunctionType:
    """The function with other things around it."""
    cells = tuple(map(types.CellType, contents))
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
