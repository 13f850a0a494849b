"""Readouts of any form: a module, a loss and a prediction of your own; a mean with its variance."""

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evergrad._core.checks import InputError, check_finite, check_vector_targets, is_traced, refuse_unless, whole_number
from evergrad._core.readouts import Readout, affine

Heads = Callable[..., Any] | dict[str, Callable[..., Any]]


class Head(Readout):
    """A readout of your own: z = module(h), a loss(z, y) that is one number, and what it predicts, predict(z); z by default.

    `module` is any Equinox module or function of h [n], of one stream; its arrays are trained. z and y may be pytrees. With
    several heads `module` is a dict of them, and z a dict of what each gives; `loss` and `predict` are then functions of these
    dicts, or dicts too: a loss for each head, which are added up, each with the y of its name, and a prediction for each.
    A target is missing for all heads or for none (`weights=`); leave a term out of a loss of your own to do more.

    Examples:
        >>> def absolute(z, y):
        ...     return jnp.abs(z - y).sum()
        >>> head = eg.Head(eqx.nn.Linear(4, 2, key=key), absolute)
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), head)
        >>> model.losses(jnp.ones((20, 2, 1)), jnp.ones((20, 2, 2))).shape
        (20, 2)
    """

    module: Any
    loss_of: Any
    predict_of: Any
    targets: ClassVar[str] = "what its loss takes"

    def __init__(self, module: Heads, loss: Heads, predict: Heads | None = None):
        _check_callable(module, "module", "eqx.nn.Linear(8, 2, key=key)")
        _check_callable(loss, "loss", "lambda z, y: jnp.sum((z - y) ** 2)")
        refuse_unless(
            not isinstance(loss, dict) or (isinstance(module, dict) and {*loss} == {*module}),
            f"Head(module, loss): there are losses for {_names(loss)} and modules for {_names(module)}: give one each.",
        )
        if predict is not None:
            _check_callable(predict, "predict", "jax.nn.softmax")
        refuse_unless(
            not isinstance(predict, dict) or (isinstance(module, dict) and {*predict} <= {*module}),
            f"Head(predict=...): there are predictions for {_names(predict)} and modules for {_names(module)}.",
        )
        self.module, self.loss_of, self.predict_of = module, loss, predict

    @property
    def units(self) -> int | None:
        """Whatever its module takes."""
        return None

    @property
    def weight(self) -> Array:
        return _no_matrix()

    @property
    def bias(self) -> Array:
        return _no_matrix()

    def __call__(self, h: Float[Array, " n"]) -> Any:
        if isinstance(self.module, dict):
            return {name: module(h) for name, module in self.module.items()}
        return self.module(h)

    def predict(self, z: Any) -> Any:
        if isinstance(self.predict_of, dict):
            return {name: self.predict_of.get(name, _itself)(z[name]) for name in z}
        return z if self.predict_of is None else self.predict_of(z)

    def loss(self, z: Any, y: Any) -> Float[Array, ""]:
        if isinstance(self.loss_of, dict):
            refuse_unless(
                isinstance(y, dict) and {*y} == {*self.loss_of},
                f"y has {_names(y)}, but the Head has losses for {_names(self.loss_of)}: pass a dict with a target for each.",
            )
            terms = [_one_number(loss(z[name], y[name]), name) for name, loss in self.loss_of.items()]
            return jnp.stack(terms).sum()
        return _one_number(self.loss_of(z, y))

    def check(self, y, lead, weights):
        """Streams in front, and finite numbers where there is a target; the rest is for the loss to say."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(y):
            name = f"y{jax.tree_util.keystr(path)}"
            refuse_unless(
                leaf.shape[: len(lead)] == lead,
                f"{name} has shape {list(leaf.shape)}: targets have the shape {list(lead)} of steps and streams in front.",
            )
            if jnp.issubdtype(leaf.dtype, jnp.inexact) and not is_traced(leaf, weights):
                there = np.ones(lead, bool) if weights is None else np.asarray(weights) != 0
                check_finite(np.where(there.reshape(lead + (1,) * (leaf.ndim - len(lead))), leaf, 0), name)


def _no_matrix() -> NoReturn:
    raise InputError(
        "an eg.Head has no one matrix of weights: exporting it, and Learner(feedback=...), need eg.Softmax or eg.Linear."
    )


def _check_callable(given: Any, name: str, example: str) -> None:
    each = given.values() if isinstance(given, dict) and given else [given]
    refuse_unless(
        all(callable(one) for one in each),
        f"Head({name}={given!r}): a {name} is a function, or a dict of them by name, such as {example}.",
    )


def _names(given: Any) -> str:
    return ", ".join(map(str, given)) if isinstance(given, dict) else "no names"


def _itself(z: Any) -> Any:
    return z


def _one_number(loss: Any, name: str | None = None) -> Float[Array, ""]:
    of = "" if name is None else f" of {name}"
    refuse_unless(
        hasattr(loss, "shape") and loss.shape == () and jnp.issubdtype(loss.dtype, jnp.floating),
        f"the Head's loss{of} gives {_form(loss)} for one stream, and has to give one real number: sum or average it.",
    )
    return loss


def _form(a: Any) -> str:
    return f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else type(a).__name__


class Gaussian(Readout):
    """A mean and a variance for every one of `outputs` numbers; the loss is −log N(y; mean, variance) in nats, summed.

    Predictions are a dict of "mean" and "variance". The variance is softplus of an affine map, and at least 10⁻⁶.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Gaussian(units=4, outputs=1, key=key))
        >>> _, predictions = model.run(jnp.ones((20, 2, 1)))
        >>> sorted(predictions), predictions["variance"].shape
        (['mean', 'variance'], (20, 2, 1))
    """

    units: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    targets: ClassVar[str] = "numbers"
    weight: Float[Array, "n both"]
    bias: Float[Array, " both"]

    def __init__(self, units: int, outputs: int, *, key: jax.Array | None = None, initial: str = "normal"):
        call = f"Gaussian(units={units}, outputs={outputs})"
        whole_number(outputs, 1, call, "outputs", "the number of entries of y")
        self.units, self.outputs = units, outputs
        self.weight, self.bias = affine(call, units, 2 * outputs, key, initial)

    def predict(self, z: Float[Array, " both"]) -> dict[str, Float[Array, " outputs"]]:
        mean, spread = jnp.split(z, 2)
        return {"mean": mean, "variance": jax.nn.softplus(spread) + _LEAST}

    def loss(self, z: Float[Array, " both"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        said = self.predict(z)
        mean, variance = said["mean"], said["variance"]
        return jnp.sum(jnp.log(2 * jnp.pi * variance) + (y - mean) ** 2 / variance) / 2

    def check(self, y, lead, weights):
        check_vector_targets(y, lead, self.outputs, weights, readout="Gaussian")


_LEAST = 1e-6  # variance
