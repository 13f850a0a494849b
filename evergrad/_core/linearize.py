"""The one place that differentiates cells.

A step of one stream, `h' = f(h, x, θ)`, is remembered as a `memory`, small, from which with the cell as it was then its
two derivatives can be had:

    H = ∂h'/∂h, the transition      F = ∂h'/∂θ, the immediate influence

States are flat vectors of m numbers here, whatever pytree the cell uses. Gradients with respect to the cell are
pytrees of the cell's own structure with None where nothing is trained. A reset before the step makes H = 0.
"""

import abc
from collections.abc import Callable, Iterable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell, step_of
from evergrad._cells.unit import UnitCell
from evergrad._core.checks import refuse_unless
from evergrad._core.in_memory import in_memory
from evergrad._core.parameters import parameters, parted
from evergrad._native.products import outer, product


class KroneckerMemory(eqx.Module):
    """F = ĥ ⊗ D and H = E + D Wₕᵀ, with D = ∂h'/∂z and E = ∂h'/∂h at fixed z, diagonal block by block."""

    regressor: Float[Array, "*lead p"]
    diagonals: Float[Array, "*lead s g n"]  # D
    direct: Float[Array, "*lead s s n"]  # E
    alive: Float[Array, "*lead"]  # 0 after a reset, else 1


class GeneralMemory(eqx.Module):
    """All there is to remember of a step of any cell: where it was taken."""

    state: Float[Array, "*lead m"]
    x: Float[Array, "*lead inputs"]
    alive: Float[Array, "*lead"]


Memory = KroneckerMemory | GeneralMemory


