import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad._core.blocks import absorbed, assembled, block, contracted, nothing_yet, weight_dtype, whole_influence
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.costs import Cost
from evergrad._core.double import doubled, in_double
from evergrad._core.influence import Influence, step_by_step, stream_by_stream
from evergrad._core.maps import maps_of, rows_of
from evergrad._core.parameters import repeated
from evergrad._core.reading import through
from evergrad._core.rounded_influence import check_dtype, kept_in
from evergrad._estimators.diagonal import largest_rank, low_rank_columns
from evergrad._estimators.parts import apart, keys_for, together
from evergrad._estimators.scaling import balance, mixed
from evergrad._estimators.windowed import Windowed, check_window, sizes_of
from evergrad._native import kronecker


class KF(Windowed):
    """Kronecker-factored RTRL: G ≈ mean over `copies` of u ⊗ A.

        u' = c₁p₁u + c₂p₂ĥ,  A' = c₁HA/p₁ + c₂D/p₂,  c random signs;  p₁² = ‖HA‖/‖u‖, p₂² = ‖D‖/‖ĥ‖

    copies=1 is KF-RTRL, more are KF-RTRL-AVG. With `diagonal_rank=r`, D is first replaced by an optimal unbiased
    approximation of rank r (KF-RTRL-r-APPROX). dtype=jnp.bfloat16 keeps A in half the bytes, rounded at random.
    Memory n², time n³ a copy.
    Reference: Mujika et al. 2018; Benzing et al. 2019.

    Examples:
        >>> eg.KF(copies=8).unbiased
        True
    """

    copies: int = eqx.field(static=True)
    diagonal_rank: int | None = eqx.field(static=True)
    window: int = eqx.field(static=True)
    dtype: str | None = eqx.field(static=True, default=None)

    recommended: ClassVar[str] = "only an average of noisy estimates without bias fits."

    @classmethod
    def choices(cls, cell):
        return sizes_of(cls, "copies")

    @classmethod
    def usual(cls, cell):
        return [cls(copies=8)]

    def __init__(self, *, copies: int = 1, diagonal_rank: int | None = None, window: int = 0, dtype: Any = None):
        call = f"KF(copies={copies}, diagonal_rank={diagonal_rank}, window={window})"
        whole_number(copies, 1, call, "copies", "the number of independent estimates that are averaged")
        if diagonal_rank is not None:
            whole_number(diagonal_rank, 1, call, "diagonal_rank", "the rank that D is reduced to (None: not reduced)")
        check_window(window, call)
        self.copies, self.diagonal_rank, self.window = copies, diagonal_rank, window
        self.dtype = check_dtype(dtype, call)

    @property
    def influence(self):
        return kept_in(self.dtype, Factors(self.copies, self.diagonal_rank))


class Factors(Influence):
    """u ⊗ A of every linear map, so many times over."""

    copies: int = eqx.field(static=True)
    diagonal_rank: int | None = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def check_fit(self, cell):
        if self.diagonal_rank is not None:
            available = largest_rank(cell)
            refuse_unless(
                self.diagonal_rank < available,
                f"`KF(diagonal_rank={self.diagonal_rank})`: D of {type(cell).__name__}(units={cell.units}) has rank "
                f"{available} at most, so nothing is approximated: use diagonal_rank=None or one below {available}.",
            )

    def init(self, cell):
        dtype = weight_dtype(cell)

        def zeros(*shape):
            return jnp.zeros(shape, dtype)

        maps = maps_of(cell).maps
        of_maps = [(zeros(self.copies, e.p), zeros(len(e.rows), self.copies, e.q)) for e in maps]
        return together(of_maps, nothing_yet(cell))

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        found = block(repeated(cell, 1), jax.tree.map(lambda a: a[None], memory))
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)
        each = zip(maps, pairs, found.terms, keys_for(key, maps), strict=True)
        new = [self._absorbed(u, found.carry(a, e.rows), terms, memory, key) for e, (u, a), terms, key in each]
        return together(new, absorbed(rest, cell, found))

    def _absorbed(self, u, product, terms, memory, key):
        """All copies; the uses of a map are mixed in one after the other."""
        for use in range(len(terms.vectors)):
            keys = jax.random.split(jax.random.fold_in(key, use) if use else key, self.copies)

            def mix(u, a, key, use=use):
                return self._mix(u, a, terms.vectors[use], terms.columns[:, use], memory, key)

            u, product = jax.vmap(mix, in_axes=(0, 1, 0), out_axes=(0, 1))(u, product, keys)
        return u, product

    def _mix(self, u, a, vector, columns, memory, key):
        sign_key, rank_key = jax.random.split(key)
        sign = _sign(sign_key, u.dtype)
        if self.diagonal_rank is not None:
            columns = low_rank_columns(memory, columns, self.diagonal_rank, rank_key)
        return mixed((u, a), (vector, columns), (sign, sign))

    def absorb_all(self, carried, cells, memories, keys):
        def pure(carried, memories, keys):
            return stream_by_stream(self, carried, cells, memories, keys)

        if self.diagonal_rank is not None or memories.alive.shape[1] > 1:
            return pure(carried, memories, keys)
        return kronecker.fold_or(pure, functools.partial(kronecker.fold_by, sign_trick), carried, cells, memories, keys)

    def cost(self, sizes, block):
        numbers = self.copies * sizes.m * sizes.q
        pulled = sizes.m * sizes.pull if sizes.dense else 0
        return Cost(sizes.m * numbers + pulled, 0, 10 * numbers, 2.3 * numbers + sizes.m * sizes.q, 20)

    def contract(self, carried, cell, delta):
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)

        def of_map(each, u, a):
            return jnp.einsum("bcp,bcq->pq", u, through(rows_of(delta, each.rows, axis=1), a))

        found = [of_map(each, *pair) / self.copies for each, pair in zip(maps, pairs, strict=True)]
        return assembled(cell, found, contracted(rest, cell, delta))

    def materialise(self, carried, cell):
        pairs, rest = apart(carried, maps_of(cell).maps, 2)
        return whole_influence(cell, [jnp.einsum("cp,mcq->mpq", u, a) / self.copies for u, a in pairs], rest)


def _sign(key, dtype):
    """Of c₁c₂, the only one that shows."""
    return jax.random.rademacher(key, (), dtype)


def sign_trick(
    vectors: Float[Array, "N p"], gram: UInt32[Array, "N N 2"], key: jax.Array
) -> tuple[Float[Array, "N-1 p"], Float[Array, "N N-1"]]:
    """`Factors._mix` of all copies at once, from the inner products of the matrices HA and of D: u', and A' as weights of those."""
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
