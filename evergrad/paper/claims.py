"""Published numbers and claims against ours, at equal data."""

import dataclasses
from collections.abc import Callable

import numpy as np

from evergrad.paper.results import Curve, Result, value_at

YES, NO, OPEN = "reproduced", "not reproduced", "open at this budget"
NEW = "not in the paper"  # in the place of the paper's value, for what we claim ourselves


@dataclasses.dataclass(frozen=True)
class Claim:
    """`paper` and `ours` are in words, units and steps included."""

    what: str
    paper: str
    ours: str
    verdict: str

    @property
    def verdict_in_words(self) -> str:
        ours = {YES: "holds", NO: "does not hold"} if self.paper == NEW else {}
        return ours.get(self.verdict, self.verdict)


def judged(good: bool) -> str:
    return YES if good else NO


def shown(value: float, digits: int) -> str:
    """A length that is whole is shown so."""
    return f"{value:.{digits}f}".removesuffix(".0")


def between(values: list[float], digits: int) -> str:
    low, high = shown(min(values), digits), shown(max(values), digits)
    return low if low == high else f"{low}–{high}"


def spread(values: list[float], digits: int = 2) -> str:
    """The mean, and the range if there are several."""
    if not values:
        return "–"
    mean = shown(float(np.mean(values)), digits)
    return mean if len(values) == 1 else f"{mean} ({between(values, digits)}, {len(values)} seeds)"


def share(steps: int, published: int) -> str:
    """How much of the paper's training ours had, if it had less."""
    part = 100 * steps / published
    return "" if part >= 100 else f", {part:.2g} % of the paper's {published:,}"


def against_released(
    result: Result, label: str, curves: list[Curve], steps: list[int], *, higher: bool, digits: int, unit: str
) -> list[Claim]:
    """Ours beside the range of the released runs at the same steps; good is within the range or better."""
    if not curves:
        what = f"{label}: {unit} in the released runs' range, or better"
        return [Claim(what, "the released curves", "not judged: its curves were not given (--reference)", OPEN)]
    claims = []
    for step in steps:
        theirs = [v for curve in curves if (v := value_at(curve, step)) is not None]
        if not theirs:
            continue
        low, high = min(theirs), max(theirs)
        ours = result.at(label, step)
        good = ours and (np.mean(ours) >= low if higher else round(float(np.mean(ours)), digits) <= round(high, digits))
        claims.append(
            Claim(
                f"{label} at {step:,} steps: {unit} in the released runs' range, or better",
                f"{between(theirs, digits)} ({len(theirs)} released runs)",
                spread(ours, digits) if ours else f"ran to {result.reached(label):,} steps",
                judged(bool(good)) if ours else OPEN,
            )
        )
    return claims


def better(
    result: Result,
    first: str,
    second: str,
    *,
    higher: bool,
    digits: int,
    unit: str,
    said: str,
    margin: float = 0.0,
    least: float = 0.0,
    published_steps: int | None = None,
) -> Claim:
    """Whether the first line is ahead of the second at the last step that both have; `margin` lets it be as good.

    Without a margin, two that are equal so far (lengths are whole numbers), or whose seeds overlap, decide nothing; nor
    do lengths below `least`, from which on the claim is about anything.
    """
    how = f"is as good as (to {margin:g}), or better than," if margin else "is better than"
    what = f"{first} {how} {second} at equal data"
    step = min(result.reached(first), result.reached(second))
    one, two = result.at(first, step), result.at(second, step)
    if not one or not two:
        return Claim(what, said, "not run", OPEN)
    ahead = (np.mean(one) - np.mean(two)) * (1 if higher else -1)
    ours = f"{spread(one, digits)} against {spread(two, digits)} {unit} at {step:,} steps"
    ours += share(step, published_steps) if published_steps else ""
    if not margin and ahead == 0:
        return Claim(what, said, f"{ours}: equal", OPEN)
    if not margin and _overlap(one, two):
        return Claim(what, said, f"{ours}: the seeds overlap", OPEN)
    if max(np.mean(one), np.mean(two)) < least:
        return Claim(what, said, f"{ours}: a difference can show from {least:g} on", OPEN)
    return Claim(what, said, ours, judged(bool(ahead >= -margin)))


def _overlap(one: list[float], two: list[float]) -> bool:
    """Where both have several seeds."""
    return min(len(one), len(two)) > 1 and max(min(one), min(two)) <= min(max(one), max(two))


def at_the_end(
    result: Result,
    label: str,
    published: float,
    published_steps: int,
    *,
    tolerance: float,
    higher: bool,
    digits: int,
    unit: str,
    read: Callable[[], list[float]] | None = None,
    what: str = "",
) -> Claim:
    """A number published for the end of training, judged only if ours ran as long."""
    reached = result.reached(label)
    ours = result.at(label, reached) if read is None else read()
    text = f"{spread(ours, digits)} at {reached:,} steps" if ours else "not run"
    claim = f"{label} {what}after {published_steps:,} steps ({unit})"
    if not ours or reached < published_steps:
        return Claim(claim, shown(published, digits), text + (share(reached, published_steps) if ours else ""), OPEN)
    good = np.mean(ours) >= published - tolerance if higher else np.mean(ours) <= published + tolerance
    return Claim(claim, shown(published, digits), text, judged(bool(good)))
