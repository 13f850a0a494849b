"""Times that can be compared: cases take turns in one process, and the median round of each counts."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

from evergrad._estimators import UORO, Estimator
from evergrad.bench.settings import Setting

Case = Callable[[], float]  # one round; returns seconds a step


def training(setting: Setting, estimator: Estimator, steps: int) -> Case:
    """Whole training steps inside `Learner.run`."""
    learner = setting.learner(estimator)
    state, data = learner.init(batch=setting.batch, key=jax.random.key(2)), setting.data(steps)

    def once():
        nonlocal state
        state, out = learner.run(state, *data)
        jax.block_until_ready(out.losses)

    return timed(once, steps)


def in_place(program: Callable[..., Any], array: Any, *others: Any, times: int) -> Case:
    """A program that rewrites its first argument, so many times in one call."""
    compiled = jax.jit(
        lambda array, *others: jax.lax.fori_loop(0, times, lambda _, a: program(a, *others), array), donate_argnums=0
    )

    def once():
        nonlocal array
        array = jax.block_until_ready(compiled(array, *others))

    return timed(once, times)


def timed(once: Callable[[], Any], steps: int) -> Case:
    once()  # compiles; and a window is full after the second
    once()

    def round_():
        start = time.perf_counter()
        once()
        return (time.perf_counter() - start) / steps

    return round_


def medians(cases: dict[str, Case], rounds: int, seen: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Seconds a step of every case; `seen` is called after each round of each."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case())
            seen()
    return {name: statistics.median(each) for name, each in times.items()}


def patient(case: Case, seconds: float) -> float:
    """Seconds a step of the median round, of three rounds at least, and of as many as make up so many `seconds` a step."""
    times = [case() for _ in range(3)]
    while sum(times) < seconds:
        times.append(case())
    return statistics.median(times)


def forward(setting: Setting, steps: int) -> Case:
    """The losses of the same model, without learning."""
    model, data = setting.learner(UORO()).model, setting.data(steps)
    losses = jax.jit(lambda xs, ys: model.losses(xs, ys))
    return timed(lambda: jax.block_until_ready(losses(*data)), steps)


def milliseconds(cases: dict[str, Case], rounds: int) -> dict[str, float]:
    """The same in milliseconds, as people read them."""
    return {name: 1e3 * seconds for name, seconds in medians(cases, rounds).items()}
