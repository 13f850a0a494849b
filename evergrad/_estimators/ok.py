import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from evergrad._core.blocks import (
    absorbed,
    assembled,
    block,
    contracted,
    first_of,
    nothing_yet,
    weight_dtype,
    whole_influence,
)
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.costs import Cost
from evergrad._core.double import doubled, in_double, packed
from evergrad._core.influence import Influence, check_split, stream_by_stream
from evergrad._core.low_rank import MIXES, Mix, compress
from evergrad._core.maps import maps_of, rows_of
from evergrad._core.reading import through
from evergrad._core.rounded_influence import check_dtype, fold_keys, kept_in
from evergrad._estimators.parts import after, apart, keys_for, together
from evergrad._estimators.windowed import Windowed, check_window, ranks_up_to_default, sizes_of
from evergrad._native import kronecker

_SMALL = 1 << 16  # numbers of all terms below which they are made double all at once
_CHUNKS = 64  # else, that they are made double in


class OK(Windowed):
    """Optimal Kronecker-sum approximation: G ≈ Σ_{i≤r} uᵢ ⊗ Aᵢ, reduced from more terms at minimum variance.

        window=0, the paper's:  Σ uᵢ ⊗ HAᵢ + ĥ ⊗ D  (r + 1 terms → r at every step)
        window=k, ours:         Σ uᵢ ⊗ PAᵢ + Σₛ ĥₛ ⊗ SₛDₛ  (r + k terms → r every k steps, no noisier)

    mix: "sampling" keeps r of the singular directions, "signs" (the paper's) mixes them, "truncate" keeps the r
    largest, which is biased (B-OK). dtype=jnp.bfloat16 keeps the Aᵢ in half the bytes, rounded at random: as right in the mean.
    Memory r·n²; time r·n³ a step, with a window (g·r/k + 1)·n³.
    Reference: Benzing et al. 2019.

    Examples:
        >>> eg.OK(rank=8, window=16)
        OK(rank=8, window=16, mix='sampling')
        >>> eg.OK().unbiased, eg.OK(mix="truncate").unbiased
        (True, False)
    """

    rank: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    mix: Mix = eqx.field(static=True)
    dtype: str | None = eqx.field(static=True, default=None)

    recommended: ClassVar[str] = "exact RTRL does not fit; of those without bias it is the quietest."

    @classmethod
    def choices(cls, cell):
        return sizes_of(cls, "rank")

    @classmethod
    def usual(cls, cell):
        return ranks_up_to_default(cls)

    def __init__(self, *, rank: int = 8, window: int = 16, mix: Mix = "sampling", dtype: Any = None):
        call = f'OK(rank={rank}, window={window}, mix="{mix}")'
        whole_number(rank, 1, call, "rank", "the number of Kronecker products that are kept")
        check_window(window, call)
        refuse_unless(mix in MIXES, f'`{call}`: mix "{mix}" is unknown: choose one of {", ".join(MIXES)}.')
        self.rank, self.window, self.mix, self.dtype = rank, window, mix, check_dtype(dtype, call)

    @property
    def influence(self):
        return kept_in(self.dtype, KroneckerSum(self.rank, self.mix))


