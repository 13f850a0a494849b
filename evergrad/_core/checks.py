"""Bad input is refused here, with what was given, why it cannot be, and what to do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from evergrad._core.printable import printable_lines


class InputError(ValueError):
    """Something the caller gave cannot be used; the message says what and what to do.

    Examples:
        >>> try:
        ...     eg.OK(rank=0)
        ... except eg.InputError as error:
        ...     print(error)
        `OK(rank=0, window=16, mix="sampling")`: rank must be a whole number >= 1, the number of Kronecker products that are kept.
    """

    def __init__(self, message: str):
        ValueError.__init__(self, printable_lines(message))


class DivergedError(ArithmeticError):
    """A loss became non-finite, or a weight. `state` and `losses` are those after the call that noticed.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.sgd(1e30))
        >>> xs = jnp.ones((20, 1, 1))
        >>> try:
        ...     learner.run(learner.init(batch=1, key=key), xs, xs)
        ... except eg.DivergedError as error:
        ...     print("at step", int(error.state.time), "or before")
        at step 20 or before
    """

    def __init__(self, message: str, state: Any, losses: Any):
        super().__init__(message)
        self.state = state
        self.losses = losses


def refuse_unless(ok: bool, message: str) -> None:
    """Raises an `InputError` with this message unless the condition holds."""
    if not ok:
        raise InputError(message)


def whole_number(value: Any, at_least: int, call: str, name: str, why: str) -> None:
    """Refuses anything but an int >= at_least that an array could have as a size. `call` is the call as written."""
    is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
    refuse_unless(is_int and bool(value >= at_least), f"`{call}`: {name} must be a whole number >= {at_least}, {why}.")
    refuse_unless(bool(value < 2**63), f"`{call}`: {name} must be below 2^63.")


def require_key(key: Any, call: str) -> jax.Array:
    """A usable single key: typed (jax.random.key) or raw (jax.random.PRNGKey)."""
    refuse_unless(
        key is not None,
        f"`{call}` draws random numbers and was given no key: pass key=jax.random.key(0) "
        "(another number gives another draw).",
    )
    is_key = hasattr(key, "dtype") and (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or (key.dtype == np.uint32 and key.shape[-1:] == (2,))
    )
    refuse_unless(is_key, f"`{call}`: key={key!r} is not a JAX key: pass key=jax.random.key(0).")
    return key


def is_traced(*arrays: Any) -> bool:
    """Whether the values are unknown yet, or not all in this process, so that only shapes can be checked."""
    return any(isinstance(a, Tracer) or _elsewhere(a) for a in jax.tree.leaves(arrays))


def _elsewhere(a: Any) -> bool:
    return isinstance(a, jax.Array) and not (a.is_fully_addressable or a.is_fully_replicated)


def refuse_given_away(tree: Any, what: str) -> None:
    """Refuses arrays whose memory a step has taken for the next state."""
    gone = any(isinstance(a, jax.Array) and not isinstance(a, Tracer) and a.is_deleted() for a in jax.tree.leaves(tree))
    refuse_unless(
        not gone,
        f"{what} was given away: `step`, `run`, `learn`, `follow` and `fit` use the memory of a state, and of the model in "
        "it, for the next one. Go on with the state that they returned, copy what you want to keep before "
        "(`best = eg.copy(state.model)`), or start with `learner.init(..., donate=False)`, whose states stay usable.",
    )


def _shape(a: Any) -> str:
    return f"{a.dtype}[{', '.join(map(str, a.shape))}]"


def check_inputs(
    x: Any, lead: tuple[int, ...], inputs: int, name: str = "x", *, of: str = "the cell's `inputs`"
) -> None:
    """x is ids of shape `lead` in 0..inputs-1, or finite real vectors of shape lead + [inputs]."""
    if np.issubdtype(x.dtype, np.integer):
        refuse_unless(
            x.shape == lead,
            f"{name} is {_shape(x)}: ids must have shape {list(lead)}; "
            f"for vectors pass floating-point numbers of shape {[*lead, inputs]}.",
        )
        _check_ids(x, inputs, name, of)
        return
    refuse_unless(
        jnp.issubdtype(x.dtype, np.floating),
        f"{name} is {_shape(x)}: pass integer ids or floating-point vectors.",
    )
    refuse_unless(
        x.shape == (*lead, inputs),
        f"{name} is {_shape(x)}, but the cell has inputs={inputs} and the streams need shape "
        f"{[*lead, inputs]} (or integer ids of shape {list(lead)}).",
    )
    check_finite(x, name)


def refuse_swapped(a: Any, lead: tuple[int, ...], name: str) -> None:
    """A hint for a sequence that has streams before steps."""
    if len(lead) != 2 or lead[0] == lead[1] or a.shape[:2] != lead[::-1]:
        return
    raise InputError(
        f"{name} has shape {list(a.shape)}, as if it had the {lead[1]} streams in front of the {lead[0]} steps: time comes "
        f"first here, [T, B, ...]. Use {name}.swapaxes(0, 1)."
    )


def check_class_targets(y: Any, lead: tuple[int, ...], classes: int, weights: Any) -> None:
    refuse_unless(
        np.issubdtype(y.dtype, np.integer) and y.shape == lead,
        f"y is {_shape(y)}: a Softmax readout needs integer targets of shape {list(lead)}.",
    )
    if not is_traced(y, weights):
        y = np.asarray(y)
        _check_ids(y if weights is None else np.where(np.asarray(weights) == 0, 0, y), classes, "y", "`classes`")


def check_vector_targets(y: Any, lead: tuple[int, ...], outputs: int, weights: Any, *, readout: str = "Linear") -> None:
    refuse_unless(
        jnp.issubdtype(y.dtype, np.floating) and y.shape == (*lead, outputs),
        f"y is {_shape(y)}: a {readout} readout with outputs={outputs} needs floating-point "
        f"targets of shape {[*lead, outputs]}.",
    )
    if not is_traced(y, weights):
        y = np.asarray(y)
        check_finite(y if weights is None else np.where((np.asarray(weights) == 0)[..., None], 0, y), "y")


def check_resets(resets: Any, lead: tuple[int, ...]) -> None:
    if resets is None:
        return
    refuse_unless(
        resets.dtype == np.bool_ and resets.shape == lead,
        f"reset is {_shape(resets)}: pass a bool array of shape {list(lead)}, True where a stream starts, or None.",
    )


def check_weights(weights: Any, lead: tuple[int, ...]) -> None:
    if weights is None:
        return
    refuse_unless(
        weights.shape == lead and (weights.dtype == np.bool_ or jnp.issubdtype(weights.dtype, np.floating)),
        f"weights is {_shape(weights)}: pass one number (or bool) per stream and step, shape {list(lead)}, "
        "0 where the target is missing.",
    )
    if not is_traced(weights):
        w = np.asarray(weights)
        refuse_unless(
            w.dtype == np.bool_ or bool(np.all(np.isfinite(w) & (w >= 0))),
            "weights has a negative or non-finite entry: weights are 0 (target missing) or positive.",
        )


def _check_ids(ids: Any, count: int, name: str, of: str) -> None:
    if is_traced(ids) or ids.size == 0:
        return
    ids = np.asarray(ids)
    low, high = int(ids.min()), int(ids.max())
    refuse_unless(
        low >= 0 and high < count,
        f"{name} has ids from {low} to {high}, but {of} is {count}, so ids run from 0 to {count - 1}: "
        "renumber the symbols or enlarge the model.",
    )


def check_finite(a: Any, name: str) -> None:
    if is_traced(a):
        return
    bad = ~np.isfinite(np.asarray(a))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{name} has {int(bad.sum())} NaN or infinite entries, the first at index {where}: "
            "clean the data, or give the step weight 0 where a target is missing."
        )
