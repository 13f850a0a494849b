"""When two things made by the same code from the same values are the same, so that what was compiled for one serves the other."""

import dataclasses
import functools
import types
from typing import Any

import jax
import numpy as np

from evergrad._core.checks import is_traced

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, np.dtype)
_LARGEST = 1 << 20  # bytes of an array that is compared by what is in it


class Same:
    """Holds a value; equal to another `Same` of a value that the same functions, with the same numbers, make up."""

    def __init__(self, value: Any):
        self.value = value
        self._made_of = _made_of(value, ())
        self._hash = hash(self._made_of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.value)


@dataclasses.dataclass(frozen=True)
class _Itself:
    """A thing that is the same as itself alone; held, so that nothing else comes to have its identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _made_of(value: Any, around: tuple[int, ...]) -> Any:
    """What can be compared and hashed; `around` are the things that this one is inside of."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value) if isinstance(value, float | complex) else value
    if id(value) in around:
        return "inside itself", around.index(id(value))
    around = (*around, id(value))
    if isinstance(value, types.FunctionType):
        return _of_function(value, around)
    if isinstance(value, types.MethodType):
        return "method", _made_of(value.__func__, around), _made_of(value.__self__, around)
    if isinstance(value, functools.partial):
        return "partial", *(_made_of(each, around) for each in (value.func, value.args, value.keywords))
    if isinstance(value, tuple | list):
        return type(value), *(_made_of(each, around) for each in value)
    if isinstance(value, dict):
        return type(value), *((_made_of(k, around), _made_of(v, around)) for k, v in value.items())
    if isinstance(value, np.ndarray | jax.Array) and not is_traced(value) and value.nbytes <= _LARGEST:
        return "array", str(value.dtype), value.shape, np.asarray(value).tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
        return type(value), *((name, _made_of(each, around)) for name, each in fields)
    return _Itself(value)


def _of_function(function: types.FunctionType, around: tuple[int, ...]) -> Any:
    """Its code, and the values that it closes over, has for defaults, or reads from its module."""
    code = function.__code__
    inside = [_content(cell) for cell in function.__closure__ or ()]
    read = [(name, function.__globals__[name]) for name in code.co_names if name in function.__globals__]
    plain = [(name, value) for name, value in read if isinstance(value, _PLAIN)]
    parts = (inside, function.__defaults__, function.__kwdefaults__, plain)
    return function.__module__, code, *(_made_of(part, around) for part in parts)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it yet
        return "empty"