class KroneckerSum(Influence):
    """Σ uᵢ ⊗ Aᵢ of every linear map."""

    rank: int = eqx.field(static=True)
    mix: Mix = eqx.field(static=True)
    needs_kronecker: ClassVar[bool] = True

    def __init__(self, rank: int, mix: Mix):
        self.rank, self.mix = rank, mix

    @property
    def unbiased(self) -> bool:
        return self.mix != "truncate"

    def check_fit(self, cell):
        p = max(each.p for each in maps_of(cell).maps)
        refuse_unless(
            self.rank < p,
            f"`OK(rank={self.rank})` keeps at least as many terms as the influence has ({cell.units} units, {p} "
            f"regressors), so nothing is approximated: use `RTRL()` or a rank below {p}.",
        )

    def init(self, cell):
        dtype = weight_dtype(cell)
        of_maps = [self._nothing(each, dtype) for each in maps_of(cell).maps]
        return together(of_maps, nothing_yet(cell))

    def _nothing(self, each, dtype):
        rank = self._rank(each)
        return jnp.zeros((rank, each.p), dtype), jnp.zeros((len(each.rows), rank, each.q), dtype)

    def _rank(self, each):
        """A sum over p regressors never has more than p terms."""
        return min(self.rank, each.p)

    def absorb(self, carried, cells, memories, key):
        found, cell = block(cells, memories), first_of(cells)
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)
        new: list[tuple[Array, Array]] = []
        for each, pair, terms, own_key in zip(maps, pairs, found.terms, keys_for(key, maps), strict=True):
            earlier = new[-1][0] if new else None
            new.append(self._squeezed(each, found, pair, terms, own_key, earlier))
        return together(new, absorbed(rest, cell, found))

    def _squeezed(self, each, found, pair, terms, key, earlier):
        u, a = pair
        old, new = found.carry(a, each.rows), terms.columns
        vectors = after(jnp.concatenate([u, terms.vectors]), earlier)
        u, weights = mixing(vectors, _gram(old, new), len(u), self.mix, key)
        return u, _combine(weights[: len(u)], old) + _combine(weights[len(u) :], new)

    def absorb_all(self, carried, cells, memories, keys):
        def pure(carried, memories, keys):
            return stream_by_stream(self, carried, cells, memories, keys)

        return kronecker.fold_or(pure, functools.partial(kronecker.fold, self.mix), carried, cells, memories, keys)

    def absorb_rounded(self, pure, carried, cells, memories, keys):
        def fold(carried, cells, memories, keys):
            fold_key, rounding_keys = fold_keys(keys, len(carried))
            return kronecker.fold_rounded(self.mix, carried, cells, memories, fold_key, rounding_keys[:, 1])

        return kronecker.fold_or(pure, fold, carried, cells, memories, keys)

    def cost(self, sizes, block):
        m, q, r, k = sizes.m, sizes.q, min(self.rank, sizes.p), max(block, 1)
        suffixes = m * sizes.pull if block or sizes.dense else 0
        mixed = (r + k) * (2 * r + k) * q * m / k
        scratch = (2.3 * r * q + (k + 1) * m + 1.3 * k * q if block else 1.3 * r * q) * m
        products = suffixes + r * q * m * m / k
        calls = (30 + 2 * m + (r + k) ** 2 / 8) / k  # rows of small products, and the factorisations of mixing
        return Cost(products, mixed, r * q * m * (1 + 8 / k), scratch, calls)

    def contract(self, carried, cell, delta):
        maps = maps_of(cell).maps
        pairs, rest = apart(carried, maps, 2)
        found = [_contracted(rows_of(delta, each.rows, axis=1), *pair) for each, pair in zip(maps, pairs, strict=True)]
        return assembled(cell, found, contracted(rest, cell, delta))

    def split(self, cell, parts):
        """Every Aᵢ along the columns of its map: H A and combinations stay on a device, the Gram matrix is a sum over all."""
        maps = maps_of(cell)
        for each in maps.maps:
            check_split(each.q, parts, f"the {each.q} columns of each A")
        return together([(-1, 2)] * len(maps.maps), (-1,) * len(maps.rest))

    def materialise(self, carried, cell):
        pairs, rest = apart(carried, maps_of(cell).maps, 2)
        return whole_influence(cell, [jnp.einsum("rp,mrq->mpq", u, a) for u, a in pairs], rest)


def _contracted(
    delta: Float[Array, "B m"], u: Float[Array, "B r p"], a: Float[Array, "B m r q"]
) -> Float[Array, "p q"]:
    return jnp.einsum("brp,brq->pq", u, through(delta, a))


