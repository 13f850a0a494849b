"""Published numbers and claims against ours, and the one function that gives verdicts."""

import dataclasses
import math
from typing import cast

import numpy as np

from evergrad._core.not_none import not_none
from evergrad.paper.results import Trace

YES, NO, OPEN = "reproduced", "not reproduced", "open"
NEW = "not in the paper"  # in the place of the paper's value, for what we claim ourselves
JUDGED = 0.1  # of the paper's training; below it nothing about the end of training is judged
LATE = 3  # seeds that it takes to call a curve late


@dataclasses.dataclass(frozen=True)
class Unit:
    """What a figure is measured in, and whether more of it is better."""

    name: str
    higher: bool
    digits: int

    def shown(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def ahead(self, one: float, two: float) -> float:
        """How much better the first is, as it is shown."""
        return (round(one, self.digits) - round(two, self.digits)) * (1 if self.higher else -1)


LENGTH, BITS = Unit("symbols", True, 0), Unit("bits per character", False, 2)


@dataclasses.dataclass(frozen=True)
class Claim:
    """`paper` and `ours` are in words, units and steps included.

    `figure` is where the paper has it, `share` how much of its training ours had; `plain` is the claim as a clause, for the
    one that a figure is about.
    """

    what: str
    paper: str
    ours: str
    verdict: str
    figure: str = ""
    share: float | None = None
    plain: str = ""

    @property
    def verdict_in_words(self) -> str:
        ours = {YES: "holds", NO: "does not hold"} if self.paper == NEW else {}
        return ours.get(self.verdict, self.verdict)


def verdict(
    difference: float, *, least: float = 0.0, most: float = math.inf, share: float = 1.0, overlap: bool = False
) -> str:
    """Of a difference, positive where it is in the claim's favour: whether it is from `least` to `most`.

    Open where the training was too short, where the seeds of both overlap, or where a claim to be better (`least` 0) meets
    two that are equal.
    """
    if math.isnan(difference) or share < JUDGED or overlap or (least == 0 and difference == 0):
        return OPEN
    return YES if least <= round(difference, 9) <= most else NO


def fact(good: bool) -> str:
    """Of what training has no part in."""
    return verdict(1.0 if good else -1.0)


def standing(difference: float) -> str:
    return "so far: " + ("level" if difference == 0 else "ahead" if difference > 0 else "behind")


def between(values: list[float], unit: Unit) -> str:
    low, high = unit.shown(min(values)), unit.shown(max(values))
    return low if low == high else f"{low}–{high}"


def spread(values: list[float], unit: Unit) -> str:
    """The mean, and the range if there are several."""
    mean = unit.shown(cast(float, np.mean(values)))
    return mean if len(values) == 1 else f"{mean} ({between(values, unit)}, {len(values)} seeds)"


def better(
    first: Trace | None,
    second: Trace | None,
    *,
    unit: Unit,
    said: str,
    budget: int,
    names: tuple[str, str] = ("", ""),
    as_good: float = 0.0,
    by: float = 0.0,
    smallest: float = 0.0,
    early: int | None = None,
    figure: str = "",
    plain: str = "",
) -> Claim:
    """Whether the first line is ahead of the second at the last step that both have.

    With `as_good` it may be behind by so much, with `by` it must be ahead by so much. Figures below `smallest` decide
    nothing: from there on the claim is about anything. A claim about the first `early` steps is judged there, or by as much of
    them. `names` stand for lines that were not run.
    """
    one_name, two_name = (trace.name if trace else name for trace, name in zip((first, second), names, strict=True))
    needs = f" by {by:g} or more" if by else ""
    how = f"is as good as (to {as_good:g}), or better than," if as_good else f"is better{needs} than"
    what = f"{one_name} {how} {two_name} " + (f"within {early:,} steps" if early else "at equal data")
    step = min(first.reached, second.reached) if first and second else 0
    step = min(step, early) if early else step
    one, two = (trace.at(step) if trace else [] for trace in (first, second))
    if not one or not two:
        return Claim(what, said, "not run", OPEN, figure, 0.0, plain)
    means = cast(float, np.mean(one)), cast(float, np.mean(two))
    ahead, share = unit.ahead(*means), step / budget
    small = max(means) < smallest
    overlap = not as_good and _overlap(one, two)
    enough = 0.0 if small else step / (early or budget)
    found = verdict(ahead, least=by - as_good, share=enough, overlap=overlap)
    ours = f"{spread(one, unit)} against {spread(two, unit)} {unit.name} at {step:,} steps"
    why = [f"a difference can show from {smallest:g} on"] if small else []
    why += ["the seeds overlap"] if overlap else []
    why += [standing(ahead)] if found == OPEN else []
    return Claim(what, said, "; ".join([ours, *why]), found, figure, share, plain)


def _overlap(one: list[float], two: list[float]) -> bool:
    """Where there are several seeds of one of them at least; two that are equal are no overlap but equal."""
    return len(one) + len(two) > 2 and max(min(one), min(two)) <= min(max(one), max(two))


def at_the_end(
    trace: Trace | None,
    published: float,
    *,
    unit: Unit,
    budget: int,
    tolerance: float,
    both_sides: bool,
    name: str = "",
    part: str = "",
    values: list[float] | None = None,
    figure: str = "",
) -> Claim:
    """A number published for the end of training, judged only if ours had as much; `values` (and which `part` of the
    data they are of) where they are not the curve's.

    A baseline is judged on both sides: one that is better than published was not reproduced either.
    """
    label = (trace.name if trace else name) + (f", {part}" if part else "")
    what, said = f"{label}: {unit.name} after {budget:,} steps (to {tolerance:g})", unit.shown(published)
    reached = trace.reached if trace else 0
    ours = (trace.at(reached) if trace else []) if values is None else values
    if not ours:
        return Claim(what, said, "not run", OPEN, figure, 0.0)
    ahead, share = unit.ahead(cast(float, np.mean(ours)), published), reached / budget
    full = share if share >= 1 else 0.0
    most = tolerance if both_sides else math.inf
    found = verdict(ahead, least=-tolerance, most=most, share=full)
    text = f"{spread(ours, unit)} at {reached:,} steps"
    text += f"; better than published by {ahead:g}" if found == NO and ahead > 0 else ""
    return Claim(what, said, text, found, figure, share)


def against_released(
    trace: Trace | None, theirs: Trace | None, *, unit: Unit, budget: int, name: str, figure: str
) -> Claim:
    """Ours beside the range of the released runs at the last step that both have; good is within the range or better.

    Late is said of `LATE` seeds or more; with fewer it is open.
    """
    what, said = f"{trace.name if trace else name}: in the released runs' range, or better", "the released curves"
    if theirs is None:
        return Claim(what, said, "not judged: its curves were not given (--reference)", OPEN, figure, 0.0)
    steps = [int(s) for s in theirs.curves[0].steps if trace and trace.at(int(s))]
    if not steps:
        return Claim(what, said, "not run so far", OPEN, figure, 0.0)
    step = steps[-1]
    ours, range_ = not_none(trace).at(step), theirs.at(step)
    worst = min(range_) if unit.higher else max(range_)
    ahead, share = unit.ahead(cast(float, np.mean(ours)), worst), step / budget
    few = ahead < 0 and len(ours) < LATE
    found = verdict(ahead, least=-1e-9, share=0.0 if few else share)
    text = f"{spread(ours, unit)} at {step:,} steps"
    text += "; so far: " + ("in the range or better" if ahead >= 0 else "behind") if found == OPEN else ""
    text += f"; fewer than {LATE} seeds, so it is not called late" if few else ""
    return Claim(what, f"{between(range_, unit)} ({len(range_)} released runs)", text, found, figure, share)
