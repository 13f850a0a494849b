"""The time of a step, taken again: everyone in turn, so that all see the machine in the same mood."""

import ast
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evergrad as eg
from evergrad._core.checks import refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._registry import ESTIMATORS
from evergrad._training.signals import Stop
from evergrad.arena import results
from evergrad.arena.entrants import Entrant
from evergrad.arena.trial import REPORTS, Stand, Terms


def retime(path: Path, stop: Stop, say: Callable[[str], None], *, rounds: int = 5, steps: int = 200) -> bool:
    """The time of a step of everyone in a file, taken again: all who meet at a task and a lag in turn, the median of the rounds."""
    trials = results.read(path)
    refuse_unless(bool(trials), f"{path} has no trials: make some with `evergrad arena run`.")
    meetings: dict[tuple, list[results.Row]] = {}
    for row in results.rows(trials):
        meetings.setdefault((row.task, row.lag, row.cell, row.units), []).append(row)
    for at, (meeting, group) in enumerate(meetings.items()):
        if stop.signal is not None:
            return False
        for row, cost in zip(group, _costs(group, rounds, steps), strict=True):
            for trial in row.trials:
                trial |= cost
        results.write(path, trials, "retimed")
        say(f"[{at + 1}/{len(meetings)}] timed {' '.join(map(str, meeting))}")
    return True


def _costs(group: list[results.Row], rounds: int, steps: int) -> list[dict[str, Any]]:
    """Milliseconds and multiply-adds of a step, by the present code."""
    stands = [_stand(row, steps) for row in group]
    states = [stand.start(0) for stand in stands]
    found: list[list[float]] = [[] for _ in group]
    for turn in range(rounds + 1):
        for at, stand in enumerate(stands):
            state, position, _, spent = stand.advance(*states[at], steps)
            states[at] = state, position
            if turn:  # the first time it is compiled
                found[at].append(1000 * spent / steps)
    work = [stand.about["multiply_adds"] for stand in stands]
    times = [round(statistics.median(each), 4) for each in found]
    return [{"milliseconds_a_step": t, "multiply_adds": w} for t, w in zip(times, work, strict=True)]


def _stand(row: results.Row, steps: int) -> Stand:
    """As it was in the trials."""
    terms = Terms(row.task, row.lag, steps * REPORTS, row.batch, row.rate, row.clip)
    return Stand(terms, Entrant(row.cell, row.units, estimator_of(row.estimator)))


def estimator_of(label: str) -> eg.Estimator:
    """From the label of a row, which is the call in Python without what is usual. Only names of the registry, and plain values."""
    call: Any = ast.parse(label, mode="eval").body
    name = call.id if isinstance(call, ast.Name) else call.func.id
    said = {} if isinstance(call, ast.Name) else {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    kinds = {entry.name: entry for entry in ESTIMATORS.values()}
    refuse_unknown("estimator", name, kinds)
    usual = {"stride": 1} if name == "TBPTT" else {}
    return kinds[name].load()(**(usual | said))
