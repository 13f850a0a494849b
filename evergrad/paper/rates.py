"""The paper's choice of a learning rate: each of four for a while with one seed, then on with the best."""

import dataclasses
import math

from evergrad.paper.curves import Curve
from evergrad.paper.setup import RATES

HIGHER = {"copy": True, "text": False}  # whether more of the figure is better


@dataclasses.dataclass(frozen=True)
class Choice:
    """Of rates at the last step that all have; figures there. `agrees`: the same one wins at half of the steps.

    `before` is the choice among more rates at fewer steps, after which some were given up.
    """

    rate: float
    steps: int
    figures: dict[float, float]
    agrees: bool
    tied: bool
    before: "Choice | None" = None

    @property
    def edge(self) -> bool:
        """Whether a rate beyond the paper's four might be better still."""
        return len(self.figures) > 1 and self.rate in (max(RATES), min(RATES))

    @property
    def first(self) -> "Choice":
        """Among all that were tried."""
        return self if self.before is None else self.before.first

    def compared(self, rate: float) -> tuple[float, int] | None:
        """A rate's figure at the last step at which it was compared, and that step."""
        if rate in self.figures:
            return self.figures[rate], self.steps
        return self.before and self.before.compared(rate)

    def in_words(self) -> str:
        if len(self.figures) == 1:
            return f"{rate_in_words(self.rate)}, the only one tried"
        said = [f"{rate_in_words(self.rate)} of {len(self.figures)} rates at {self.steps:,} steps"]
        said += ["by the loss, the figures being equal"] if self.tied else []
        said += ["the edge of the paper's grid"] if self.edge else []
        said += [
            "as at half of the steps" if self.agrees else "another wins at half of the steps, so it is not settled"
        ]
        if (first := self.first) is not self:
            said.append(f"after {rate_in_words(first.rate)} of {len(first.figures)} at {first.steps:,}")
        return ", ".join(said)


def rate_in_words(rate: float) -> str:
    return f"10^{math.log10(rate):.3g}"


def choose(curves: dict[float, Curve], task: str) -> Choice | None:
    """The best rate at the last step that all have; then, if it goes on and has rivals that do, again among these.

    A rate that wins a short search can be too large for long training, so the last of these choices counts.
    """
    curves = {rate: curve for rate, curve in curves.items() if len(curve.steps)}
    found = None
    while curves:
        found = _chosen(curves, task, found)
        curves = {rate: curve for rate, curve in curves.items() if curve.steps[-1] > found.steps}
        if found.rate not in curves or len(curves) < 2:
            break
    return found


def _chosen(curves, task, before):
    """Of two that are as good, the one with the lower loss."""
    steps = int(min(curve.steps[-1] for curve in curves.values()))
    rate, tied = _winner(curves, steps, task)
    figures = {each: curve.last(steps) for each, curve in curves.items()}
    return Choice(rate, steps, figures, rate == _winner(curves, steps // 2, task)[0], tied, before)


def _winner(curves, step, task):
    sign = -1 if HIGHER[task] else 1
    scores = {rate: (sign * curve.last(step), curve.last_loss(step)) for rate, curve in curves.items()}
    best = min(scores, key=scores.__getitem__)
    return best, sum(figure == scores[best][0] for figure, _ in scores.values()) > 1
