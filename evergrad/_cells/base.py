"""What a cell is: the most general form, and the Kronecker form that the cheap estimators need."""

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from evergrad._cells.initial import initial_gates
from evergrad._core.checks import refuse_unless, require_key, whole_number

_PARTS = ("x", "h", "1")  # of ĥ


class Cell(eqx.Module):
    """Any differentiable recurrence `state, x -> state`. Its inexact array leaves are the parameters.

    Enough for RTRL, UORO and TBPTT. KF, OK and KTP need a `KroneckerCell`.

    Examples:
        >>> cell = eg.GRU(inputs=3, units=8, key=key)
        >>> state = cell.step(cell.initial(), jnp.ones(3))
        >>> cell.output(state).shape
        (8,)
    """

    seen_of_unit: ClassVar[int] = 1  # numbers that the readout sees of every unit

    inputs: eqx.AbstractVar[int]
    units: eqx.AbstractVar[int]

    @property
    def layerwise(self) -> bool:
        """Whether it is trained layer by layer, every layer with an influence of its own: a stack with depth="layerwise"."""
        return False

    @abc.abstractmethod
    def initial(self) -> Any:
        """The state, any pytree of arrays, that a stream starts from; a constant, which is not trained."""

    @abc.abstractmethod
    def step(self, state: Any, x: Float[Array, " inputs"]) -> Any:
        """The next state of one stream."""

    @abc.abstractmethod
    def output(self, state: Any) -> Float[Array, " n"]:
        """What the readout sees of the state. It may take x too: `output(self, state, x)`."""


def step_of(cell: Cell) -> Callable[[Any, Any], Any]:
    """What estimators differentiate: the step, or where a cell is to be trained layer by layer, one that keeps layers apart."""
    return cast(Any, cell).step_apart if cell.layerwise else cell.step


def output_of(cell: Cell, state: Any, x: Any) -> Float[Array, " n"]:
    """What the readout sees, whether the cell wants to know x for it or not."""
    output: Callable[..., Any] = cell.output
    return output(state, x) if len(inspect.signature(output).parameters) > 1 else output(state)


def outputs_of(cell: Cell) -> int:
    """How many numbers the readout sees."""
    return type(cell).seen_of_unit * cell.units