@in_double
def _gram(old: Float[Array, "m r q"], new: Float[Array, "m k q"]) -> UInt32[Array, "r+k r+k 2"]:
    """Inner products of all terms, in float64; some rows of the state after the other, so that the copy in double precision
    stays small.
    """

    def inner(old, new):
        terms = doubled(jnp.moveaxis(jnp.concatenate([old, new], axis=1), 1, 0))
        return jnp.tensordot(terms, terms, ((1, 2), (1, 2)))

    rows = len(old) if old.size + new.size < _SMALL else -(-len(old) // _CHUNKS)
    total = inner(*(a[len(a) // rows * rows :] for a in (old, new)))

    def add(total, some):
        return total + inner(*some), None

    chunks = jax.tree.map(lambda a: a[: len(a) // rows * rows].reshape(-1, rows, *a.shape[1:]), (old, new))
    return packed(jax.lax.scan(add, total, chunks)[0])


def _combine(weights: Float[Array, "N r"], terms: Float[Array, "m N q"]) -> Float[Array, "m r q"]:
    return jnp.matmul(jnp.broadcast_to(weights.T[None], (len(terms), *weights.T.shape)), terms)


def mixing(
    vectors: Float[Array, "N p"],
    gram: UInt32[Array, "N N 2"],
    rank: int,
    mix: Mix,
    key: jax.Array,
) -> tuple[Float[Array, "r p"], Float[Array, "N r"]]:
    """Σ uᵢ ⊗ Aᵢ as r terms: random u' [r, p] and weights w [N, r] with E[Σⱼ u'ⱼ ⊗ (Σᵢ wᵢⱼ Aᵢ)] = Σ uᵢ ⊗ Aᵢ, quietest.

    Of the Aᵢ, the largest arrays there are, only the Gram matrix is needed, in float64 and packed. All is done in float64 and only u' and w are
    rounded: in float32 an orthonormal basis forgets entries of the uᵢ that are 10⁻⁷ of the largest, a uniform number
    knows no probability below 10⁻⁷, and the Gram matrix of nearly dependent Aᵢ has no small eigenvalues.
    """

    @in_double
    def mixed(vectors, gram, key):
        left, right, d = directions(doubled(vectors), doubled(gram))
        z = compress(d, rank, mix, key)
        share = jnp.where(d[:, None] > 0, z / jnp.where(d > 0, d, 1)[:, None], 0)
        return tuple(jax.lax.convert_element_type(a, vectors.dtype) for a in ((left @ z).T, right.T @ share))

    return mixed(vectors, gram, key)


def directions(
    vectors: Float[Array, "N p"], gram: Float[Array, "N N"]
) -> tuple[Float[Array, "p i"], Float[Array, "i N"], Float[Array, " i"]]:
    """Orthonormal `left` with left @ right = (u₁ … u_N), and the lengths d of the nearly orthogonal rows of right A.

    With (u₁ … u_N) = Q R and X the left singular vectors of R L, for L Lᵀ the Gram matrix, left is Q X and right Xᵀ R.
    left E[Z Zᵀ]/d right = Q R for *any* orthogonal X and positive d: the jitter that keeps a Cholesky factorisation of
    dependent Aᵢ from breaking, and a d that rounding makes a guess, cost a little optimality, but no bias. So no d is less
    than what rounding makes of the parts of its row, which may be all there is; and it is 0 only where those parts, of
    float64, are themselves rounding: 10⁻¹⁵ of the largest.
    """
    q, r = jnp.linalg.qr(vectors.T)
    # Each of these factorisations waits for threads of XLA's pool while it holds one, so that two at a time can wait for each
    # other for good. They are made to follow each other: q is the last that the first one gives.
    root = _square_root(gram + 0 * q[0, 0])
    x, _, _ = jnp.linalg.svd(r @ root, full_matrices=False)
    left, right = q @ x, x.T @ r
    sign = _orientation(left)
    eps = jnp.finfo(gram.dtype).eps
    parts = jnp.abs(right) @ jnp.sqrt(jnp.diagonal(gram))
    d = jnp.sqrt(jnp.maximum(((right @ gram) * right).sum(axis=1), eps * parts**2))
    d = jnp.where(parts > len(d) * eps * parts.max(), d, 0)
    return left * sign[None], right * sign[:, None], d


def _orientation(directions: Float[Array, "p N"]) -> Float[Array, " N"]:
    """±1 for each direction, such that a draw depends on the influence and not on the signs that an SVD happens to give."""
    generic = jnp.cos(jnp.arange(1, len(directions) + 1, dtype=directions.dtype))
    return jnp.where(generic @ directions < 0, -1, 1).astype(directions.dtype)


def _square_root(gram: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """L with L Lᵀ = gram, a whisker larger, whatever rank gram has and whatever scales its terms have.

    A term so small that its squares underflow, which leaves its inner products unknown, is taken for zero.
    """
    limits, squares = jnp.finfo(gram.dtype), jnp.diagonal(gram)
    norms = jnp.sqrt(jnp.where(squares > limits.tiny / limits.eps, squares, 0))
    sizes = norms[:, None] * norms[None]
    cosines = jnp.where(sizes > 0, gram / jnp.where(sizes > 0, sizes, 1), 0)
    jitter = 1 + 512 * len(norms) * limits.eps  # more than what long sums are off by
    return norms[:, None] * jnp.linalg.cholesky(jnp.where(jnp.eye(len(norms), dtype=bool), jitter, cosines))
