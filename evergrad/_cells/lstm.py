from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.forms import ByForm
from evergrad._cells.initial import CANDIDATE, KEEP, OTHER, WRITE, initial_gates, initial_weight
from evergrad._core.checks import refuse_unless, require_key, whole_number


class LSTM(KroneckerCell, metaclass=ByForm):
    """c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c'); a unit's state is the pair (h, c).

    The influence therefore has 2n rows, and D is 2 x 4 diagonal blocks. With `peepholes=True` the gates see the
    unit's own c too, and with `projection=k` h' is k linear combinations of σ(o)·tanh(c'), which the gates and the
    readout see: a `WideLSTM`. Reference: Hochreiter & Schmidhuber 1997, with forget gates; Gers & Schmidhuber 2000
    (peepholes); Sak et al. 2014 (projection).

    Examples:
        >>> cell = eg.LSTM(inputs=3, units=8, key=key, initial="chrono:50")  # for lags of up to 50 steps
        >>> cell.weight.shape  # four gates
        (12, 32)
        >>> len(cell.initial())  # h and c
        2
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1",) * 4  # i, f, g, o
    roles: ClassVar[tuple[str, ...]] = (WRITE, KEEP, CANDIDATE, OTHER)
    states: ClassVar[int] = 2

    def __init__(self, inputs, units, *, key=None, initial="fan_in", mask=None, peepholes=False, projection=None):
        KroneckerCell.__init__(self, inputs, units, key=key, initial=initial, mask=mask)

    @staticmethod
    def form(options: dict[str, Any]) -> type[Cell] | None:
        return WideLSTM if options.get("peepholes") or options.get("projection") is not None else None

    def activate(self, z, state):
        i, f, g, o = z
        _, c = state
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


class WideLSTM(Cell):
    """An LSTM of `cells` memory cells with peepholes, a projection of its output to `units` numbers, or both.

    i = σ(z¹ + pⁱ·c), f = σ(z² + pᶠ·c), c' = f·c + i·tanh(z³), o = σ(z⁴ + pᵒ·c'), h' = (o·tanh(c')) R. W and R are
    linear maps; the peepholes p are vectors, whose influence is kept exactly.
    """

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    cells: int = eqx.field(static=True)
    weight: Float[Array, "p 4n"]
    peepholes: Float[Array, " 3n"] | None
    projection: Float[Array, "n k"] | None

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        peepholes: bool = False,
        projection: int | None = None,
    ):
        call = f"LSTM(inputs={inputs}, units={units}, peepholes={peepholes}, projection={projection})"
        whole_number(inputs, 1, call, "inputs", "the number of symbols or of entries of x")
        whole_number(units, 1, call, "units", "the memory cells")
        if projection is not None:
            whole_number(projection, 1, call, "projection", "the numbers that the gates and the readout see of them")
            refuse_unless(
                not initial.startswith("orthogonal"),
                f'`{call}`: initial="{initial}" needs square recurrent weights, which a projection has none of.',
            )
        self.inputs, self.cells, self.units = inputs, units, projection or units
        one, two, three = jax.random.split(require_key(key, call), 3)
        shape = (inputs + self.units + 1, 4 * units)
        self.weight = initial_gates(initial, shape, units, LSTM.roles, cell="LSTM", key=one)
        self.peepholes = initial_weight("normal", (1, 3 * units), units, key=two)[0] if peepholes else None
        self.projection = (
            None if projection is None else initial_weight("fan_in", (units, projection), units, key=three)
        )

    def initial(self) -> tuple[Float[Array, " k"], Float[Array, " n"]]:
        return jnp.zeros(self.units, self.weight.dtype), jnp.zeros(self.cells, self.weight.dtype)

    def step(self, state, x):
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([x, h, jnp.ones(1, h.dtype)]) @ self.weight, 4)
        looks = jnp.zeros((3, 1), h.dtype) if self.peepholes is None else self.peepholes.reshape(3, -1)
        i, f = i + looks[0] * c, f + looks[1] * c
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        o = o + looks[2] * c
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return h if self.projection is None else h @ self.projection, c

    def output(self, state):
        return state[0]
