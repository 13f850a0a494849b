"""What some steps do to an influence: G' = P G + Σ over linear maps Σ over their uses of a ⊗ C + what the other parameters get.

P = H_k⋯H_1, and the C of a use in step s is S_s B_s, with S_s = H_k⋯H_{s+1}. It is one backward pass: the unit rows of
the newest state are pulled back through the steps, the newest first; what arrives at the z of a map is C, what arrives
at the state goes on, and in the end is P. For a Kronecker cell, whose B is diagonal, there is a faster way to the same.
"""

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.linearize import (
    GeneralMemory,
    KroneckerMemory,
    KroneckerTransition,
    Memory,
    carried_forward,
    dense_diagonals,
    flatten,
    initial_state,
    kronecker_transition,
    suffix_products,
    unflatten,
)
from evergrad._core.maps import Map, maps_of, program_of, rows_of
from evergrad._core.parameters import parameters, parted, repeated


class Terms(eqx.Module):
    """What a map's N uses add: Σ aᵢ ⊗ Cᵢ, the rows of C those that the map can reach."""

    vectors: Float[Array, "N p"]
    columns: Float[Array, "m N q"]


class Block(eqx.Module):
    """Of one stream: P, the terms of every linear map, and G' − P G of every other parameter."""

    product: Float[Array, "m m"] | KroneckerTransition
    terms: tuple[Terms, ...]
    rest: tuple[Array, ...]

    def carry(self, a: Float[Array, "m ..."], rows: np.ndarray) -> Float[Array, "m ..."]:
        """P a, for the rows of a state that a parameter can reach."""
        if isinstance(self.product, KroneckerTransition):
            return self.product.matmul(a)
        return jnp.tensordot(rows_of(rows_of(self.product, rows), rows, axis=1), a, 1)


def block(cells: Cell, memories: Memory) -> Block:
    """Of k remembered steps of one stream, the oldest first; `cells` is the cell at each of them."""
    if isinstance(memories, KroneckerMemory) and len(memories.alive) == 1:
        return _one_step(cells, memories)
    if isinstance(memories, KroneckerMemory):
        product, suffixes = suffix_products(cast(KroneckerCell, cells), memories)
        return Block(product, (Terms(memories.regressor, carried_forward(memories, suffixes)),), ())
    return _pulled_back(cells, memories)


def _one_step(cells, memories):
    """H is then known without a product, and D is diagonal."""
    cell, memory = first_of(cells), jax.tree.map(lambda a: a[0], memories)
    columns = dense_diagonals(memory.diagonals)
    return Block(
        kronecker_transition(cast(KroneckerCell, cell), memory), (Terms(memories.regressor, columns[:, None]),), ()
    )


def _pulled_back(cells, memories):
    weights, rest = parted(cells)
    found = maps_of(first_of(cells))
    start = jnp.eye(memories.state.shape[-1], dtype=memories.state.dtype)
    small = [jnp.zeros((len(start), *each.shape), start.dtype) for each in found.rest]

    def back(carry, step):
        rows, small = carry
        weights, memory = step
        through, more, columns, vectors = pulled(eqx.combine(weights, rest), memory, rows)
        return (through, jax.tree.map(jnp.add, small, more)), (columns, vectors)

    (product, small), (columns, vectors) = jax.lax.scan(back, (start, small), (weights, memories), reverse=True)
    terms = tuple(_terms(each, columns, vectors) for each in found.maps)
    return Block(product, terms, tuple(rows_of(a, each.rows) for a, each in zip(small, found.rest, strict=True)))


def first_of(cells: Cell) -> Cell:
    """The cell at the first of some steps."""
    weights, rest = parted(cells)
    return eqx.combine(jax.tree.map(lambda a: a[0], weights), rest)


def pulled(
    cell: Cell, memory: GeneralMemory, rows: Float[Array, "r m"]
) -> tuple[Float[Array, "r m"], list[Array], list[Array], list[Array]]:
    """rows·H, what arrives at the parameters that are no maps, and at every product with a map; and the vectors of those."""
    program = program_of(cell)
    zeros = [jnp.zeros(z.shape, z.dtype) for z in program.products]
    leaves, tree = jax.tree.flatten(parameters(cell))
    small = [leaves[each.leaf] for each in program.maps.rest]

    def step(zeros, small, state):
        here = list(leaves)
        for each, a in zip(program.maps.rest, small, strict=True):
            here[each.leaf] = a
        changed = eqx.combine(jax.tree.unflatten(tree, here), cell)
        new, vectors = program.take(changed, zeros, unflatten(cell, state), memory.x)
        return flatten(new), vectors

    _, pull, vectors = jax.vjp(step, zeros, small, memory.state, has_aux=True)
    columns, found, through = jax.vmap(pull)(rows)
    return memory.alive * through, found, columns, vectors


