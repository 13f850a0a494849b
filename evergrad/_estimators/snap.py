import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evergrad._cells.base import KroneckerCell
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step
from evergrad._core.linearize import recurrent_weight, weight_gradient
from evergrad._estimators.base import WINDOWS
from evergrad._estimators.windowed import Windowed, check_window


class SnAp(Windowed):
    """The sparse n-step approximation: of G only the units that a weight's own unit can reach within n − 1 hops.

        G' = mask ∘ (H G + F),  mask[u, (p, γ, i)] = u ∈ Rₙ(i);  R₁(i) = {i},  Rⱼ₊₁(i) = Rⱼ(i) ∪ {u that sees a v ∈ Rⱼ(i)}

    For Kronecker cells with sparse weights (`mask=`, fixed at birth): on dense ones order 2 is all of RTRL, and refused.
    Biased, without noise, and exact once Rₙ grows no more. Only weights that exist are kept. With K the most of them in a
    column and R the most units in Rₙ: memory s·R·K·q, time s²·R²·K·q. Reference: Menick et al. 2020; the union over
    hops is meant, not the n-th power alone, which loses what is near where no unit sees itself.

    Examples:
        >>> cell = eg.RNN(inputs=3, units=16, key=key, mask=0.2)  # a fifth of the weights exists
        >>> model = eg.Model(cell, eg.Linear(16, 1, key=key))
        >>> learner = eg.Learner(model, eg.SnAp(order=2), optax.adam(1e-3))
    """

    order: int = eqx.field(static=True)
    window: int = eqx.field(static=True)

    recommended: ClassVar[str] = "only the paths of a few hops through sparse weights fit."

    @classmethod
    def choices(cls, cell):
        return [cls(order=n, window=k) for n in (4, 3, 2, 1) for k in WINDOWS]

    @classmethod
    def usual(cls, cell):
        return [cls(order=2), cls(order=1)]

    def __init__(self, *, order: int = 2, window: int = 0):
        call = f"SnAp(order={order}, window={window})"
        whole_number(order, 1, call, "order", "one more than the hops from unit to unit that are followed")
        check_window(window, call)
        self.order, self.window = order, window

    @property
    def influence(self):
        return Sparse(self.order)


class Sparse(Influence):
    """e[a, r, k, γ, i]: of state a of the r-th unit in Rₙ(i), by the k-th weight that exists in column (γ, i)."""

    order: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = False

    def check_fit(self, cell: Any):
        refuse_unless(
            isinstance(cell, KroneckerCell),
            f"`SnAp` on {type(cell).__name__}: it follows the weights from unit to unit of an eg.KroneckerCell, and there is no "
            "such matrix here: use RTRL, which is exact.",
        )
        refuse_unless(
            self.order == 1 or not sees(cell).all(),
            f"`SnAp(order={self.order})` on {type(cell).__name__}(units={cell.units}) with dense weights: every unit sees every "
            "other, so that is RTRL: use eg.RTRL(), or a cell with sparse weights (mask=0.1).",
        )

    def exact_for(self, cell):
        if not isinstance(cell, KroneckerCell):
            return False
        adjacent = sees(cell)
        return bool((reach(adjacent, self.order) == reach(adjacent, self.order + 1)).all())

    def init(self, cell: Any):
        s, kept = cell.states, kept_of(cell, self.order)
        return jnp.zeros((s, len(kept.units), *kept.rows.shape), cell.weight.dtype)

    def absorb(self, carried, cells, memories, key):
        return step_by_step(
            lambda carried, cell, memory, key: self._step(carried, cell, memory), carried, cells, memories, key
        )

    def _step(self, e, cell, memory):
        kept, dtype = kept_of(cell, self.order), e.dtype
        diagonals, direct = (a[:, :, kept.units] for a in (memory.diagonals, memory.direct))  # [s, ·, R, n]
        weights = recurrent_weight(cell)[
            kept.units[None], :, kept.units[:, None]
        ]  # [u, v, n, g]: from the v-th to the u-th
        through = jnp.einsum("agui,uvig->auvi", diagonals, weights)
        carried = jnp.einsum("abui,bukgi->aukgi", direct, e) + jnp.einsum("auvi,vkgi->aukgi", through, e[0])
        carried = memory.alive * jnp.asarray(kept.exists, dtype)[None, :, None, None] * carried
        new = memory.diagonals[:, None] * (memory.regressor[kept.rows] * jnp.asarray(kept.weights, dtype))[None]
        return carried.at[:, 0].add(new)

    def cost(self, sizes, block):
        """As if all of RTRL were kept: how sparse a cell is, its sizes do not say."""
        all_ = sizes.m * sizes.parameters
        return Cost(sizes.m * all_ / sizes.n, 0, 4 * all_ / sizes.n, 2.2 * all_ / sizes.n)

    def contract(self, carried, cell: Any, delta):
        kept = kept_of(cell, self.order)
        rows = delta.reshape(len(delta), cell.states, cell.units)[:, :, kept.units]
        rows = rows * jnp.asarray(kept.exists, delta.dtype)[None, None]
        return _placed(cell, kept, jnp.einsum("xaui,xaukgi->kgi", rows, carried))

    def materialise(self, carried, cell: Any):
        kept, (s, n) = kept_of(cell, self.order), (cell.states, cell.units)
        chosen = np.eye(n)[kept.units] * kept.exists[..., None]  # [R, n, unit]
        rows = jnp.einsum("aukgi,uij->ajkgi", carried, jnp.asarray(chosen, carried.dtype))
        return jax.vmap(lambda row: _placed(cell, kept, row))(rows.reshape(s * n, *rows.shape[2:]))


