"""Influence balancing: what a parameter does at first and what it does in the end have opposite signs."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell
from evergrad._core.checks import whole_number
from evergrad._core.readouts import Readout
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, real


class BalanceCell(Cell):
    """h' = A h + θ s with Aᵢᵢ = Aᵢ,ᵢ₊₁ = ½ and s = (1, …, 1, −1, …, −1); the readout sees h₁. θ is all there is to train.

    What is put in at unit i reaches h₁ after i − 1 steps or more, so that a gradient which does not reach back far sees the
    ones only. In the end h₁ = 2 θ (pluses − minuses), and with more minuses than pluses its sign is the opposite.
    Reference: Tallec & Ollivier 2017.
    """

    pluses: int = eqx.field(static=True)
    minuses: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)  # that the readout sees
    theta: Float[Array, ""]

    def __init__(self, pluses: int = 10, minuses: int = 13, theta: float = 0.0):
        call = f"BalanceCell(pluses={pluses}, minuses={minuses})"
        whole_number(pluses, 1, call, "pluses", "the units that θ drives up")
        whole_number(minuses, pluses + 1, call, "minuses", "the units that θ drives down, more than up")
        self.pluses, self.minuses, self.inputs, self.units = pluses, minuses, 1, 1
        self.theta = jnp.asarray(theta, jnp.result_type(float))

    @property
    def signs(self) -> Float[Array, " m"]:
        return jnp.concatenate([jnp.ones(self.pluses), -jnp.ones(self.minuses)]).astype(self.theta.dtype)

    @property
    def best(self) -> float:
        """The θ for which h₁ goes to 1."""
        return 1 / (2 * (self.pluses - self.minuses))

    def initial(self):
        return jnp.zeros(self.pluses + self.minuses, self.theta.dtype)

    def step(self, state, x):
        return 0.5 * state + 0.5 * jnp.append(state[1:], jnp.zeros((), state.dtype)) + self.theta * self.signs

    def output(self, state):
        return state[:1]


class Itself(Readout):
    """Says what it sees and trains nothing; the loss is ½ (h − y)²."""

    units: int = eqx.field(static=True)

    def __init__(self, units: int = 1):
        whole_number(units, 1, f"Itself(units={units})", "units", "the numbers that it sees")
        self.units = units

    @property
    def weight(self) -> Float[Array, "n outputs"]:
        return jnp.eye(self.units)

    @property
    def bias(self) -> Float[Array, " outputs"]:
        return jnp.zeros(self.units)

    def __call__(self, h):
        return h

    def predict(self, z):
        return z

    def loss(self, z, y):
        return 0.5 * jnp.sum((z - y) ** 2)

    def check(self, y, lead, weights): ...


class Balance(Generated):
    """x is 0 and y is 1 at every step, for `Model(BalanceCell(), Itself())`. The optimum is 0; a θ of 0 has ½."""

    inputs: ClassVar[int] = 1

    def begin(self, number, key):
        return jnp.zeros((), jnp.int32)

    def proceed(self, stream, key):
        return Data(real(0)[None], real(1)[None], jnp.zeros((), bool), real(True)), stream

    def optimum(self):
        return 0.0

    def ignorance(self):
        return 0.5


def influence_on_the_first(cell: BalanceCell, steps: int) -> Float[Array, " steps"]:
    """dh₁/dθ as a gradient sees it that reaches back 1, 2, …, `steps` steps: what TBPTT takes for the effect of θ."""

    def step(direction, _):
        return 0.5 * direction + 0.5 * jnp.append(direction[1:], jnp.zeros((), direction.dtype)), direction[0]

    return jnp.cumsum(jax.lax.scan(step, cell.signs, length=steps)[1])
