from typing import ClassVar

import equinox as eqx

from evergrad._core.checks import refuse_unless, whole_number
from evergrad._estimators.base import Estimator
from evergrad._estimators.nothing import Nothing
from evergrad._pasts.chunks import Chunks


class TBPTT(Estimator):
    """Truncated backpropagation through time: the last `horizon` steps and no influence at all. Biased.

    Every `stride` steps the losses of the last `stride` steps are carried back, none further than `horizon` steps
    before now. stride = horizon, the default, is the usual chunked form, stride = 1 the rolling one. On any differentiable cell.
    Memory T·n, time T·n² a gradient, for T = horizon; where stride < horizon also the weights of T steps, once for all streams, so
    that δ goes back through each step as it was taken. Reference: Williams & Peng 1990, BPTT(h; h').

    Examples:
        >>> eg.TBPTT(horizon=25)  # in chunks: an update every 25 steps
        TBPTT(horizon=25, stride=25)
        >>> eg.TBPTT(horizon=25, stride=1).past.stride  # rolling: an update at every step
        1
    """

    horizon: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    recommended: ClassVar[str] = "only truncated gradients fit: what lies beyond the horizon is not learned."

    @classmethod
    def choices(cls, cell):
        return [cls(horizon=t) for t in (400, 200, 100, 50, 25, 10, 5)]

    def __init__(self, *, horizon: int = 25, stride: int | None = None):
        stride = horizon if stride is None else stride
        call = f"TBPTT(horizon={horizon}, stride={stride})"
        whole_number(horizon, 1, call, "horizon", "the number of steps that a gradient reaches back")
        whole_number(stride, 1, call, "stride", "the number of steps from one update to the next")
        refuse_unless(
            stride <= horizon,
            f"`{call}`: the first {stride - horizon} losses of every stride would lie beyond the horizon and teach "
            f"nothing. Use stride <= horizon, for instance TBPTT(horizon={horizon}, stride={horizon}).",
        )
        self.horizon, self.stride = horizon, stride

    @property
    def past(self):
        return Chunks(self.horizon, self.stride)

    @property
    def influence(self):
        return Nothing()
