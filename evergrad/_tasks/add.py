from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from evergrad._core.checks import whole_number
from evergrad._core.sources import Data
from evergrad._tasks.generated import Generated, entropy, real


class AddStream(eqx.Module):
    past: Int[Array, " t2"]  # inputs, the newest first
    age: Int[Array, ""]


class Add(Generated):
    """x is a fair coin, and y another whose chance is ½ + ½ x(t − t₁) − ¼ x(t − t₂).

    Three levels of the loss say what has been learned: that of y's frequency, that of who knows x(t − t₁), and that of
    who knows both, the optimum. They do not depend on the lags, so the longest t₂ that is learned is the horizon of an
    estimator. The first t₂ steps of a stream have no target. Reference: Pitis 2016; Marschall et al. 2020.
    """

    inputs: ClassVar[int] = 2
    classes: ClassVar[int] = 2
    t1: int = eqx.field(static=True)
    t2: int = eqx.field(static=True)

    def __init__(self, t1: int, t2: int):
        call = f"Add(t1={t1}, t2={t2})"
        whole_number(t1, 1, call, "t1", "the lag of the input that counts for a half")
        whole_number(t2, t1 + 1, call, "t2", "the lag of the other, which is longer than t1")
        self.t1, self.t2 = t1, t2

    def begin(self, number, key):
        return AddStream(jnp.zeros(self.t2, jnp.int32), jnp.zeros((), jnp.int32))

    def proceed(self, stream, key):
        key_x, key_y = jax.random.split(key)
        x = jax.random.randint(key_x, (), 0, 2, jnp.int32)
        past = jnp.concatenate([x[None], stream.past])
        y = jax.random.bernoulli(key_y, chance(real(past[self.t1]), real(past[self.t2])))
        old = stream.age >= self.t2
        data = Data(x, jnp.asarray(y, jnp.int32), jnp.zeros((), bool), real(old))
        return data, AddStream(past[:-1], jnp.where(old, stream.age, stream.age + 1))

    def optimum(self):
        return loss_knowing(t1=True, t2=True)

    def ignorance(self):
        return loss_knowing(t1=False, t2=False)


def chance(near, far):
    """That y is 1, of the inputs t₁ and t₂ steps ago."""
    return 0.5 + 0.5 * near - 0.25 * far


def loss_knowing(*, t1: bool, t2: bool) -> float:
    """The least loss of who knows the input t₁ steps ago, that t₂ steps ago, both or neither."""
    known = [(near, far) for near in ((0, 1) if t1 else (0.5,)) for far in ((0, 1) if t2 else (0.5,))]
    # the chance is linear, so what is not known may be put in by its mean
    return sum(entropy((p, 1 - p)) for p in (chance(*inputs) for inputs in known)) / len(known)
