"""What a step does within each unit, and nothing of what it does between units.

Of a unit with s state variables: Ĥ [s, s], what its state makes of its state; D [s, g], what its gates make of it; and K [s, κ],
what its own parameters do, where it has some. For a cell whose units do not see each other that is all there is. Each is
kept as planes: an array over the units for each entry of the small matrix.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell, output_of
from evergrad._cells.stack import Stack
from evergrad._cells.unit import UnitCell
from evergrad._core.linearize import (
    GeneralMemory,
    KroneckerMemory,
    Memory,
    Planes,
    flatten,
    linearize,
    recurrent_weight,
    through_units,
    unflatten,
    unit_blocks,
)

UNIT, DIRECT = "unit", "direct"
SCOPES = (UNIT, DIRECT)


class Within(eqx.Module):
    """One step of one stream, unit by unit."""

    regressor: Float[Array, " p"]
    carry: Planes  # Ĥ; zero after a reset
    gates: Planes  # D
    own: Planes  # K


def layers_of(cell: Cell) -> tuple[Any, ...]:
    """The cells that have influences of their own: those of a stack, or the one cell."""
    return cell.layers if isinstance(cell, Stack) else (cell,)


def is_unit_local(cell: Cell, scope: str = UNIT) -> bool:
    """Whether no unit sees another one's state, so that what stays within units is all there is; with "direct", nor its own."""
    if isinstance(cell, UnitCell):
        return scope == UNIT or not cell.sees_itself
    return isinstance(cell, KroneckerCell) and not any("h" in gate for gate in cell.gates)


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
        x = output_of(layer, unflatten(layer, new), x)
    return tuple(found)


def _of_memory(cell: Cell, memory: Memory, scope: str) -> Within:
    if isinstance(memory, KroneckerMemory):
        direct = memory.direct
        if scope != DIRECT:
            direct = direct.at[:, 0].add(_through_own_weights(cast(KroneckerCell, cell), memory))
        carry, gates = map(_planes, (memory.alive * direct, memory.diagonals))
        return Within(memory.regressor, carry, gates, ((),) * len(direct))
    unit = cast(UnitCell, cell)
    blocks = unit_blocks(unit, memory.state.reshape(unit.states, unit.units), memory.x)
    direct = blocks.direct
    if scope == DIRECT and unit.sees_itself:
        direct = tuple(
            (row[0] - _through_plane(gates, unit.own), *row[1:])
            for row, gates in zip(direct, blocks.diagonals, strict=True)
        )
    carry = jax.tree.map(lambda a: memory.alive * a, direct)
    return Within(unit.regressor(memory.x), carry, blocks.diagonals, blocks.own)


def _planes(blocks: Float[Array, "s c n"]) -> Planes:
    return tuple(map(tuple, blocks))


def _through_own_weights(cell: KroneckerCell, memory: KroneckerMemory) -> Float[Array, "s n"]:
    """∂state'/∂h of a unit through the weights that it has onto itself."""
    onto_itself = jnp.einsum("igi->gi", recurrent_weight(cell))
    return jnp.einsum("agi,gi->ai", memory.diagonals, onto_itself)


def _through_plane(gates: tuple[Array, ...], onto_itself: Float[Array, "g n"]) -> Float[Array, " n"]:
    """What a unit's h does to one of its states by way of the weights that its gates have for it."""
    return jnp.sum(jnp.stack(gates) * onto_itself, axis=0)


def carried_on(steps: Any) -> tuple[Planes, Planes, Planes]:
    """Of k steps, the oldest first: Ĥ_k⋯Ĥ_1, and every D and K as of the last of them, Ŝ D and Ŝ K, [k, n]."""
    first = steps.carry[0][0]
    if len(first) == 1:
        return jax.tree.map(lambda a: a[0], steps.carry), steps.gates, steps.own
    s, one = len(steps.carry), jnp.ones_like(first[0])
    identity = tuple(tuple(one * int(a == b) for b in range(s)) for a in range(s))

    def back(suffix, step):
        return through_units(suffix, step[0]), [through_units(suffix, a) for a in step[1:]]

    product, (gates, own) = jax.lax.scan(back, identity, (steps.carry, steps.gates, steps.own), reverse=True)
    return product, gates, own


def own_names(cell: Any) -> tuple[str, ...]:
    return cell.own_names if isinstance(cell, UnitCell) else ()
