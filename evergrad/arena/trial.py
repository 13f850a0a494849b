"""One trial: a task at one lag, an entrant, a seed; and the clock."""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import optax

import evergrad as eg
from evergrad._core.checks import DivergedError
from evergrad.arena.challenges import BALANCE, CHALLENGES, Made, scored
from evergrad.arena.entrants import Entrant

REPORTS = 40  # of a trial
LAST = 3  # reports whose mean is a trial's error
DONE = 0.02  # a trial ends early when its last reports are all below this: who has learned is not asked again


@dataclasses.dataclass(frozen=True)
class Terms:
    """The same for everyone who meets at a task and a lag."""

    task: str
    lag: int
    steps: int
    batch: int = 16
    rate: float = 3e-3
    clip: float = 1.0

    @property
    def report(self) -> int:
        return max(1, self.steps // REPORTS)

    def made(self) -> Made:
        return CHALLENGES[self.task].at(self.lag)


class Stand:
    """An entrant at a task and a lag; compiled once, for all seeds."""

    def __init__(self, terms: Terms, entrant: Entrant):
        self.terms, self.entrant, self.made = terms, entrant, terms.made()
        model = self._model(jax.random.key(0))
        self.about = entrant.about(model) | {"initial": initial_of(self.made, entrant.cell)}
        self._learner = eg.Learner(model, entrant.estimator, optax.adam(terms.rate), clip=terms.clip)
        self._compiled = False

    def _model(self, key):
        return self.made.model(self.entrant.cell, self.entrant.units, key)

    def start(self, seed: int) -> tuple[Any, Any]:
        """The same weights and the same streams for every entrant."""
        model_key, state_key, task_key = jax.random.split(jax.random.key(seed), 3)
        fresh = self._learner.init(batch=self.terms.batch, key=state_key)
        state = eqx.tree_at(lambda s: s.model, fresh, self._model(model_key))
        return state, self.made.source.start(batch=self.terms.batch, key=task_key)

    def advance(self, state: Any, position: Any, steps: int) -> tuple[Any, Any, Any, float]:
        """So many steps: state, position, losses, and the seconds that they took."""
        began = time.perf_counter()
        state, position, losses = self._learner.follow(state, self.made.source, position, steps, room=self.terms.report)
        return state, position, losses, time.perf_counter() - began

    def trial(self, seed: int, check: Any) -> dict[str, Any]:
        """Trains to the end of the terms, or until it is clear that all is learned. `check` may stop it by raising."""
        report, curve = self.terms.report, []
        state, position = self.start(seed)
        seconds, timed, before = 0.0, 0, 0
        while (len(curve) + 1) * report <= self.terms.steps and not _is_done(curve):
            check()
            try:
                state, position, losses, spent = self.advance(state, position, report)
            except DivergedError:
                return _result(seed, curve, report, seconds, timed, diverged=True)
            now = scored(position)
            loss = float(losses.sum()) / (now - before) if now > before else None
            curve.append(None if loss is None else round(self.made.excess(loss), 5))
            before = now
            if self._compiled:
                seconds, timed = seconds + spent, timed + report
            self._compiled = True
        return _result(seed, curve, report, seconds, timed)


def _result(seed, curve, report, seconds, timed, *, diverged=False):
    return {
        "seed": seed,
        "diverged": diverged,
        "error": None if diverged else error(curve),
        "report": report,
        "milliseconds_a_step": round(1000 * seconds / timed, 4) if timed else None,
        "curve": curve,
    }


def error(curve: list[float | None]) -> float | None:
    """The mean excess of the last reports that had anything to score."""
    last = [each for each in curve if each is not None][-LAST:]
    return round(sum(last) / len(last), 5) if last else None


def _is_done(curve: list[float | None]) -> bool:
    last = curve[-LAST:]
    return len(last) == LAST and all(each is not None and each <= DONE for each in last)


def initial_of(made: Made, cell: str) -> str | None:
    """How weights start; None where the task says that."""
    return None if cell == BALANCE else made.initial(cell)
