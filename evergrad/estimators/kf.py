from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad.checks import refuse_unless, whole_number
from evergrad.costs import Cost
from evergrad.double import doubled, in_double
from evergrad.estimators.base import Estimator, check_window
from evergrad.estimators.diagonal import largest_rank, low_rank_diagonals
from evergrad.estimators.scaling import balance, mixed
from evergrad.linearize import dense_diagonals, initial_state, repeated, transition, weight_gradient
from evergrad.native import kronecker


class KF(Estimator):
    """Kronecker-factored RTRL: G ≈ mean over `copies` of u ⊗ A.

        u' = c₁p₁u + c₂p₂ĥ,  A' = c₁HA/p₁ + c₂D/p₂,  c random signs;  p₁² = ‖HA‖/‖u‖, p₂² = ‖D‖/‖ĥ‖

    copies=1 is KF-RTRL, more are KF-RTRL-AVG. With `diagonal_rank=r`, D is first replaced by an optimal unbiased
    approximation of rank r (KF-RTRL-r-APPROX). Memory n², time n³ a copy.
    Reference: Mujika et al. 2018; Benzing et al. 2019.
    """

    copies: int = eqx.field(static=True)
    diagonal_rank: int | None = eqx.field(static=True)
    window: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def __init__(self, *, copies: int = 1, diagonal_rank: int | None = None, window: int = 0):
        call = f"KF(copies={copies}, diagonal_rank={diagonal_rank}, window={window})"
        whole_number(copies, 1, call, "copies", "the number of independent estimates that are averaged")
        if diagonal_rank is not None:
            whole_number(diagonal_rank, 1, call, "diagonal_rank", "the rank that D is reduced to (None: not reduced)")
        check_window(window, call)
        self.copies, self.diagonal_rank, self.window = copies, diagonal_rank, window

    def check_kronecker(self, cell):
        if self.diagonal_rank is not None:
            available = largest_rank(cell)
            refuse_unless(
                self.diagonal_rank < available,
                f"`KF(diagonal_rank={self.diagonal_rank})`: D of {type(cell).__name__}(units={cell.units}) has rank "
                f"{available} at most, so nothing is approximated: use diagonal_rank=None or one below {available}.",
            )

    def init(self, cell):
        m, (p, q) = initial_state(cell).size, cell.weight.shape
        dtype = cell.weight.dtype
        return jnp.zeros((self.copies, p), dtype), jnp.zeros((m, self.copies, q), dtype)

    def step(self, carried, cell, memory, key):
        u, a = carried
        product = transition(cell, memory).matmul(a.reshape(len(a), -1)).reshape(a.shape)
        mix = jax.vmap(self._mix, in_axes=(0, 1, None, 0), out_axes=(0, 1))
        return mix(u, product, memory, jax.random.split(key, self.copies))

    def _mix(self, u, a, memory, key):
        sign_key, rank_key = jax.random.split(key)
        sign = _sign(sign_key, u.dtype)
        return mixed((u, a), (memory.regressor, self._diagonals(memory, rank_key)), (sign, sign))

    def step_all(self, carried, cell, memory, keys):
        one = lambda carried, memories, keys: super(KF, self).step_all(  # noqa: E731
            carried, cell, jax.tree.map(lambda a: a[:, 0], memories), keys
        )
        memories = jax.tree.map(lambda a: a[:, None], memory)
        if self.diagonal_rank is not None:
            return one(carried, memories, keys)
        return kronecker.fold_or(one, sign_trick, carried, repeated(cell, 1), memories, keys)

    def _diagonals(self, memory, key):
        if self.diagonal_rank is None:
            return dense_diagonals(memory.diagonals)
        left, right = low_rank_diagonals(memory.diagonals, self.diagonal_rank, key)
        return left.T @ right

    def cost(self, sizes):
        numbers = self.copies * sizes.m * sizes.q
        return Cost(sizes.m * numbers, 0, 10 * numbers, 2.3 * numbers + sizes.m * sizes.q, 20)

    def gradient(self, carried, cell, delta):
        u, a = carried
        return weight_gradient(cell, jnp.einsum("bcp,bm,bmcq->pq", u, delta, a) / self.copies)

    def influence(self, carried, cell):
        u, a = carried
        return weight_gradient(cell, jnp.einsum("cp,mcq->mpq", u, a) / self.copies)


def _sign(key, dtype):
    """Of c₁c₂, the only one that shows."""
    return jax.random.rademacher(key, (), dtype)


def sign_trick(
    vectors: Float[Array, "N p"], gram: UInt32[Array, "N N 2"], key: jax.Array
) -> tuple[Float[Array, "N-1 p"], Float[Array, "N N-1"]]:
    """`KF._mix` of all copies at once, from the inner products of the matrices HA and of D: u', and A' as weights of those."""
    lengths, sizes = jnp.linalg.norm(vectors, axis=1), _lengths(gram, vectors)
    signs = jax.vmap(lambda key: _sign(jax.random.split(key)[0], vectors.dtype))(
        jax.random.split(key, len(vectors) - 1)
    )
    (of_u, of_a), (of_h, of_d) = jax.vmap(balance)(lengths[:-1], sizes[:-1]), balance(lengths[-1], sizes[-1])
    u = of_u[:, None] * vectors[:-1] + (signs * of_h)[:, None] * vectors[-1:]
    return u, jnp.concatenate([jnp.diag(of_a), (signs * of_d)[None]])


@in_double
def _lengths(gram, like):
    return jax.lax.convert_element_type(jnp.sqrt(jnp.diagonal(doubled(gram))), like.dtype)
