from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.forms import ByForm
from evergrad._cells.initial import CANDIDATE, KEEP, OTHER, initial_gates
from evergrad._core.checks import refuse_unless, require_key, whole_number


class GRU(KroneckerCell, metaclass=ByForm):
    """h' = (1−z)·tanh(aₓ + r·aₕ) + z·h: the reset-*after* form of cuDNN, PyTorch and ONNX `linear_before_reset=1`.

    aₓ sees x only and aₕ sees h only, so that both are linear in the same ĥ. In the form of the original paper the
    candidate is linear in (x, r·h), another vector for another gate: `reset="before"` gives that one, a `ResetBeforeGRU`
    of two linear maps. Reference: Cho et al. 2014.

    Examples:
        >>> eg.GRU(inputs=3, units=8, key=key).weight.shape
        (12, 32)
        >>> type(eg.GRU(inputs=3, units=8, reset="before", key=key)).__name__
        'ResetBeforeGRU'
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1", "xh1", "x1", "h1")  # r, z, candidate of x, candidate of h
    roles: ClassVar[tuple[str, ...]] = (OTHER, KEEP, CANDIDATE, CANDIDATE)

    def __init__(self, inputs, units, *, key=None, initial="fan_in", mask=None, reset="after"):
        KroneckerCell.__init__(self, inputs, units, key=key, initial=initial, mask=mask)

    @staticmethod
    def form(options: dict[str, Any]) -> type[Cell] | None:
        reset = options.get("reset", "after")
        refuse_unless(
            reset in ("after", "before"),
            f'GRU(reset="{reset}"): choose "after" (r·(h U), as PyTorch has it) or "before" ((r·h) U, as first published).',
        )
        return ResetBeforeGRU if reset == "before" else None

    def activate(self, z, state):
        (h,) = state
        reset, update = jax.nn.sigmoid(z[0]), jax.nn.sigmoid(z[1])
        return ((1 - update) * jnp.tanh(z[2] + reset * z[3]) + update * h,)


class ResetBeforeGRU(Cell):
    """h' = (1−z)·tanh((x, r·h, 1) C) + z·h with (r, z) = σ((x, h, 1) W): the GRU of Cho et al. 2014, two linear maps."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    gates: Float[Array, "p 2n"]
    candidate: Float[Array, "p n"]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        reset: str = "before",
    ):
        call = f"GRU(inputs={inputs}, units={units}, reset={reset!r})"
        whole_number(inputs, 1, call, "inputs", "the number of symbols or of entries of x")
        whole_number(units, 1, call, "units", "the size of the hidden state")
        self.inputs, self.units = inputs, units
        shape = (inputs + units + 1, 3 * units)
        roles = (OTHER, KEEP, CANDIDATE)
        both = initial_gates(initial, shape, units, roles, cell="GRU", key=require_key(key, call))
        self.gates, self.candidate = both[:, : 2 * units], both[:, 2 * units :]

    def initial(self) -> Float[Array, " n"]:
        return jnp.zeros(self.units, self.gates.dtype)

    def step(self, state: Float[Array, " n"], x: Float[Array, " inputs"]) -> Float[Array, " n"]:
        one = jnp.ones(1, state.dtype)
        reset, update = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, state, one]) @ self.gates), 2)
        candidate = jnp.tanh(jnp.concatenate([x, reset * state, one]) @ self.candidate)
        return (1 - update) * candidate + update * state

    def output(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        return state
