"""The clock: a chunk of every entrant in turn, so that all see the machine in the same mood."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from evergrad._demo.contest import Contest, Entrant


class Racer:
    """One estimator, what it has shown with every seed, and the time of its steps without that of compiling."""

    def __init__(self, contest: Contest, entrant: Entrant):
        self.contest, self.entrant = contest, entrant
        self.learner, self.seconds, self.timed = contest.learner(entrant), 0.0, 0
        self.curves: list[list[dict[str, Any]]] = []

    def start(self, seed: int) -> None:
        """The same weights for all racers with the same cell, and the same streams for all."""
        model_key, state_key, task_key = jax.random.split(jax.random.key(seed), 3)
        fresh = self.learner.init(batch=self.contest.batch, key=state_key)
        self._state = eqx.tree_at(lambda state: state.model, fresh, self.contest.model(self.entrant, model_key))
        self._position = self.contest.source.start(batch=self.contest.batch, key=task_key)
        self.curves.append([])

    def advance(self) -> None:
        chunk, compiled = self.contest.chunk, bool(self.curves[0])
        began = time.perf_counter()
        self._state, self._position, _ = self.learner.follow(self._state, self.contest.source, self._position, chunk)
        if compiled:
            self.seconds += time.perf_counter() - began
            self.timed += chunk
        done = self.steps + chunk
        report, self._position = self.contest.report(self._position, done)
        self.curves[-1].append(report)

    @property
    def steps(self) -> int:
        """Of the present seed."""
        return len(self.curves[-1]) * self.contest.chunk if self.curves else 0

    @property
    def milliseconds(self) -> float | None:
        return 1000 * self.seconds / self.timed if self.timed else None

    @property
    def finished(self) -> list[list[dict[str, Any]]]:
        return [curve for curve in self.curves if len(curve) * self.contest.chunk >= self.contest.steps]

    def result(self) -> dict[str, Any]:
        estimator = self.entrant.estimator
        return {
            "estimator": self.entrant.label,
            "updates_per_sample": float(self.entrant.updates),
            "horizon": getattr(estimator, "horizon", None),
            "stride": estimator.past.stride,
            "reach": self.entrant.reach,
            "milliseconds_a_step": self.milliseconds and round(self.milliseconds, 3),
            "seeds": [self.contest.success(curve) for curve in self.curves],
            "curves": self.curves,
        }


def race(contest: Contest, shown: Callable[[list[Racer], int], None]) -> list[Racer]:
    """All seeds, one after the other; `shown` is told after every chunk of every racer."""
    racers = [Racer(contest, entrant) for entrant in contest.entrants]
    for seed in range(contest.seeds):
        for racer in racers:
            racer.start(seed)
        shown(racers, seed)
        for _ in range(contest.steps // contest.chunk):
            for racer in racers:
                racer.advance()
                shown(racers, seed)
    return racers
