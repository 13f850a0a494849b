"""What a step does within each unit, and nothing of what it does between units.

Of a unit with s state variables: Ĥ [s, s], what its state makes of its state; D [s, g], what its gates make of it; and K [s, κ],
what its own parameters do, where it has some. For a cell whose units do not see each other that is all there is.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.stack import Stack
from evergrad._cells.unit import UnitCell
from evergrad._core.linearize import (
    GeneralMemory,
    KroneckerMemory,
    Memory,
    flatten,
    linearize,
    recurrent_weight,
    unflatten,
    unit_blocks,
)

UNIT, DIRECT = "unit", "direct"
SCOPES = (UNIT, DIRECT)


class Within(eqx.Module):
    """One step of one stream, unit by unit."""

    regressor: Float[Array, " p"]
    carry: Float[Array, "s s n"]  # Ĥ; zero after a reset
    gates: Float[Array, "s g n"]  # D
    own: Float[Array, "s kappa n"]  # K


def layers_of(cell: Cell) -> tuple[Any, ...]:
    """The cells that have influences of their own: those of a stack, or the one cell."""
    return cell.layers if isinstance(cell, Stack) else (cell,)


def is_unit_local(cell: Cell) -> bool:
    """Whether no unit sees another one's state, so that what stays within units is all there is."""
    sees_no_h = isinstance(cell, KroneckerCell) and not any("h" in gate for gate in cell.gates)
    return isinstance(cell, UnitCell) or sees_no_h


def within(cell: Cell, memory: Memory, scope: str) -> tuple[Within, ...]:
    """Of every layer. `scope` says which part of Ĥ is kept: all of the unit's, or only what passes through no weight."""
    if not isinstance(cell, Stack):
        return (_of_memory(cell, memory, scope),)
    general = cast(GeneralMemory, memory)
    found, x = [], general.x
    for layer, state in zip(cell.layers, unflatten(cell, general.state), strict=True):
        reset = memory.alive == 0
        start = flatten(state)
        new, inner = linearize(layer, start, x, jnp.zeros((), bool))
        alive = jnp.where(reset, 0, 1).astype(start.dtype)
        found.append(_of_memory(layer, eqx.tree_at(lambda m: m.alive, inner, alive), scope))
        x = layer.output(unflatten(layer, new))
    return tuple(found)


def _of_memory(cell: Cell, memory: Memory, scope: str) -> Within:
    if isinstance(memory, KroneckerMemory):
        direct = memory.direct
        if scope != DIRECT:
            direct = direct.at[:, 0].add(_through_own_weights(cast(KroneckerCell, cell), memory))
        none = jnp.zeros((*memory.diagonals.shape[::2][:1], 0, cell.units), direct.dtype)
        return Within(memory.regressor, memory.alive * direct, memory.diagonals, none)
    unit = cast(UnitCell, cell)
    blocks = unit_blocks(unit, memory.state.reshape(unit.states, unit.units), memory.x)
    return Within(unit.regressor(memory.x), memory.alive * blocks.direct, blocks.diagonals, blocks.own)


def _through_own_weights(cell: KroneckerCell, memory: KroneckerMemory) -> Float[Array, "s n"]:
    """∂state'/∂h of a unit through the weights that it has onto itself."""
    onto_itself = jnp.einsum("igi->gi", recurrent_weight(cell))
    return jnp.einsum("agi,gi->ai", memory.diagonals, onto_itself)


def through_units(left: Float[Array, "s s n"], right: Float[Array, "s c n"]) -> Float[Array, "s c n"]:
    """The product of two blocks of every unit. Written out: XLA would make small products of it, with n in front."""
    return sum((left[:, b, None] * right[None, b] for b in range(len(right))), jnp.zeros((), right.dtype))


def carried_on(steps: Any) -> tuple[Float[Array, "s s n"], Float[Array, "k s g n"], Float[Array, "k s kappa n"]]:
    """Of k steps, the oldest first: Ĥ_k⋯Ĥ_1, and every D and K as of the last of them, Ŝ D and Ŝ K."""
    if len(steps.carry) == 1:
        return steps.carry[0], steps.gates, steps.own
    s, n = steps.carry.shape[1], steps.carry.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(s, dtype=steps.carry.dtype)[:, :, None], (s, s, n))

    def back(suffix, step):
        def through(a):
            return through_units(suffix, a)

        return through(step.carry), (through(step.gates), through(step.own))

    product, (gates, own) = jax.lax.scan(back, identity, steps, reverse=True)
    return product, gates, own


def own_names(cell: Any) -> tuple[str, ...]:
    return cell.own_names if isinstance(cell, UnitCell) else ()
