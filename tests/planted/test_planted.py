"""The list of planted errors fits the package, the tests and the page; what it finds is for `make planted` to say."""

import ast
import functools

import pytest

from tests.planted import page
from tests.planted.__main__ import ASSERTED
from tests.planted.errors import ERRORS


@functools.cache
def functions(file):
    return {node.name for node in ast.parse((page.ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{error.file}: {error.what}")
def test_an_error_can_be_planted(error):
    file, name = error.test.split("::")
    assert name.split("[")[0] in functions(file)
    source = (page.ROOT / error.path).read_text()
    assert source.count(error.right) == 1
    ast.parse(source.replace(error.right, error.wrong))


def test_every_error_was_seen_to_be_caught():
    assert page.tables(dict.fromkeys(ERRORS, "yes")) in page.PAGE.read_text()


def test_rows_are_told_apart():
    assert len({page.row(error, "yes") for error in ERRORS}) == len(ERRORS)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("FAILED tests/a.py::test_b - AssertionError: ", True),
        ("FAILED tests/a.py::test_b - assert 1 < 0.1", True),
        ("FAILED tests/a.py::test_b - Failed: DID NOT RAISE <class 'evergrad.InputError'>", True),
        ("FAILED tests/a.py::test_b - TypeError: unsupported", False),
        ("ERROR tests/a.py - ImportError", False),
    ],
)
def test_only_what_is_asserted_counts(line, counts):
    assert bool(ASSERTED.search(f"1 failed\n{line}\n")) is counts
