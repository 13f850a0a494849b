"""What a parameter does to its own unit, and nothing else: SnAp-1, e-prop and RFLO are choices of one estimator."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.leaky import Leaky
from evergrad._cells.stack import Stack
from evergrad._cells.unit import UnitCell
from evergrad._core.checks import refuse_unless
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence
from evergrad._core.linearize import Planes, check_parameters, initial_state, through_units, weight_gradient
from evergrad._core.not_none import not_none
from evergrad._core.parameters import parameters, parted
from evergrad._core.units import (
    DIRECT,
    SCOPES,
    UNIT,
    carried_on,
    is_unit_local,
    layers_of,
    own_names,
    within,
)
from evergrad._estimators.windowed import OnlyWindowed, Windowed, check_window, windows_of

Traces = tuple[Planes, Planes]
_AT_ONCE = 16  # streams


class Local(Windowed):
    """Keeps dh_i/dw only for the weights w of unit i itself. Deterministic, biased, exact where units do not see each other.

        e' = Ĥ e + ĥ ⊗ D, unit by unit;    gradient Σ δ e

    scope="unit": Ĥ is the s x s block of H of every unit, its weights onto itself included (SnAp-1).
    scope="direct": what passes through no recurrent weight at all, not even a unit's onto itself (e-prop, RFLO).

    With a window the newest steps are exact, and the bias is only in what is older. Memory s numbers a parameter, time s²; a
    fold of k steps is one product and one pass. Reference: Menick et al. 2021; Bellec et al. 2020; the window is ours.

    Examples:
        >>> eg.Local(scope="unit", window=16)
        Local(scope='unit', window=16)
        >>> eg.Local(scope="unit").exact_for(eg.MinGRU(inputs=3, units=8, key=key))
        True
    """

    scope: str = eqx.field(static=True)
    window: int = eqx.field(static=True)
    recommended: ClassVar[str] = "only a biased estimate that stays within units fits."

    def __init__(self, *, scope: str = UNIT, window: int = 0):
        call = f'Local(scope="{scope}", window={window})'
        refuse_unless(
            scope in SCOPES, f'`{call}`: scope is "unit" (a unit\'s weights onto itself count) or "direct" (none do).'
        )
        check_window(window, call)
        self.scope, self.window = scope, window

    @classmethod
    def choices(cls, cell):
        return windows_of(cls)

    @property
    def influence(self):
        return Units(self.scope)


class SnAp1(OnlyWindowed):
    """Sparse n-step approximation, n = 1: `Local(scope="unit")`. Reference: Menick et al. 2021.

    Examples:
        >>> eg.SnAp1().unbiased, eg.SnAp1().exact_for(eg.MinGRU(inputs=3, units=8, key=key))
        (False, True)
    """

    recommended: ClassVar[str] = Local.recommended

    @property
    def influence(self):
        return Units(UNIT)


class EProp(OnlyWindowed):
    """e-prop 1 with symmetric feedback: `Local(scope="direct")`. Reference: Bellec et al. 2020.

    On a plain RNN, whose state has no path but through weights, it is TBPTT of one step. Random feedback is the Learner's:
    `eg.Learner(..., feedback="random")`.

    Examples:
        >>> eg.EProp().exact_for(eg.RNN(inputs=3, units=8, key=key))
        False
    """

    recommended: ClassVar[str] = Local.recommended

    @property
    def influence(self):
        return Units(DIRECT)


class RFLO(OnlyWindowed):
    """Random-feedback local online learning: `Local(scope="direct")` on leaky units, e' = (1 − leak) e + leak φ' ĥ.

    The paper's feedback is random: `eg.Learner(..., eg.RFLO(), feedback="random")`. Without it, it is RFLO with the readout's
    own weights for feedback. Reference: Murray 2019.

    Examples:
        >>> model = eg.Model(eg.Leaky(3, 8, leak=0.1, key=key), eg.Linear(8, 1, key=key))
        >>> learner = eg.Learner(model, eg.RFLO(), optax.adam(1e-3), feedback="random", key=key)
    """

    recommended: ClassVar[str] = Local.recommended

    @property
    def influence(self):
        return LeakyUnits(DIRECT)


class _UnitInfluence(Influence):
    """For every layer, e of the weights, s x g planes [p, n], and of the units' own parameters, s x κ planes [n]."""

    scope: eqx.AbstractVar[str]
    unbiased: ClassVar[bool] = False

    def exact_for(self, cell):
        return is_unit_local(cell, self.scope)

    def check_fit(self, cell):
        stacked = isinstance(cell, Stack)
        refuse_unless(
            not stacked or cell.depth == "layerwise",
            "what stays within units does not climb from layer to layer, so that all layers but the top one would get no "
            'gradient: use Stack(..., depth="layerwise"), or another estimator.',
        )
        for layer in layers_of(cell):
            refuse_unless(
                isinstance(layer, KroneckerCell | UnitCell),
                f"an estimator that stays within units must know which weight belongs to which unit, and {_named(layer)} does "
                "not say: use a cell whose gates are all linear in (x, h, 1) (eg.RNN, eg.Leaky, eg.RHN, eg.LSTM, eg.GRU with "
                'reset="after", any eg.KroneckerCell) or an eg.UnitCell. In a GRU with reset="before" a weight of one unit '
                "reaches the candidates of all others within the step.",
            )
            check_parameters(layer)
        for layer in layers_of(cell)[:-1]:
            refuse_unless(
                len(jax.tree.leaves(parameters(layer))) == 1 + len(own_names(layer)),
                f"{_named(layer)} has weights in its output, which belong to no unit, and below another layer they would get no "
                f"gradient: use {_named(layer)} as the top layer only, or RTRL().",
            )

    def init(self, cell):
        return tuple(_nothing(layer) for layer in layers_of(cell))

    def absorb(self, carried, cells, memories, key):
        weights, rest = parted(cells)

        def of_step(weights, memory):
            return within(eqx.combine(weights, rest), memory, self.scope)

        steps = _of_each(of_step, weights, memories)
        return tuple(_absorbed(e, layer) for e, layer in zip(carried, steps, strict=True))

    def contract(self, carried, cell, delta):
        layers, at, found = layers_of(cell), 0, []
        for layer, e in zip(layers, carried, strict=True):
            s, n = layer.states, layer.units
            part = delta[:, at : at + s * n].reshape(-1, s, n)
            found.append(_gradient(layer, *_contracted(e, part)))
            at += s * n
        return _assembled(cell, found)

    def materialise(self, carried, cell):
        m, at, found = initial_state(cell).size, 0, []
        for layer, e in zip(layers_of(cell), carried, strict=True):
            weights, own = (None if a is None else _rows(a, m, at) for a in _with_rows(e))
            found.append(_gradient(layer, not_none(weights), own))
            at += layer.states * layer.units
        return _assembled(cell, found)

    def cost(self, sizes, block):
        numbers, k = sizes.m / sizes.n * sizes.parameters, max(block, 1)
        return Cost(0, numbers, numbers * (1 + 3 / k), 1.2 * numbers, 20 / k)


