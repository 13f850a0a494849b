"""Cells whose units do not see each other: what a weight does stays in its unit, so that the exact influence is small."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell
from evergrad._cells.initial import initial_gates, read_initial
from evergrad._core.checks import refuse_unless, require_key, whole_number
from evergrad._core.in_memory import in_memory


class UnitCell(Cell):
    """A cell of which unit i's new state is a function of its own state, its own parameters, and zᵢ = (x, 1) W[:, ·, i].

    A subclass says what *one unit* does, with numbers for arguments:

        advance_unit((own¹, …, own^κ), (z¹, …, z^g), (state¹, …, state^s)) -> (state¹', …, state^s')

    and `settled(own)`, where a step needs functions of the own parameters rather than themselves, says which: they are the
    same for all streams, computed once, and given to `advance_unit` instead.

    `roles` says what each of the g gates is for (as in a `KroneckerCell`), `own_names` names the arrays of n numbers that
    are the units' own parameters, `states` counts the state variables of a unit, and `seen_of_unit` those that the
    readout sees, the first ones. A complex state is a pair of numbers. `sees_itself` says that `own_names` are the weights, one
    a gate, by which the gates see the unit's first state variable: then e-prop does without what passes through them.

    With E = ∂state'/∂state, D = ∂state'/∂z and K = ∂state'/∂own of every unit (`evergrad._core.linearize.unit_blocks`) the
    exact influence is

        e_W' = E e_W + (x, 1) ⊗ D    [s, p, g, n]        e_own' = E e_own + K    [s, κ, n]

    s numbers a parameter, where other cells have s·n.

    Examples:
        >>> cell = eg.MinGRU(inputs=3, units=8, key=key)
        >>> isinstance(cell, eg.UnitCell), cell.roles
        (True, ('update', 'candidate'))
    """

    roles: ClassVar[tuple[str, ...]]
    own_names: ClassVar[tuple[str, ...]] = ()
    sees_itself: ClassVar[bool] = False
    states: ClassVar[int] = 1

    inputs: eqx.AbstractVar[int]
    units: eqx.AbstractVar[int]
    weight: eqx.AbstractVar[Float[Array, "p gn"]]

    @abc.abstractmethod
    def advance_unit(self, own: tuple[Array, ...], z: tuple[Array, ...], state: tuple[Array, ...]) -> tuple[Array, ...]:
        """The new state of one unit."""

    def settled(self, own: tuple[Array, ...]) -> tuple[Array, ...]:
        """What a step needs of a unit's own parameters: if not said otherwise, they themselves."""
        return own

    @classmethod
    def weight_shape(cls, inputs: int, units: int) -> tuple[int, int]:
        """Of W: the inputs and a bias, and a column for each gate of each unit."""
        return inputs + 1, len(cls.roles) * units

    @property
    def outputs(self) -> int:
        """How many numbers the readout sees: `eg.Linear(units=cell.outputs, …)`."""
        return self.seen_of_unit * self.units

    @property
    def own(self) -> Float[Array, "kappa n"]:
        """The units' own parameters, one row for each of `own_names`."""
        rows = [getattr(self, name) for name in self.own_names]
        return jnp.stack(rows) if rows else jnp.zeros((0, self.units), self.weight.dtype)

    def regressor(self, x: Float[Array, " inputs"]) -> Float[Array, " p"]:
        """x̂ = (x, 1)."""
        return jnp.concatenate([x, jnp.ones(1, x.dtype)])

    def gates_of(self, x: Float[Array, " inputs"]) -> Float[Array, "g n"]:
        """All z."""
        return (self.regressor(x) @ self.weight).reshape(len(self.roles), self.units)

    def initial(self) -> Float[Array, "s n"]:
        return jnp.zeros((self.states, self.units), self.weight.dtype)

    def step(self, state: Float[Array, "s n"], x: Float[Array, " inputs"]) -> Float[Array, "s n"]:
        return jnp.stack(self.advance_units(tuple(self.settled_rows()), tuple(self.gates_of(x)), tuple(state)))

    @property
    def settles(self) -> bool:
        """Whether `settled` is anything but the own parameters."""
        return type(self).settled is not UnitCell.settled

    def settled_rows(self) -> Float[Array, "c n"]:
        """What `settled` says, of all units."""
        return in_memory(jnp.stack(self.settle(tuple(self.own)))) if self.settles else self.own

    def settle(self, own: tuple[Float[Array, " n"], ...]) -> tuple[Float[Array, " n"], ...]:
        """`settled`, mapped over the units."""
        return jax.vmap(lambda *own: self.settled(own))(*own)

    def advance_units(
        self,
        settled: tuple[Float[Array, " n"], ...],
        z: tuple[Float[Array, " n"], ...],
        state: tuple[Float[Array, " n"], ...],
    ) -> tuple[Float[Array, " n"], ...]:
        """`advance_unit`, mapped over the units: that is what keeps them apart by construction."""
        return jax.vmap(self.advance_unit)(settled, z, state)

    def output(self, state: Float[Array, "s n"]) -> Float[Array, " outputs"]:
        return state[: self.seen_of_unit].reshape(-1)


def drawn_weight(
    kind: type[UnitCell], inputs: int, units: int, initial: str, key: jax.Array | None, **options: object
) -> tuple[Float[Array, "p gn"], jax.Array]:
    """The W of a new cell, and a key for what else it draws; refuses sizes and ways to start that cannot be."""
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    call = f"{kind.__name__}(inputs={inputs}, units={units}{more})"
    whole_number(inputs, 1, call, "inputs", "the number of symbols or of entries of x")
    whole_number(units, 1, call, "units", "the number of units")
    refuse_unless(
        read_initial(initial).name != "orthogonal",
        f'`{call}`: initial="{initial}" is about weights from unit to unit, and {kind.__name__} has none: use "chrono:T" for '
        "long lags.",
    )
    key_weight, key_own = jax.random.split(require_key(key, call))
    start, shape = _of_gates(initial, kind.roles), kind.weight_shape(inputs, units)
    weight = initial_gates(start, shape, units, kind.roles, cell=kind.__name__, key=key_weight, fan_in=inputs)
    return weight, key_own


def _of_gates(initial: str, roles: tuple[str, ...]) -> str:
    """Where no gate decides what is kept, a decay does, and the gates start as they would otherwise."""
    return initial if {"keep", "update"} & {*roles} else read_initial(initial).spread
