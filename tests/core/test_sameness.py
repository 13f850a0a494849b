"""What was made by the same code from the same values is the same, and nothing else is."""

import functools

import jax.numpy as jnp
import optax
import pytest

from evergrad._core.sameness import Same

RATE = 1.0


def closing_over(value):
    return lambda x: x * value


def with_default(value):
    def function(x, factor=value):
        return x * factor

    return function


def reading(x):
    return x * RATE


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (optax.adam, 1e-2, 2e-2),
        (lambda b1: optax.adam(1e-2, b1=b1), 0.9, 0.8),
        (lambda end: optax.sgd(optax.linear_schedule(1.0, end, 10)), 0.0, 0.1),
        (lambda most: optax.chain(optax.clip(most), optax.sgd(0.1)), 1.0, 2.0),
        (closing_over, 1.0, 1),
        (with_default, 1.0, 2.0),
        (lambda value: closing_over(jnp.full(3, value)), 1.0, 2.0),
        (lambda value: functools.partial(with_default, value), 1.0, 2.0),
        (lambda value: {"a": [closing_over(value)]}, 1.0, 2.0),
        (lambda value: closing_over(object()) if value else closing_over(None), 0, 1),
    ],
)
def test_equal_values_are_the_same_and_others_are_not(make, one, other):
    assert Same(make(one)) == Same(make(one))
    assert hash(Same(make(one))) == hash(Same(make(one)))
    assert Same(make(one)) != Same(make(other))


def test_things_that_cannot_be_looked_into_are_the_same_as_themselves_alone():
    thing = object()
    assert Same(closing_over(thing)) == Same(closing_over(thing))
    assert Same(closing_over(object())) != Same(closing_over(object()))


def test_a_number_of_the_module_counts(monkeypatch):
    before = Same(reading)
    monkeypatch.setitem(globals(), "RATE", 2.0)
    assert before != Same(reading)


def test_a_function_inside_itself_comes_to_an_end():
    def around(depth):
        return around(depth - 1) if depth else depth

    assert Same(around) == Same(around)
