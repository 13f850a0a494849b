from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad.checks import refuse_unless, whole_number
from evergrad.costs import Cost
from evergrad.estimators.base import Estimator
from evergrad.linearize import initial_state
from evergrad.parameters import parameters


class TBPTT(Estimator):
    """Truncated backpropagation through time: a window of `horizon` steps in front of no influence at all. Biased.

    Every `stride` steps the losses of the last `stride` steps are carried back, none further than `horizon` steps
    before now. horizon = stride is the usual chunked form, stride = 1 the rolling one. On any differentiable cell.
    Memory T·n, time T·n² a gradient, for T = horizon. Reference: Williams & Peng 1990, BPTT(h; h').
    """

    horizon: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = False

    def __init__(self, *, horizon: int = 25, stride: int = 25):
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
    def window(self) -> int:
        return self.horizon

    def init(self, cell):
        return None

    def step(self, carried, cell, memory, key):
        return None

    def fold(self, carried, cells, memories, key):
        return None

    def cost(self, sizes):
        return Cost()

    def gradient(self, carried, cell, delta):
        return jax.tree.map(jnp.zeros_like, parameters(cell))

    def influence(self, carried, cell):
        rows = initial_state(cell).size
        return jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), parameters(cell))
