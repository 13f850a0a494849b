import math
from typing import Any, ClassVar

import equinox as eqx

from evergrad._core.checks import refuse_unless, whole_number
from evergrad._estimators.base import Estimator
from evergrad._estimators.nothing import Nothing
from evergrad._pasts.random_horizon import Chances, RandomHorizon, Rolling, Segments


class ARTBP(Estimator):
    """Anticipated reweighted truncated backpropagation: cuts at random places, made up for by weights. Unbiased up to the cap.

        λ_t = δ_t + [not cut after t]/(1 − c(τ)) λ_{t+1} H_{t+1},  ĝ = Σ λ_t F_t,  c(τ) = (α−1)/((α−2)·mean + τ)

    A stream's gradient comes where its segment ends; with `rolling=True` each step has its own, of a horizon drawn anew
    (evergrad/_pasts/random_horizon.py). `cap` bounds the memory and is the only bias: `lost` is the chance that a segment
    would have gone on. Its variance is finite only where influence decays faster than the weights grow.
    `schedule="constant"`, c = 1/mean, is there to show what it does to the weights.

    On any differentiable cell. Memory 2·cap·n, time mean·n² a stream and step, more with many streams, since all wait for the
    longest segment. Reference: Tallec & Ollivier 2017; the rolling form is ours, after the same idea.

    Examples:
        >>> f"{eg.ARTBP(mean=16, cap=256).lost:.4f}"  # the chance that a segment would have gone on
        '0.0013'
        >>> eg.ARTBP(rolling=True).rolling
        True
    """

    mean: int = eqx.field(static=True)
    cap: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    rolling: bool = eqx.field(static=True)
    schedule: str = eqx.field(static=True)

    recommended: ClassVar[str] = "only truncated gradients fit; cut at random, these have no bias, but much noise."

    @classmethod
    def choices(cls, cell):
        return [cls(mean=mean, cap=16 * mean) for mean in (64, 32, 16, 8, 4)]

    def __init__(
        self,
        *,
        mean: int = 16,
        cap: int = 256,
        alpha: float | int = 4.0,
        rolling: bool = False,
        schedule: str = "paper",
    ):
        call = f"ARTBP(mean={mean}, cap={cap}, alpha={alpha}, rolling={rolling}, schedule={schedule!r})"
        whole_number(mean, 2, call, "mean", "the mean length of a segment")
        whole_number(cap, 1, call, "cap", "the number of steps that no segment is longer than")
        refuse_unless(
            alpha > 3 and math.isfinite(alpha),
            f"`{call}`: the weights have finite variance only for alpha > 3: use 4 or 6.",
        )
        refuse_unless(
            schedule in ("paper", "constant"), f'`{call}`: choose schedule="paper", or "constant" for comparison.'
        )
        self.mean, self.cap, self.alpha = mean, cap, float(alpha)
        self.rolling, self.schedule = bool(rolling), schedule

    @property
    def past(self) -> RandomHorizon:
        chances = Chances(self.mean, self.cap, self.alpha, self.schedule)
        kind: Any = Rolling if self.rolling else Segments
        return kind(chances)

    @property
    def influence(self):
        return Nothing()

    @property
    def lost(self) -> float:
        """The chance that a segment would have been longer than the cap: what bias there is has this weight."""
        return self.past.chances.lost()
