"""The paper's choice of a learning rate: each of four for a while with one seed, then on with the best."""

import dataclasses
import math

from evergrad.paper.curves import Curve
from evergrad.paper.setup import RATES

HIGHER = {"copy": True, "text": False}  # whether more of the figure is better


@dataclasses.dataclass(frozen=True)
class Choice:
    """Of rates at the last step that all have; figures there. `agrees`: the same one wins at half of the steps."""

    rate: float
    steps: int
    figures: dict[float, float]
    agrees: bool
    tied: bool

    @property
    def edge(self) -> bool:
        """Whether a rate beyond the paper's four might be better still."""
        return len(self.figures) > 1 and self.rate in (max(RATES), min(RATES))

    def in_words(self) -> str:
        if len(self.figures) == 1:
            return f"{rate_in_words(self.rate)}, the only one tried"
        said = [f"{rate_in_words(self.rate)} of {len(self.figures)} rates at {self.steps:,} steps"]
        said += ["by the loss, the figures being equal"] if self.tied else []
        said += ["the edge of the paper's grid"] if self.edge else []
        said += [
            "as at half of the steps" if self.agrees else "another wins at half of the steps, so it is not settled"
        ]
        return ", ".join(said)


def rate_in_words(rate: float) -> str:
    return f"10^{math.log10(rate):.3g}"


def choose(curves: dict[float, Curve], task: str) -> Choice | None:
    """The best rate at the last step that all have; of two that are as good, the one with the lower loss."""
    curves = {rate: curve for rate, curve in curves.items() if len(curve.steps)}
    if not curves:
        return None
    steps = int(min(curve.steps[-1] for curve in curves.values()))
    rate, tied = _winner(curves, steps, task)
    figures = {each: curve.last(steps) for each, curve in curves.items()}
    return Choice(rate, steps, figures, rate == _winner(curves, steps // 2, task)[0], tied)


def _winner(curves, step, task):
    sign = -1 if HIGHER[task] else 1
    scores = {rate: (sign * curve.last(step), curve.last_loss(step)) for rate, curve in curves.items()}
    best = min(scores, key=scores.__getitem__)
    return best, sum(figure == scores[best][0] for figure, _ in scores.values()) > 1