class KroneckerCell(Cell):
    """A cell whose gates are all linear in ĥ = (x, h, 1) and whose rest is pointwise: `F = ĥ ⊗ D`.

    A subclass says what *one unit* does, with numbers for arguments:

        activate((z¹, …, z^g), (h, …)) -> (h', …)

    The first state variable is h, which the gates and the readout see. `gates` names the parts of ĥ that
    each gate sees ("x", "h", "1"); `states` counts the state variables of a unit. `roles` says what each gate is for
    ("keep", "write", "candidate", "other"), for the ways to start that are about that (`evergrad/_cells/initial.py`).

    `mask=` makes W sparse for good: which weights exist, a bool array of W's shape, or the share of those from x and h
    that do, which are then drawn (biases always exist). It changes nothing of how large the weights start.

    Examples:
        >>> class Half(eg.KroneckerCell):
        ...     def activate(self, z, state):
        ...         return (0.5 * state[0] + 0.5 * jnp.tanh(z[0]),)
        >>> Half(inputs=3, units=8, key=key).weight.shape
        (12, 8)
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1",)
    roles: ClassVar[tuple[str, ...]] = ()
    states: ClassVar[int] = 1

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: Float[Array, "p gn"]
    drawn: bytes | None = eqx.field(static=True, default=None, repr=False)  # the mask given at birth

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "fan_in",
        mask: Any = None,
    ):
        call = f"{type(self).__name__}(inputs={inputs}, units={units})"
        whole_number(inputs, 1, call, "inputs", "the number of symbols or of entries of x")
        whole_number(units, 1, call, "units", "the size of the hidden state")
        self.inputs, self.units = inputs, units
        shape = self.weight_shape(inputs, units)
        key, name = require_key(key, call), type(self).__name__
        self.drawn = None if mask is None else drawn_mask(mask, shape, call, key).tobytes()
        weight = initial_gates(initial, shape, units, self.roles, cell=name, key=key)
        self.weight = jnp.where(self.mask, weight, 0) if self.is_masked else weight

    @classmethod
    def weight_shape(cls, inputs: int, units: int) -> tuple[int, int]:
        """Of W: p regressors, and a column for each gate of each unit."""
        return inputs + units + 1, len(cls.gates) * units

    @abc.abstractmethod
    def activate(self, z: tuple[Array, ...], state: tuple[Array, ...]) -> tuple[Array, ...]:
        """The pointwise rest: what one unit makes of its pre-activations and its state."""

    @property
    def is_masked(self) -> bool:
        """Whether there are weights that do not exist: of a gate that does not see all of ĥ, or of sparse weights."""
        return self.drawn is not None or any(part not in gate for gate in self.gates for part in _PARTS)

    @property
    def mask(self) -> Bool[np.ndarray, "p gn"]:
        """Which weights exist: a gate has none for the parts of ĥ that it does not see, and sparse weights lack some more."""
        parts = np.repeat(_PARTS, [self.inputs, self.units, 1])
        sees = np.array([[part in gate for gate in self.gates] for part in parts])
        seen = np.repeat(sees, self.units, axis=1)
        return seen if self.drawn is None else seen & np.frombuffer(self.drawn, bool).reshape(seen.shape)

    @property
    def effective_weight(self) -> Float[Array, "p gn"]:
        """W with the weights that do not exist held at zero, so that they get no gradient either."""
        return jnp.where(self.mask, self.weight, 0) if self.is_masked else self.weight

    def regressor(self, h: Float[Array, " n"], x: Float[Array, " inputs"]) -> Float[Array, " p"]:
        """ĥ = (x, h, 1)."""
        return jnp.concatenate([x, h, jnp.ones(1, h.dtype)])

    def initial(self) -> Float[Array, "s n"]:
        return jnp.zeros((self.states, self.units), self.weight.dtype)

    def step(self, state: Float[Array, "s n"], x: Float[Array, " inputs"]) -> Float[Array, "s n"]:
        z = self.regressor(state[0], x) @ self.effective_weight
        return self.advance(z.reshape(len(self.gates), self.units), state)

    def advance(self, z: Float[Array, "g n"], state: Float[Array, "s n"]) -> Float[Array, "s n"]:
        """`activate`, unit by unit: mapping it here is what makes the cell pointwise by construction."""
        return jax.vmap(self.activate_unit, in_axes=1, out_axes=1)(z, state)

    def activate_unit(self, z: Float[Array, " g"], state: Float[Array, " s"]) -> Float[Array, " s"]:
        return jnp.stack(self.activate(tuple(z), tuple(state)))

    def output(self, state: Float[Array, "s n"]) -> Float[Array, " n"]:
        return state[0]


def drawn_mask(mask: Any, shape: tuple[int, int], call: str, key: jax.Array) -> Bool[np.ndarray, "p gn"]:
    """The mask that is meant by an array, or by the share of the weights that exist."""
    if isinstance(mask, float | int) and not isinstance(mask, bool):
        refuse_unless(
            0 < mask <= 1, f"`{call}`: mask={mask} is the share of the weights that exist, above 0 and at most 1."
        )
        drawn = np.asarray(jax.random.uniform(jax.random.fold_in(key, 1), shape)) < mask
        drawn[-1] = True
        return drawn
    mask = np.asarray(mask)
    refuse_unless(
        mask.shape == shape and mask.dtype == bool,
        f"`{call}`: mask has shape {list(mask.shape)} of {mask.dtype}, but W has {list(shape)} weights, each of which exists or "
        "does not: give a bool array of that shape, or the share that exists.",
    )
    return mask
