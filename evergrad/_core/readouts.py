"""From the hidden state to predictions and losses."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evergrad._cells.initial import initial_weight
from evergrad._core.checks import check_class_targets, check_vector_targets, require_key, whole_number


class Readout(eqx.Module):
    """An affine map of h, and what its result means: a prediction, and a loss against a target.

    `eg.Head` is one of another form, for which z, y and the prediction may be pytrees.

    Examples:
        >>> isinstance(eg.Linear(units=8, outputs=1, key=key), eg.Readout)
        True
    """

    targets: ClassVar[str] = "numbers"  # what it predicts, in a word; "classes" if it has classes
    units: eqx.AbstractVar[int | None]  # None: whatever it takes
    weight: eqx.AbstractVar[Float[Array, "n outputs"]]
    bias: eqx.AbstractVar[Float[Array, " outputs"]]

    def __call__(self, h: Float[Array, " n"]) -> Any:
        return h @ self.weight + self.bias

    @abc.abstractmethod
    def predict(self, z: Any) -> Any: ...

    @abc.abstractmethod
    def loss(self, z: Any, y: Any) -> Float[Array, ""]: ...

    def taught(self, h: Float[Array, "B n"], y: Any, weight: Float[Array, " B"]) -> "Readout":
        """The readout after a step, for one that learns by itself and not by the optimiser."""
        return self

    @abc.abstractmethod
    def check(self, y: Any, lead: tuple[int, ...], weights: Any) -> None:
        """Refuses targets that do not fit; those of weight 0 are missing and may be anything."""


class Softmax(Readout):
    """Probabilities of `classes` symbols; the loss is −log p(y) in nats, for an integer y.

    Examples:
        >>> readout = eg.Softmax(units=8, classes=4, key=key)
        >>> readout.predict(readout(jnp.ones(8))).shape  # four probabilities
        (4,)
    """

    units: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    targets: ClassVar[str] = "classes"
    weight: Float[Array, "n outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, units: int, classes: int, *, key: jax.Array | None = None, initial: str = "normal"):
        call = f"Softmax(units={units}, classes={classes})"
        whole_number(classes, 2, call, "classes", "the number of symbols that can be predicted")
        self.units, self.classes = units, classes
        self.weight, self.bias = affine(call, units, classes, key, initial)

    def predict(self, z):
        return jax.nn.softmax(z)

    def loss(self, z: Float[Array, " outputs"], y: Int[Array, ""]) -> Float[Array, ""]:
        return cross_entropy(z, y)

    def check(self, y, lead, weights):
        check_class_targets(y, lead, self.classes, weights)


class Linear(Readout):
    """Real vectors; the loss is the squared error, summed over the `outputs`.

    Examples:
        >>> readout = eg.Linear(units=8, outputs=2, key=key)
        >>> float(readout.loss(jnp.zeros(2), jnp.ones(2)))
        2.0
    """

    units: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    targets: ClassVar[str] = "numbers"
    weight: Float[Array, "n outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, units: int, outputs: int, *, key: jax.Array | None = None, initial: str = "normal"):
        call = f"Linear(units={units}, outputs={outputs})"
        whole_number(outputs, 1, call, "outputs", "the number of entries of y")
        self.units, self.outputs = units, outputs
        self.weight, self.bias = affine(call, units, outputs, key, initial)

    def predict(self, z):
        return z

    def loss(self, z: Float[Array, " outputs"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        return jnp.sum((z - y) ** 2)

    def check(self, y, lead, weights):
        check_vector_targets(y, lead, self.outputs, weights)


def cross_entropy(z: Float[Array, " outputs"], y: Int[Array, ""]) -> Float[Array, ""]:
    """−log softmax(z) at class y, and not a number where there is no such class. By a sum in which all else is zero: where z is
    looked up at y XLA takes ten operations more, most of them for the derivative.
    """
    z = z - jax.lax.stop_gradient(z.max())
    classes = jnp.arange(len(z), dtype=y.dtype)
    there = (y >= 0) & (y < len(z))
    chosen = jnp.where(there, jnp.sum(jnp.where(classes == y, z, 0)), jnp.nan)
    return jnp.log(jnp.sum(jnp.exp(z))) - chosen


def affine(
    call: str, units: int, outputs: int, key: jax.Array | None, initial: str
) -> tuple[Float[Array, "n outputs"], Float[Array, " outputs"]]:
    """Weights and biases of a map of h, drawn."""
    whole_number(units, 1, call, "units", "the size of the hidden state")
    both = initial_weight(initial, (units + 1, outputs), units, key=require_key(key, call))
    return both[:-1], both[-1]
