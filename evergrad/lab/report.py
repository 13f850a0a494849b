"""`evergrad lab noise`: everything about the noise of some estimators on one subject."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from evergrad._core.planner import multiply_adds
from evergrad._estimators import Estimator
from evergrad.lab.injected import injected
from evergrad.lab.noise import measure
from evergrad.lab.subject import Subject
from evergrad.lab.summary import summarise

_TAG = 0x1AB  # a model that was made of the same seed has taken the first keys of it


def noise_of(
    subject: Subject,
    estimators: Mapping[str, Estimator],
    *,
    repetitions: int,
    smallest: float = 0.0,
    seed: int = 0,
    with_injected: bool = True,
    told: Callable[[str, int], None] = lambda name, steps: None,
) -> dict[str, dict[str, Any]]:
    """For each estimator: cosine, error, bias, injected noise and its bound, cost; plain numbers, for JSON."""
    measure_key, injected_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), _TAG))
    found = measure(subject.model, estimators, subject.data, repetitions=repetitions, key=measure_key, told=told)
    rows = {}
    for name, estimator in estimators.items():
        row = summarise(found[name], smallest=smallest) | {"unbiased": estimator.unbiased}
        cell = subject.model.cell
        row["multiply_adds"] = multiply_adds(estimator, cell)
        row |= {"injected": None, "injected_error": None, "bound": None, "verdict": None}
        if with_injected and estimator.past.complete:
            fold = injected(subject.model, estimator, subject.data, key=injected_key)
            row |= {"injected": fold.measured, "injected_error": fold.error, "bound": fold.bound}
            row["verdict"] = fold.verdict()
        rows[name] = row
    return rows
