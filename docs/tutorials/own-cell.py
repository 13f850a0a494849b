# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # Your own cell and loss
#
# A cell says what it computes, a readout says what a mistake costs. You write no derivative. This page makes one of each,
# checks that the gradients are right, and trains them.
#
# ## A cell, unit by unit
#
# Most recurrent cells do the same thing in every unit: they take some numbers that are linear in the input and the state (`z`), and
# the old state of the unit, and make the new state of the unit. That is all you write. Ours has one gate that
# decides how much of the old state to keep:

# %%
import jax
import jax.numpy as jnp

import evergrad as eg


class Minimal(eg.KroneckerCell):
    """h' = f h + (1 − f) tanh(z₂), f = σ(z₁)."""

    gates = (
        "xh1",
        "xh1",
    )  # what z₁ and z₂ see: the input, the state, and a constant for the bias

    def activate(self, z, state):
        keep = jax.nn.sigmoid(z[0])
        return (keep * state[0] + (1 - keep) * jnp.tanh(z[1]),)


one, two, three = jax.random.split(jax.random.key(0), 3)
cell = Minimal(inputs=1, units=8, key=one, initial="fan_in")
print(
    "weights:", cell.weight.shape, "(input, state and constant; two gates of 8 units)"
)

# %% [markdown]
# ## A loss
#
# A readout is a linear map of the state, and two functions of the result `z`: what is predicted, and what that costs if the truth is
# `y`. The squared error of `eg.Linear` is torn away by outliers. Huber's loss is not. Where a module and a function are all you
# need, `eg.Head(eqx.nn.Linear(8, 1, key=two), loss)` is a readout in one line; here it is a class, so that you see what one is:

# %%
import equinox as eqx
import optax


class Huber(eg.Readout):
    units: int = eqx.field(static=True)
    weight: jax.Array
    bias: jax.Array

    def __init__(self, units, outputs, *, key):
        self.units = units
        self.weight, self.bias = (
            jax.random.normal(key, (units, outputs)) / units**0.5,
            jnp.zeros(outputs),
        )

    def predict(self, z):
        return z

    def loss(self, z, y):
        return optax.huber_loss(z, y, delta=0.5).sum()

    def check(self, y, lead, weights):
        """Here you may refuse targets that cannot be."""


model = eg.Model(cell, Huber(units=8, outputs=1, key=two))

# %% [markdown]
# ## Are the gradients right?
#
# `eg.RTRL()` is exact: over a sequence its gradients sum up to those of full backpropagation, which JAX gives for `model.losses`.

# %%
xs = jax.random.normal(three, (20, 2, 1))  # 20 steps of 2 streams
ys = jnp.roll(xs, 3, axis=0)

_, gradients = eg.gradients(model, eg.RTRL(), xs, ys, key=three)
ours = gradients.cell.weight.sum(axis=0)
full = eqx.filter_grad(lambda model: model.losses(xs, ys).mean(axis=1).sum())(
    model
).cell.weight
print(
    f"largest difference {float(abs(ours - full).max()):.0e}, "
    f"largest gradient {float(abs(full).max()):.0e}"
)

# %% [markdown]
# So every estimator can use the cell. `OK` keeps a sum of 4 terms in the place of the exact influence and is right in the mean:

# %%
DRAWS = 200  # small: 4


def ok_gradient(key):
    return eg.gradients(model, eg.OK(rank=4, window=0), xs, ys, key=key)[
        1
    ].cell.weight.sum(axis=0)


draws = jax.lax.map(ok_gradient, jax.random.split(three, DRAWS), batch_size=20)
size = jnp.linalg.norm(full)
print(
    f"one draw is off by {float(jnp.linalg.norm(draws[0] - full) / size):.2%} "
    f"of the gradient's norm, "
    f"the mean of {DRAWS} by {float(jnp.linalg.norm(draws.mean(axis=0) - full) / size):.2%}"
)

# %% [markdown]
# ## Training
#
# The target is the input of three steps ago. One input in fifty is wild: that is what Huber's loss is for.

# %%
import numpy as np

STEPS = 3_000  # small: 60
rng = np.random.default_rng(0)
clean = rng.normal(size=(STEPS, 8, 1)).astype("float32")
wild = np.where(rng.random(clean.shape) < 0.02, 20, 1).astype("float32")
targets = np.roll(clean, 3, axis=0)

learner = eg.Learner(model, eg.OK(rank=4, window=4), optax.adam(5e-3), clip=1.0)
state, out = learner.run(learner.init(batch=8, key=three), clean, targets * wild)
missed = np.abs(np.asarray(out.predictions) - targets)
tenth = STEPS // 10
print(
    f"mean error, against the clean target: {missed[3:tenth].mean():.2f} "
    f"in the first tenth, {missed[-tenth:].mean():.2f} in the last"
)

# %% [markdown]
# ## Any recurrence at all
#
# Where units do not all do the same, subclass `eg.Cell` and write `initial`, `step` and `output` for one stream. Any Equinox layer may be
# inside, and the state may be any tree of arrays:


# %%
class Slow(eg.Cell):
    """A fast state, and a slow one that follows it."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    layer: eqx.nn.Linear

    def initial(self):
        return {"fast": jnp.zeros(self.units), "slow": jnp.zeros(self.units)}

    def step(self, state, x):
        fast = jnp.tanh(self.layer(jnp.concatenate([x, state["fast"], state["slow"]])))
        return {"fast": fast, "slow": 0.9 * state["slow"] + 0.1 * fast}

    def output(self, state):
        return state["slow"]


slow = eg.Model(
    Slow(1, 6, eqx.nn.Linear(13, 6, key=one)), eg.Linear(units=6, outputs=1, key=two)
)
learner = eg.Learner(slow, eg.OK(rank=4, window=4), optax.adam(5e-3))
state, out = learner.run(learner.init(batch=8, key=three), clean[:200], targets[:200])
print("trained for 200 steps, mean loss", round(float(out.losses[-50:].mean()), 2))

# %% [markdown]
# What cannot be done is refused with a reason. Here a weight matrix is used for more than multiplying a vector:


# %% tags=["raises-exception"]
class Odd(eg.Cell):
    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    matrix: jax.Array

    def initial(self):
        return jnp.zeros(self.units)

    def step(self, state, x):
        normed = self.matrix / jnp.linalg.norm(self.matrix)  # more than a product
        return jnp.tanh(normed @ jnp.concatenate([x, state]))

    def output(self, state):
        return state


odd = eg.Model(
    Odd(1, 6, jax.random.normal(one, (6, 7))), eg.Linear(units=6, outputs=1, key=two)
)
eg.Learner(odd, eg.OK(rank=4), optax.adam(5e-3))

# %% [markdown]
# More: [your own cell](../extending-a-cell.md), [networks of layers](../networks.md), [your own estimator](../extending-an-estimator.md).
