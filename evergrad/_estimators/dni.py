import math
from typing import ClassVar

import equinox as eqx

from evergrad._core.checks import refuse_unless, whole_number
from evergrad._estimators.base import Estimator
from evergrad._estimators.nothing import Nothing
from evergrad._pasts.foretold import Foretold


class DNI(Estimator):
    """Synthetic gradients: TBPTT(horizon=window), and a critic that foretells what the future would carry back. Biased.

        λ_exit = δ_exit + ĉ⁻(h_exit),  ĉ(h) = (h, 1) A;  A is fitted to what arrives at a window's entry:  ĉ(h_entry) ≈ λ_1 H_1

    A starts at 0, which is TBPTT, and is one for all streams; `rate` is the step of its normalised least mean squares,
    and ĉ⁻ a copy that follows every `refresh` fits. Right where the cotangent is linear in h and the critic is fitted.
    The injected gradient is not scaled down, as the original does: with that, no critic could give the full gradient.

    On any differentiable cell. Memory 2·window·n a stream and 2·m² for the critic, time n² a stream and step.
    Reference: Jaderberg et al. 2016; Czarnecki et al. 2017; windows as in Jaderberg's RNN.

    Examples:
        >>> eg.DNI(window=16, rate=0.1).unbiased
        False
    """

    window: int = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    refresh: int = eqx.field(static=True)

    recommended: ClassVar[str] = "only truncated gradients fit; a critic foretells the rest, as well as it can."

    @classmethod
    def choices(cls, cell):
        return [cls(window=k) for k in (64, 32, 16, 8, 4)]

    def __init__(self, *, window: int = 8, rate: float | int = 0.1, refresh: int = 5):
        call = f"DNI(window={window}, rate={rate}, refresh={refresh})"
        whole_number(window, 1, call, "window", "the number of steps from one update to the next")
        whole_number(refresh, 1, call, "refresh", "the number of fits after which the critic that is asked follows")
        refuse_unless(
            0 <= rate < 2 and math.isfinite(rate),
            f"`{call}`: the critic's rate is a normalised one, at least 0 (never fitted) and below 2 (no longer stable).",
        )
        self.window, self.rate, self.refresh = window, float(rate), refresh

    @property
    def past(self):
        return Foretold(self.window, self.window, self.rate, self.refresh)

    @property
    def influence(self):
        return Nothing()
