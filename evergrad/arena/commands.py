"""What `evergrad arena` does."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.not_none import not_none
from evergrad._training.signals import Stop
from evergrad.arena import results
from evergrad.arena.budgets import Wanted
from evergrad.arena.entrants import Entrant
from evergrad.arena.page import write_page
from evergrad.arena.trial import Stand, Terms, initial_of
from evergrad.paper.plan import Stopped
from evergrad.paper.record import commit


def run(want: Wanted, out: Path, stop: Stop, say: Callable[[str], None]) -> bool:
    """Every trial that is not there yet; the JSON is written after each. False if a signal stopped it."""
    path = out / results.FILE
    trials = results.read(path)
    known = {results.key(trial) for trial in trials}
    stands = list(want.stands())
    refuse_unless(bool(stands), "nothing to try: none of these cells can be used with any of these estimators.")
    progress = _Progress(len(stands) * len(want.seeds), say)

    def check():
        if stop.signal is not None:
            raise Stopped

    try:
        for terms, entrant in stands:
            left = [seed for seed in want.seeds if results.key(_about(terms, entrant, seed)) not in known]
            progress.skip(len(want.seeds) - len(left))
            stand = Stand(terms, entrant) if left else None
            for seed in left:
                trial = dataclasses.asdict(terms) | not_none(stand).about | not_none(stand).trial(seed, check)
                trials.append(trial | {"commit": commit()})
                results.write(path, trials, want.budget)
                progress.told(trial)
    except Stopped:
        return False
    return True


def _about(terms: Terms, entrant: Entrant, seed: int) -> dict[str, Any]:
    """What a trial will be known by."""
    who = {"cell": entrant.cell, "units": entrant.units, "estimator": entrant.label, "seed": seed}
    return dataclasses.asdict(terms) | who | {"initial": initial_of(terms.made(), entrant.cell)}


class _Progress:
    """A line for every trial, with how many are left and about how long they will take."""

    def __init__(self, total: int, say: Callable[[str], None]):
        self._left, self._total, self._say = total, total, say
        self._began, self._done = time.monotonic(), 0

    def skip(self, count: int) -> None:
        self._left -= count

    def told(self, trial: dict[str, Any]) -> None:
        self._left -= 1
        self._done += 1
        each = (time.monotonic() - self._began) / self._done
        spent = trial["milliseconds_a_step"]
        figure = _figure(trial)
        clock = "" if spent is None else f", {spent:.3g} ms a step"
        self._say(
            f"[{self._total - self._left}/{self._total}] {trial['task']} {trial['lag']}, {trial['cell']} {trial['units']}, "
            f"{trial['estimator']}, seed {trial['seed']}: {figure}{clock}; about {self._left * each / 60:.1f} min left"
        )


def _figure(trial: dict[str, Any]) -> str:
    if trial["diverged"]:
        return "diverged"
    return "nothing scored" if trial["error"] is None else f"error {trial['error']:.3f}"


def report(paths: Sequence[Path], out: Path) -> Path:
    """The page of the trials of these files, all in one."""
    return write_page(trials_of(paths), out)


def trials_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Of these files, all in one."""
    trials = [trial for path in paths for trial in results.read(path)]
    if not trials:
        raise InputError(f"no trials in {', '.join(map(str, paths))}: make some with `evergrad arena run`.")
    return trials