@dataclasses.dataclass(frozen=True)
class Kept:
    """Which entries of G are."""

    units: np.ndarray  # [R, n]: Rₙ(i), i itself first, filled up with i
    exists: np.ndarray  # [R, n]: and which of these are not filled up
    rows: np.ndarray  # [K, g, n]: the weights that each column has, filled up with 0
    weights: np.ndarray  # [K, g, n]: and which are not


def kept_of(cell: KroneckerCell, order: int) -> Kept:
    return _kept(cell.mask.tobytes(), cell.inputs, cell.units, len(cell.gates), order)


@functools.lru_cache(maxsize=32)
def _kept(mask, inputs, units, gates, order):
    mask = np.frombuffer(mask, bool).reshape(inputs + units + 1, gates, units)
    reached = reach(np.asarray(mask[inputs:-1].any(axis=1)), order)
    others = [[i, *(u for u in np.flatnonzero(reached[i]) if u != i)] for i in range(units)]
    exists = np.arange(max(map(len, others)))[:, None] < np.array([len(one) for one in others])[None]
    who = np.array([[one[r] if r < len(one) else i for i, one in enumerate(others)] for r in range(len(exists))])
    order_ = np.argsort(~mask, axis=0, kind="stable")[: mask.sum(axis=0).max()]
    return Kept(who, exists, order_, np.take_along_axis(mask, order_, axis=0))


def sees(cell: KroneckerCell) -> np.ndarray:
    """[v, u]: whether any gate of unit u sees unit v."""
    return np.asarray(cell.mask[cell.inputs : -1].reshape(cell.units, -1, cell.units).any(axis=1))


def reach(adjacent: np.ndarray, order: int) -> np.ndarray:
    """[i, u]: whether u can be reached from i within order − 1 hops."""
    reached = np.eye(len(adjacent), dtype=bool)
    for _ in range(min(order - 1, len(adjacent))):
        reached = reached | (reached @ adjacent)
    return reached


def _placed(cell, kept, found):
    """[k, γ, i] in the form of the cell's gradient."""
    g, n = len(cell.gates), cell.units
    found = jnp.where(kept.weights, found, 0)
    columns = np.broadcast_to(np.arange(g * n).reshape(1, g, n), kept.rows.shape)
    return weight_gradient(cell, jnp.zeros_like(cell.weight).at[kept.rows, columns].add(found))