def _terms(each: Map, columns: list[Array], vectors: list[Array]) -> Terms:
    """All uses of a map in all steps."""
    mine = jnp.concatenate([rows_of(columns[use], each.rows, axis=1) for use in each.uses])
    return Terms(jnp.concatenate([vectors[use] for use in each.uses]), jnp.moveaxis(mine, 0, 1))


# ---- gradients of the cell, put together ---------------------------------------------------------------------------


def assembled(cell: Cell, of_maps: list[Array], of_rest: list[Array], *lead: int) -> Cell:
    """Gradients of the maps [*lead, p, q] and of the other parameters as a gradient of the cell; zero for what is not used."""
    found = maps_of(cell)
    leaves, tree = jax.tree.flatten(parameters(cell))
    grown: list[Array | None] = [None] * len(leaves)
    for each, array in zip(found.maps, of_maps, strict=True):
        grown[each.leaf] = each.gradient(array)
    for each, array in zip(found.rest, of_rest, strict=True):
        grown[each.leaf] = array
    return with_zeros(cell, jax.tree.unflatten(tree, grown), *lead)


def reached(cell: Cell) -> Cell:
    """For every parameter the rows of the state that it can reach; None for one that a step does not look at."""
    found = maps_of(cell)
    leaves, tree = jax.tree.flatten(parameters(cell))
    rows = {each.leaf: each.rows for each in (*found.maps, *found.rest)}
    return jax.tree.unflatten(tree, [rows.get(i) for i in range(len(leaves))])


def added(cell: Cell, found: Block) -> Cell:
    """G' − P G as a gradient of the cell, with the rows in front that each parameter can reach."""
    sorted_ = maps_of(cell)
    leaves, tree = jax.tree.flatten(parameters(cell))
    grown: list[Array | None] = [None] * len(leaves)
    for each, terms in zip(sorted_.maps, found.terms, strict=True):
        grown[each.leaf] = each.gradient(jnp.einsum("np,mnq->mpq", terms.vectors, terms.columns))
    for each, array in zip(sorted_.rest, found.rest, strict=True):
        grown[each.leaf] = array
    return jax.tree.unflatten(tree, grown)


def with_zeros(cell: Cell, gradient: Cell, *lead: int) -> Cell:
    """A gradient with zeros for the parameters that it says nothing of."""

    def filled(a, g):
        return jnp.zeros((*lead, *a.shape), a.dtype) if g is None else g

    return jax.tree.map(filled, parameters(cell), gradient)


def all_rows(a: Float[Array, "some ..."], rows: np.ndarray, m: int) -> Float[Array, "m ..."]:
    """An influence of some rows of a state, as one of all of them."""
    return a if len(rows) == m else jnp.zeros((m, *a.shape[1:]), a.dtype).at[rows].set(a)


def size_of(cell: Cell) -> int:
    """m, the numbers in a state."""
    return initial_state(cell).size


def weight_dtype(cell: Cell) -> jnp.dtype:
    return jnp.result_type(*jax.tree.leaves(parameters(cell)))


def nothing_yet(cell: Cell) -> tuple[Array, ...]:
    """The influence of the parameters that are no maps, at the start."""
    leaves = jax.tree.leaves(parameters(cell))
    return tuple(jnp.zeros((len(e.rows), *e.shape), leaves[e.leaf].dtype) for e in maps_of(cell).rest)


def whole_influence(cell: Cell, of_maps: list[Array], rest: tuple[Array, ...]) -> Cell:
    """G as a gradient with all m rows in front, from those rows of it that each map and each other parameter can reach."""
    found, m = maps_of(cell), size_of(cell)
    maps = [all_rows(a, each.rows, m) for a, each in zip(of_maps, found.maps, strict=True)]
    return assembled(cell, maps, [all_rows(a, each.rows, m) for a, each in zip(rest, found.rest, strict=True)], m)


def absorbed(rest: tuple[Array, ...], cell: Cell, found: Block) -> tuple[Array, ...]:
    """The recursion for the parameters that are no maps: exact."""
    each = zip(rest, found.rest, maps_of(cell).rest, strict=True)
    return tuple(found.carry(a, which.rows) + new for a, new, which in each)


def absorbed_one(rest: tuple[Array, ...], cell: Cell, memory: Memory) -> tuple[Array, ...]:
    """The same over one step, for an estimator that does not need what the step does to its maps."""
    if not rest:
        return rest
    return absorbed(rest, cell, block(repeated(cell, 1), jax.tree.map(lambda a: a[None], memory)))


def contracted(rest: tuple[Array, ...], cell: Cell, delta: Float[Array, "B m"]) -> list[Array]:
    """Σ δ G over streams and rows, of the parameters that are no maps."""
    found = zip(rest, maps_of(cell).rest, strict=True)
    return [jnp.tensordot(rows_of(delta, each.rows, axis=1), a, 2) for a, each in found]