class Transition(eqx.Module):
    """H of one stream and step, as an operator."""

    @abc.abstractmethod
    def matvec(self, v: Float[Array, " m"]) -> Float[Array, " m"]:
        """H v."""

    @abc.abstractmethod
    def vecmat(self, v: Float[Array, " m"]) -> Float[Array, " m"]:
        """v H."""

    @abc.abstractmethod
    def matmul(self, a: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        """H A."""


class KroneckerTransition(Transition):
    """H = E + D Wₕᵀ: dense in the columns of h, diagonal in those of the other state variables."""

    diagonals: Float[Array, "s g n"]
    direct: Float[Array, "s s n"]
    recurrent: Float[Array, "n g n"]  # Wₕ, shared by all streams

    def matvec(self, v):
        v = v.reshape(self.direct.shape[1:])
        z = jnp.einsum("j,jgi->gi", v[0], self.recurrent)
        return (jnp.einsum("abi,bi->ai", self.direct, v) + jnp.einsum("agi,gi->ai", self.diagonals, z)).reshape(-1)

    def vecmat(self, v):
        v = v.reshape(self.direct.shape[1:])
        z = _sum(v[a][None] * self.diagonals[a] for a in range(len(v)))
        h = self.recurrent.reshape(len(self.recurrent), -1) @ z.reshape(-1)
        rest = _sum(v[a][None] * self.direct[a] for a in range(len(v)))
        return jnp.concatenate([rest[0] + h, rest[1:].reshape(-1)])

    def matmul(self, a):
        rows = a.reshape(*self.direct.shape[1:], *a.shape[1:])
        product = jnp.tensordot(self.dense_h(), rows[0], (0, 0))
        rest = jnp.einsum("abi,bi...->ai...", self.direct[:, 1:], rows[1:])
        return product + rest.reshape(product.shape)

    def after(self, a: Float[Array, "q m"]) -> Float[Array, "q m"]:
        """A H."""
        rest = jnp.einsum("qai,abi->qbi", a.reshape(-1, *self.direct.shape[1:]), self.direct[:, 1:])
        return jnp.concatenate([a @ self.dense_h().T, rest.reshape(len(a), -1)], axis=1)

    def dense_h(self) -> Float[Array, "n m"]:
        """The columns of H that belong to h, as rows. Gate by gate, which is one pass where an einsum would be three."""
        s, g, n = self.diagonals.shape
        dense: Any = sum(self.diagonals[None, :, k] * self.recurrent[:, None, k] for k in range(g))
        dense = dense + self.direct[None, :, 0] * jnp.eye(n, dtype=dense.dtype)[:, None]
        return dense.reshape(n, s * n)


class GeneralTransition(Transition):
    """H of any cell, by Jacobian-vector products."""

    cell: Cell
    memory: GeneralMemory

    def matvec(self, v):
        def step(state):
            return flat_step(self.cell, state, self.memory.x)

        return self.memory.alive * jax.jvp(step, (self.memory.state,), (v,))[1]

    def vecmat(self, v):
        _, pull = jax.vjp(lambda state: flat_step(self.cell, state, self.memory.x), self.memory.state)
        return self.memory.alive * pull(v)[0]

    def matmul(self, a):
        return jnp.tensordot(self.dense(), a, 1)

    def dense(self) -> Float[Array, "m m"]:
        return jax.vmap(self.matvec, out_axes=1)(jnp.eye(len(self.memory.state), dtype=self.memory.state.dtype))


def linearize(cell: Cell, state: Float[Array, " m"], x: Float[Array, " inputs"], reset: Array) -> tuple[Array, Memory]:
    """One step of one stream from a flat state, which is first set back where `reset`: the new state and the memory."""
    state, alive = _set_back(cell, state, reset)
    if not isinstance(cell, KroneckerCell):
        return flat_step(cell, state, x), GeneralMemory(state, x, alive)
    regressor = _regressor(cell, state, x)
    return _advanced(cell, state, regressor, regressor @ cell.effective_weight, alive)


def linearize_all(
    cell: Cell, states: Float[Array, "B m"], x: Float[Array, "B inputs"], reset: Array
) -> tuple[Float[Array, "B m"], Memory]:
    """`linearize` of all streams, with one product for all of a Kronecker cell."""
    if not isinstance(cell, KroneckerCell):
        return jax.vmap(lambda *stream: linearize(cell, *stream))(states, x, reset)
    states, alive = jax.vmap(lambda *stream: _set_back(cell, *stream))(states, reset)
    regressors = jax.vmap(lambda *stream: _regressor(cell, *stream))(states, x)
    z = product(regressors, cell.effective_weight)
    return jax.vmap(lambda *stream: _advanced(cell, *stream))(states, regressors, z, alive)


def _set_back(cell, state, reset):
    return jnp.where(reset, initial_state(cell), state), 1 - jnp.asarray(reset, state.dtype)


def _regressor(cell, state, x):
    return cell.regressor(state[: cell.units], x)


def _advanced(cell, state, regressor, z, alive):
    z, unit_state = z.reshape(len(cell.gates), cell.units), state.reshape(cell.states, cell.units)
    diagonals, direct = pointwise_derivatives(cell.advance, z, unit_state)
    return cell.advance(z, unit_state).reshape(-1), KroneckerMemory(regressor, diagonals, direct, alive)


def pointwise_derivatives(
    advance: Callable[..., Float[Array, "s n"]], *arguments: Float[Array, "_ n"]
) -> tuple[Float[Array, "s _ n"], ...]:
    """Of a function of arrays [·, n] that is pointwise in n, the derivatives by each of them: one backward pass for every
    state variable, which leaves n last, where one Jacobian a unit would put it first.
    """

    def of_row(a):
        return jax.grad(lambda *arguments: advance(*arguments)[a].sum(), argnums=tuple(range(len(arguments))))

    rows = [of_row(a)(*arguments) for a in range(len(jax.eval_shape(advance, *arguments)))]
    return tuple(jnp.stack(derivatives) for derivatives in zip(*rows, strict=True))


def transition(cell: Cell, memory: Memory) -> Transition:
    """H of a remembered step of one stream; with the cell of that step it is what it was."""
    if isinstance(memory, GeneralMemory):
        return GeneralTransition(cell, memory)
    return kronecker_transition(cast(KroneckerCell, cell), memory)


def kronecker_transition(cell: KroneckerCell, memory: KroneckerMemory) -> KroneckerTransition:
    return KroneckerTransition(memory.diagonals * memory.alive, memory.direct * memory.alive, recurrent_weight(cell))


def pullback(cell: Cell, memory: Memory, delta: Float[Array, "*lead m"]) -> Cell:
    """Σ δ F over all leading axes of the memory and of δ, as a gradient."""
    lead = delta.ndim - 1
    if isinstance(memory, KroneckerMemory) and not lead:
        gradient = jnp.outer(memory.regressor, in_memory(through_diagonals(memory, delta)))
        return weight_gradient(cast(KroneckerCell, cell), gradient)
    memory, delta = jax.tree.map(lambda a: a.reshape(-1, *a.shape[lead:]), (memory, delta))
    if isinstance(memory, KroneckerMemory):
        return of_columns(cast(KroneckerCell, cell), memory.regressor, through_diagonals(memory, delta))
    params, rest = parted(cell)

    def steps(params):
        return jax.vmap(lambda state, x: flat_step(eqx.combine(params, rest), state, x))(memory.state, memory.x)

    return jax.vjp(steps, params)[1](delta)[0]


def through_step(cell: Cell, memory: Memory, delta: Float[Array, "B m"]) -> tuple[Float[Array, "B m"], Cell]:
    """δ H of every stream, and Σ δ F over them: one backward pass through a remembered step."""
    if isinstance(memory, KroneckerMemory):
        known = cast(KroneckerCell, cell)
        left, columns = through_columns(recurrent_weight(known), memory, delta)
        return left, of_columns(known, memory.regressor, columns)
    params, rest = parted(cell)

    def steps(params, states):
        return jax.vmap(lambda state, x: flat_step(eqx.combine(params, rest), state, x))(states, memory.x)

    gradient, left = jax.vjp(steps, params, memory.state)[1](delta)
    return memory.alive[:, None] * left, gradient


def through_columns(
    recurrent: Float[Array, "n g n"], memory: KroneckerMemory, delta: Float[Array, "B m"]
) -> tuple[Float[Array, "B m"], Float[Array, "B gn"]]:
    """δ H of every stream, by way of δ D: one product with Wₕ for all streams. Both, since δ F is ĥ ⊗ δ D.

    Wₕ stands first in the product: with a single stream XLA would else compute δ D anew for each of its n numbers.
    """
    _, s, n = memory.direct.shape[1:]
    columns, delta = through_diagonals(memory, delta), delta.reshape(-1, s, n)
    rest = _sum(delta[:, a, None] * memory.direct[:, a] for a in range(s))
    left = rest.at[:, 0].add((recurrent.reshape(n, -1) @ columns.T).T)
    return (memory.alive[:, None, None] * left).reshape(-1, s * n), columns


def forward_all(cell: KroneckerCell, memory: KroneckerMemory, v: Float[Array, "B m"]) -> Float[Array, "B m"]:
    """H v of every stream: one product for all. With zeros beside h it is one with W as it lies, of which no part is copied."""
    _, s, n = memory.direct.shape[1:]
    v = v.reshape(-1, s, n)
    beside = ((0, 0), (cell.inputs, cell.weight.shape[0] - cell.inputs - n))
    z = product(jnp.pad(v[:, 0], beside), cell.effective_weight).reshape(len(v), -1, n)
    rows = [
        _sum(memory.direct[:, a, b] * v[:, b] for b in range(s))
        + _sum(memory.diagonals[:, a, k] * z[:, k] for k in range(z.shape[1]))
        for a in range(s)
    ]
    return memory.alive[:, None] * jnp.concatenate(rows, axis=1)


def of_columns(cell: KroneckerCell, regressor: Float[Array, "*lead p"], columns: Float[Array, "*lead gn"]) -> Cell:
    """Σ ĥ ⊗ δ D over all leading axes, as a gradient: one product."""
    return weight_gradient(cell, outer(regressor, columns))


def through_layers(
    cell: Cell, memory: Memory, new: Float[Array, "B m"], delta: Float[Array, "B m"]
) -> Float[Array, "B m"]:
    """δ of the newest step; δ̄ where a stack is trained layer by layer."""
    if not cell.layerwise:
        return delta
    stack, steps = cast(Any, cell), cast(GeneralMemory, memory)

    def one(old, x, new, delta):
        return flatten(stack.down(*(unflatten(cell, a) for a in (old, new)), x, unflatten(cell, delta)))

    return jax.vmap(one)(steps.state, steps.x, new, delta)


def pullback_norm(cell: Cell, memory: Memory, delta: Float[Array, " m"]) -> Float[Array, ""]:
    """‖δ F‖ of one stream, for a Kronecker cell without building δ F."""
    if not isinstance(memory, KroneckerMemory):
        return optax.tree.norm(pullback(cell, memory, delta))
    rows, columns = memory.regressor**2, through_diagonals(memory, delta) ** 2
    known = cast(KroneckerCell, cell)
    if not known.is_masked:
        return jnp.sqrt(rows.sum() * columns.sum())
    return jnp.sqrt(rows @ jnp.asarray(known.mask, rows.dtype) @ columns)


def immediate_norms(cell: KroneckerCell, memory: KroneckerMemory) -> Float[Array, " m"]:
    """‖Fᵢ‖ of every row of F of one stream, without building F."""
    rows, squares = memory.regressor**2, memory.diagonals**2
    if not cell.is_masked:
        return jnp.sqrt(rows.sum() * squares.sum(axis=1)).reshape(-1)
    seen = (rows @ jnp.asarray(cell.mask, rows.dtype)).reshape(squares.shape[1:])  # of ĥ, by each column of W
    return jnp.sqrt(jnp.einsum("gi,agi->ai", seen, squares)).reshape(-1)


def immediate(cell: Cell, memory: Memory) -> Cell:
    """F of one stream, dense: every leaf of a gradient with an axis of m rows in front."""
    m = initial_state(cell).size
    rows = jnp.eye(m, dtype=memory.alive.dtype)
    return jax.vmap(lambda row: pullback(cell, memory, row))(rows)


def through_diagonals(memory: KroneckerMemory, delta: Float[Array, "*lead m"]) -> Float[Array, "*lead gn"]:
    """δ D."""
    s, g, n = memory.diagonals.shape[-3:]
    lead, delta = delta.shape[:-1], delta.reshape(*delta.shape[:-1], s, 1, n)
    return _sum(delta[..., a, :, :] * memory.diagonals[..., a, :, :] for a in range(s)).reshape(*lead, g * n)


def _sum(terms: Iterable[Array]) -> Any:
    """Written out: XLA makes a slow product of a sum over state variables otherwise."""
    return sum(terms)


def dense_diagonals(diagonals: Float[Array, "s g n"]) -> Float[Array, "m gn"]:
    """D as the dense m x gn matrix that it stands for."""
    s, g, n = diagonals.shape
    return jnp.einsum("agi,ij->aigj", diagonals, jnp.eye(n, dtype=diagonals.dtype)).reshape(s * n, g * n)


def suffix_products(
    cells: KroneckerCell, memories: KroneckerMemory
) -> tuple[Float[Array, "m m"], Float[Array, "k m m"]]:
    """P = H_k⋯H_1, and every Sₛ = H_k⋯H_{s+1}, for k remembered steps of one stream, the oldest first.

    One m²n product a step. `cells` is the cell at each of them.
    """
    weights, rest = parted(cells)

    def back(suffix, step):
        weights, memory = step
        product = kronecker_transition(eqx.combine(weights, rest), memory).after(suffix)
        return product, product

    start = jnp.eye(initial_state(cells).size, dtype=cells.weight.dtype)
    product, products = jax.lax.scan(back, start, (weights, memories), reverse=True)
    return product, jnp.concatenate([products[1:], start[None]])


def carried_forward(memories: KroneckerMemory, suffixes: Float[Array, "k m m"]) -> Float[Array, "m k gn"]:
    """All SₛDₛ: what each of k remembered steps adds to the influence, apart from ĥₛ, as of the last of them."""
    k, s, g, n = memories.diagonals.shape
    suffixes = suffixes.reshape(k, s * n, s, n)
    return jnp.einsum("kmai,kagi->mkgi", suffixes, memories.diagonals).reshape(s * n, k, g * n)


def weight_gradient(cell: KroneckerCell, gradient: Float[Array, "*lead p q"], mask: Any = None) -> Cell:
    """A gradient of W as a gradient of the cell; the weights that a gate does not have get none.

    `mask` says which those are, if the gradient is of some columns of W only.
    """
    if cell.is_masked:
        mask = cell.mask if mask is None else mask
        gradient = jnp.where(jnp.broadcast_to(mask, gradient.shape), gradient, 0)
    return eqx.tree_at(lambda c: c.weight, parameters(cell), gradient)


def recurrent_weight(cell: KroneckerCell) -> Float[Array, "n g n"]:
    """Wₕ: the rows of W that multiply h."""
    rows = cell.effective_weight[cell.inputs : cell.inputs + cell.units]
    return rows.reshape(cell.units, len(cell.gates), cell.units)


def recurrent_weights(cells: KroneckerCell) -> Float[Array, "k n g n"]:
    """Wₕ of each of k steps."""
    weights, rest = parted(cells)
    return jax.vmap(lambda weights: recurrent_weight(eqx.combine(weights, rest)))(weights)


def initial_state(cell: Cell) -> Float[Array, " m"]:
    """A stream's first state as one flat vector [m]."""
    return ravel_pytree(cell.initial())[0]


def output_weights(cell: Cell) -> Any:
    """The weights that may be in a cell's output; None where it is known to have none."""
    return None if type(cell).output is KroneckerCell.output else parameters(cell)


def flat_step(cell: Cell, state: Float[Array, " m"], x: Float[Array, " inputs"]) -> Float[Array, " m"]:
    return flatten(step_of(cell)(unflatten(cell, state), x))


def flatten(state: Any) -> Float[Array, " m"]:
    return ravel_pytree(state)[0]


def unflatten(cell: Cell, state: Float[Array, " m"]) -> Any:
    return ravel_pytree(cell.initial())[1](state)


def check_parameters(cell: Cell) -> None:
    """Refuses a Kronecker cell with parameters that the Kronecker form cannot train."""
    leaves = jax.tree.leaves(parameters(cell))
    refuse_unless(
        not isinstance(cell, KroneckerCell) or len(leaves) == 1,
        f"{type(cell).__name__} is an eg.KroneckerCell with {len(leaves)} arrays of real numbers, but `weight` is all "
        "that such a cell can train: make the others Python numbers (constants), or subclass eg.Cell to train them with "
        "RTRL, UORO or TBPTT.",
    )


Planes = tuple[tuple[Float[Array, "... n"], ...], ...]  # a small matrix of every unit, an array for each entry


class UnitBlocks(eqx.Module):
    """The derivatives of a step of a unit-local cell: a block for every unit, and nothing between units."""

    direct: Planes  # E = ∂state'/∂state, s x s
    diagonals: Planes  # D = ∂state'/∂z, s x g
    own: Planes  # K = ∂state'/∂own, s x κ


def unit_blocks(cell: UnitCell, state: Float[Array, "s n"], x: Float[Array, " inputs"]) -> UnitBlocks:
    """E, D and K of one step of one stream, by one backward pass a state variable.

    K in two factors, of which the second, what the settled numbers are made of, is the same for all streams.
    """
    settled = tuple(cell.settled_rows())
    own, diagonals, direct = planes(cell.advance_units, settled, tuple(cell.gates_of(x)), tuple(state))
    if cell.settles:
        (made_of,) = planes(cell.settle, tuple(cell.own))
        kept = in_memory(jnp.stack([jnp.stack(row) for row in made_of]))
        own = through_units(own, tuple(map(tuple, kept)))
    return UnitBlocks(direct, diagonals, own)


def planes(function: Callable[..., tuple[Array, ...]], *arguments: tuple[Array, ...]) -> tuple[Planes, ...]:
    """Of a function of tuples of arrays [n] that is pointwise in n, the derivatives by each of them, never put together: XLA
    would else look up for every single number where it comes from.
    """

    def of_row(a):
        return jax.grad(lambda *arguments: function(*arguments)[a].sum(), argnums=tuple(range(len(arguments))))

    rows = [of_row(a)(*arguments) for a in range(len(jax.eval_shape(function, *arguments)))]
    return tuple(zip(*rows, strict=True))


def through_units(left: Planes, right: Planes) -> Planes:
    """The product of two blocks of every unit."""
    return tuple(tuple(_sum(map(jnp.multiply, row, column)) for column in zip(*right, strict=True)) for row in left)
