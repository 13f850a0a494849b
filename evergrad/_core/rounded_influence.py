"""An influence that is kept in half the bytes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from evergrad._core.blocks import first_of
from evergrad._core.checks import refuse_unless
from evergrad._core.influence import Influence
from evergrad._core.rounding import rounded_at_random
from evergrad._core.streamwise import in_groups

BFLOAT16 = "bfloat16"


def check_dtype(dtype: Any, call: str) -> str | None:
    """The name of what an influence is kept in, None for that of the weights."""
    if dtype is None:
        return None
    try:
        name = jnp.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    refuse_unless(
        name == BFLOAT16,
        f"`{call}`: an influence is kept in the weights' own type (dtype=None) or in jnp.bfloat16, which has the same range in half "
        f"the bytes; {name} is neither.",
    )
    return name


def kept_in(dtype: str | None, influence: Influence) -> Influence:
    return influence if dtype is None else Rounded(influence, dtype)


class Rounded(Influence):
    """Another influence, whose large arrays (those with three axes: r·n² or n³ numbers) are kept with fewer digits.

    They are rounded at random at every fold, so that the mean stays right: rounding to the nearest would drop, again and again,
    what is small beside the whole. All is computed with all digits, some streams at a time.
    """

    whole: Influence
    dtype: str = eqx.field(static=True)

    def __init__(self, whole: Influence, dtype: str):
        self.whole, self.dtype = whole, dtype

    @property
    def unbiased(self) -> bool:
        return self.whole.unbiased

    @property
    def needs_kronecker(self) -> bool:
        return self.whole.needs_kronecker

    def check_fit(self, cell):
        self.whole.check_fit(cell)

    def exact_for(self, cell):
        stored = jax.eval_shape(self.init, cell)
        return self.whole.exact_for(cell) and all(a.dtype != self.dtype for a in jax.tree.leaves(stored))

    def init(self, cell):
        return jax.tree.map(lambda a: a.astype(self.dtype) if a.ndim == 3 else a, self.whole.init(cell))

    def absorb(self, carried, cells, memories, key):
        fold_key, key = jax.random.split(key)
        new = self.whole.absorb(self._widened(carried, first_of(cells)), cells, memories, fold_key)
        return _rounded(new, carried, key)

    def absorb_all(self, carried, cells, memories, keys):
        def some(carried, memories, keys):
            pairs = jax.vmap(jax.random.split)(keys)
            wide = self._widened(carried, first_of(cells))
            new = self.whole.absorb_all(wide, cells, memories, pairs[:, 0])
            return jax.vmap(_rounded)(new, carried, pairs[:, 1])

        def pure(carried, memories, keys):
            return in_groups(some, carried, memories, keys)

        return self.whole.absorb_rounded(pure, carried, cells, memories, keys)

    def contract(self, carried, cell, delta):
        return self.whole.contract(carried, cell, delta)

    def materialise(self, carried, cell):
        return self.whole.materialise(self._widened(carried, cell), cell)

    def cost(self, sizes, block):
        return self.whole.cost(sizes, block)

    def split(self, cell, parts):
        return self.whole.split(cell, parts)

    def _widened(self, carried, cell):
        """With all digits, for one stream or many."""
        return jax.tree.map(lambda a, form: a.astype(form.dtype), carried, jax.eval_shape(self.whole.init, cell))


def fold_keys(keys: jax.Array, arrays: int) -> tuple[jax.Array, jax.Array]:
    """What a fold of each stream draws from, and what the rounding of each of its arrays draws from, [B, arrays]."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], jax.vmap(lambda key: jax.random.split(key, arrays))(pairs[:, 1])


def _rounded(new: Any, like: Any, key: jax.Array) -> Any:
    leaves, form = jax.tree.flatten(new)
    keys = jax.random.split(key, len(leaves))
    old = jax.tree.leaves(like)
    kept = [
        a if a.dtype == b.dtype else rounded_at_random(a, b.dtype, k) for a, b, k in zip(leaves, old, keys, strict=True)
    ]
    return jax.tree.unflatten(form, kept)