def _of_each(function, weights, memories):
    """Of every step. Of a single one without mapping, so that XLA sees what the step itself has computed already."""
    if len(memories.alive) > 1:
        return jax.vmap(function)(weights, memories)
    weights, memory = jax.tree.map(lambda a: a[0], (weights, memories))
    return jax.tree.map(lambda a: a[None], function(weights, memory))


class Units(_UnitInfluence):
    scope: str = eqx.field(static=True)


class LeakyUnits(_UnitInfluence):
    """The same for `RFLO`, which means leaky units."""

    scope: str = eqx.field(static=True)

    def check(self, cell, call):
        refuse_unless(
            all(isinstance(layer, Leaky) for layer in layers_of(cell)),
            f"`{call}` is derived for leaky units, eg.Leaky, and {_named(cell)} has none: use eg.EProp, which is the same for "
            "any gated cell.",
        )
        self.check_fit(cell)


def _named(cell: Any) -> str:
    return type(cell).__name__


def _nothing(layer: Any) -> Traces:
    p, q = layer.weight.shape
    n, dtype = layer.units, layer.weight.dtype

    def planes(count, *shape):
        return tuple(tuple(jnp.zeros(shape, dtype) for _ in range(count)) for _ in range(layer.states))

    return planes(q // n, p, n), planes(len(own_names(layer)), n)


def _absorbed(e: Traces, steps: Any) -> Traces:
    """Ŝ_k e + Σ ĥ ⊗ Ŝ D: products of [p, k] and [k, n], and one pass over e."""
    product, gates, own = carried_on(steps)

    def outer(columns):
        return steps.regressor[0][:, None] * columns if len(columns) == 1 else steps.regressor.T @ columns

    def summed(columns):
        return columns.sum(0)

    of_weights, of_own = e
    weights = through_units(jax.tree.map(lambda a: a[None], product), of_weights)
    return _plus(weights, jax.tree.map(outer, gates)), _plus(through_units(product, of_own), jax.tree.map(summed, own))


def _plus(one: Planes, other: Planes) -> Planes:
    return jax.tree.map(jnp.add, one, other)


def _contracted(
    e: Traces, delta: Float[Array, "B s n"]
) -> tuple[Float[Array, "p g n"], Float[Array, "kappa n"] | None]:
    """Σ δ e over streams and state variables."""
    of_weights, of_own = e
    weights = [_over_streams(delta[:, :, None], planes) for planes in zip(*of_weights, strict=True)]
    own = [_over_streams(delta, planes) for planes in zip(*of_own, strict=True)]
    return jnp.stack(weights, 1), jnp.stack(own) if own else None


def _over_streams(delta: Float[Array, "B s ..."], planes: tuple[Float[Array, "B ..."], ...]) -> Array:
    """Written out for some streams at a time: XLA's own sum of products takes ten times as long on a processor."""
    some = max(size for size in range(1, _AT_ONCE + 1) if len(delta) % size == 0)

    def add(i, total):
        for stream in range(some):
            total += sum(delta[i * some + stream, a] * plane[i * some + stream] for a, plane in enumerate(planes))
        return total

    nothing = jnp.zeros(planes[0].shape[1:], planes[0].dtype)
    return add(0, nothing) if some == len(delta) else jax.lax.fori_loop(0, len(delta) // some, add, nothing)


def _with_rows(e: Traces) -> tuple[Array, Array | None]:
    """[s, n, …] in front: what each state variable of each unit gets from its own unit's parameters."""
    of_weights, of_own = (jnp.asarray(planes) for planes in e)  # [s, g, p, n] and [s, κ, n]
    eye = jnp.eye(of_weights.shape[-1], dtype=of_weights.dtype)
    own = jnp.einsum("acn,mn->amcn", of_own, eye) if of_own.size else None
    return jnp.einsum("agpn,mn->ampgn", of_weights, eye), own


def _rows(a, m, at):
    flat = a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])
    return jnp.zeros((m, *flat.shape[1:]), a.dtype).at[at : at + len(flat)].set(flat)


def _gradient(layer: Cell, weights: Float[Array, "*lead p g n"], own: Float[Array, "*lead kappa n"] | None) -> Cell:
    """As a gradient of the layer; nothing for what only its output looks at."""
    weights = weights.reshape(*weights.shape[:-2], -1)
    if isinstance(layer, KroneckerCell):
        return weight_gradient(layer, weights)
    lead = weights.shape[:-2]
    zeros = jax.tree.map(lambda a: jnp.zeros((*lead, *a.shape), a.dtype), parameters(layer))
    gradient = eqx.tree_at(lambda c: c.weight, zeros, weights)
    for i, name in enumerate(own_names(layer)):
        gradient = eqx.tree_at(lambda c, name=name: getattr(c, name), gradient, not_none(own)[..., i, :])
    return gradient


def _assembled(cell: Cell, layers: list[Cell]) -> Cell:
    if not isinstance(cell, Stack):
        return layers[0]
    return eqx.tree_at(lambda c: c.layers, parameters(cell), tuple(layers))
