# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # Which estimator?
#
# An estimator finds the gradient. They differ in how far back they see, how noisy they are and what they cost. Three tools
# answer the three questions **for your network on your data**: `eg.lab.reach`, `eg.lab.probe` and `eg.plan`.
#
# ## Something to look at
#
# A stream whose target is the sum of the newest input and of an input of 20 steps ago, and an LSTM that has learned a little of it.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import optax

import evergrad as eg

STEPS = 1_000  # small: 60
LAG = 20
one, two, three = jax.random.split(jax.random.key(0), 3)
model = eg.Model(
    eg.LSTM(1, 16, key=one, initial="chrono:20"),
    eg.Linear(16, 1, key=two, initial="fan_in"),
)

xs = np.random.default_rng(0).normal(size=(STEPS, 8, 1)).astype("float32")
ys = xs + np.roll(xs, LAG, axis=0)

learner = eg.Learner(model, eg.OK(rank=8, window=16), optax.adam(5e-3), clip=1.0)
state, out = learner.run(learner.init(batch=8, key=three), xs, ys)
print(
    f"squared error: {float(out.losses[:50].mean()):.2f} in the first 50 steps, "
    f"{float(out.losses[-50:].mean()):.2f} in the last 50"
)

# %% [markdown]
# ## How far back does the gradient look?
#
# `reach` takes the exact gradient of some losses apart, by how long ago each part of it comes from. It costs one backward pass
# over the sequence for each loss that is looked at.

# %%
LOOKED_AT = 120  # small: 40
reach = eg.lab.reach(state.model, xs[:LOOKED_AT], ys[:LOOKED_AT], samples=16, key=three)
print(reach)

figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
axes.plot(np.arange(1, len(reach.shares) + 1), 100 * reach.shares, color="C0")
axes.axvline(LAG + 1, color="grey", lw=0.8, ls=":")
_ = axes.set(
    xlabel="horizon, steps", ylabel="% of the squared gradient", ylim=(None, 103)
)
# The share of the squared gradient that a horizon of so many steps has, over the horizon; the dotted line is the lag of the task

# %% [markdown]
# Two things to know. An **untrained** network looks less far back than the task needs, since it does not know yet that
# there is something to find: look again after some training. And what `reach` finds is what a horizon must be *at least*.
#
# ## How noisy is an estimate?
#
# `probe` compares the gradients of any estimators with the exact ones, without computing the exact ones: it asks for their
# components in random directions, which is cheap at any size.

# %%
candidates = {
    "TBPTT, 8 steps": eg.TBPTT(horizon=8, stride=1),
    "TBPTT, 32 steps": eg.TBPTT(horizon=32, stride=1),
    "OK, rank 8, window 16": eg.OK(rank=8, window=16),
    "OK, rank 8, no window": eg.OK(rank=8, window=0),
    "UORO": eg.UORO(),
}
probed = eg.lab.probe(
    state.model, candidates, xs[:LOOKED_AT], ys[:LOOKED_AT], probes=64, key=three
)
for name, found in probed.items():
    print(f"{name:22} {found}")

# %% [markdown]
# A cosine of 1 means: exactly the right direction. An estimator that is right in the mean (OK, UORO) may still have a low cosine in one
# step; the optimiser averages over many. One with a horizon that is too short is wrong in the same way every time, and
# nothing averages that out.
#
# ## What does it cost?
#
# `plan` says, before anything is run, what a step with each estimator takes, and recommends one for your budget.

# %%
UNITS = 512  # small: 16
plan = eg.plan(eg.LSTM(inputs=50, units=UNITS, key=one), batch=16, memory=8e9)
for option in plan.options:
    print(
        f"{option.estimator!s:48} {option.bytes / 1e9:6.2f} GB, {option.bias:8}"
        f"{'' if option.fits else '  too large'}"
    )
print("\nrecommended:", plan.recommended.estimator, "\n" + plan.why)

# %% [markdown]
# The command line has the same three: `evergrad lab reach RUN`, `evergrad lab noise` and `evergrad plan --units 512 --batch 16`.
#
# ## In short
#
# | what you found | take |
# |---|---|
# | `reach` says 30 steps, and says so after training too | `eg.TBPTT(horizon=32, stride=1)`: no noise, and the cheapest |
# | `reach` says "nearly all that could be seen", or you cannot know | `eg.OK(rank=8, window=16)` |
# | the network is small, up to some 64 units | `eg.RTRL(window=64)`: exact |
# | units that do not see each other (`eg.LRU`, `eg.MinGRU`, …) | `eg.RTRL()`: exact, and cheap at any size |
# | memory is short | `eg.KTP(rank=16, window=16)` or `eg.UORO(window=16)`, and expect noise |
#
# More: [choosing an estimator](../choosing-an-estimator.md), [all of them](../estimators.md).
