"""No function looks up a global name that its module does not have; the linters cannot tell these from shapes in annotations."""

import builtins
import dis
import importlib
import pkgutil
import types

import evergrad

APART = ("deep_river_run", "braintrace_run", "pytorch_run", "__main__")  # scripts of other environments


def modules():
    for found in pkgutil.walk_packages(evergrad.__path__, "evergrad."):
        if not found.name.endswith(APART):
            yield found.name


def missing(code: types.CodeType, known: set[str]) -> set[str]:
    """Names that code, and what is defined inside it, asks its module for in vain."""
    asked = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = [missing(const, known) for const in code.co_consts if isinstance(const, types.CodeType)]
    return (asked - known).union(*inner)


def test_no_name_is_undefined():
    found = {name: undefined(name) for name in modules()}
    assert {name: names for name, names in found.items() if names} == {}


def undefined(name):
    module = importlib.import_module(name)
    spec = module.__spec__
    code = spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None
    known = {*vars(module), *vars(builtins)}
    inner = [c for c in (code.co_consts if code else ()) if isinstance(c, types.CodeType)]
    return set().union(*(missing(c, known) for c in inner))


def test_a_planted_name_is_found():
    code = compile("def f():\n    return nowhere\n", "planted", "exec")
    assert missing(code, {*vars(builtins)}) == {"nowhere"}
