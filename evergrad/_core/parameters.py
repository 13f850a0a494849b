"""What is trained: one definition, which the optimiser, the estimators and all checks ask."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


class Frozen(eqx.Module):
    """Something that a model has and nobody trains: `Frozen(module)`, used as `frozen.value`.

    Examples:
        >>> eg.parameters(eg.Frozen(jnp.ones(3))).value is None  # nothing to train
        True
        >>> eg.Frozen(jnp.ones(3)).value.tolist()
        [1.0, 1.0, 1.0]
    """

    value: Any


def parameters(tree: Any) -> Any:
    """The arrays of real numbers in a tree, but for those in a `Frozen`; None in the place of everything else.

    Examples:
        >>> trained = eg.parameters(eg.GRU(inputs=3, units=8, key=key))
        >>> sum(a.size for a in jax.tree.leaves(trained))
        384
    """
    return eqx.filter(jax.tree.map(_thawed, tree, is_leaf=_is_frozen), _is_real)


def _is_real(leaf: Any) -> bool:
    planned = isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    return planned or eqx.is_inexact_array(leaf)


def parted(tree: Any) -> tuple[Any, Any]:
    """What is trained, and the rest; `eqx.combine` puts them together again."""
    trained = parameters(tree)
    rest = jax.tree.map(lambda a, b: b if a is None else None, trained, tree, is_leaf=lambda a: a is None)
    return trained, rest


def repeated(tree: Any, steps: int) -> Any:
    """A module at so many steps at which it was the same: its parameters with an axis in front."""
    trained, rest = parted(tree)

    def repeat(a):
        return jnp.broadcast_to(a[None], (steps, *a.shape))

    return eqx.combine(jax.tree.map(repeat, trained), rest)


def _is_frozen(node: Any) -> bool:
    return isinstance(node, Frozen)


def _thawed(node: Any) -> Any:
    return jax.tree.map(lambda _: None, node) if _is_frozen(node) else node
