# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # First network
#
# We build a small recurrent network, let it learn from a stream, and look at the one thing that evergrad is for: learning from
# something that happened long ago. You need `pip install evergrad matplotlib`, some Python, and no knowledge of JAX.
#
# ## A stream
#
# Our stream is made of episodes of 25 steps. At the first step the network sees a cue, which is 0 or 1. Then it sees 23 times
# nothing (symbol 2), and at the last step a question mark (symbol 3). There it should say which cue it was.

# %%
import numpy as np

LENGTH = 25  # steps of an episode
STREAMS = 16  # as many episodes run side by side
EPISODES = 200  # small: 6


def episodes(count, seed):
    """Inputs, targets, and where a target is: three arrays [steps, streams]."""
    cues = np.random.default_rng(seed).integers(0, 2, (count, STREAMS))
    xs = np.full((count, LENGTH, STREAMS), 2)
    xs[:, 0], xs[:, -1] = cues, 3
    ys = np.broadcast_to(cues[:, None], xs.shape)
    asked = np.zeros(xs.shape)
    asked[:, -1] = 1
    return [a.reshape(count * LENGTH, STREAMS) for a in (xs, ys, asked)]


xs, ys, asked = episodes(EPISODES, seed=0)
print("one stream, its first steps:", xs[:30, 0])
print("a target is at steps", np.flatnonzero(asked[:60, 0]), "only")

# %% [markdown]
# ## A network
#
# A **cell** carries the hidden state from step to step. A **readout** turns the state into a prediction and says what a wrong one
# costs. Both together are a **model**. Everything random gets a key, so that you get the same numbers again.

# %%
import jax

import evergrad as eg

one, two, three = jax.random.split(jax.random.key(0), 3)
cell = eg.LSTM(
    inputs=4, units=16, key=one, initial="chrono:25"
)  # ready to remember for up to 25 steps
model = eg.Model(cell, eg.Softmax(units=16, classes=2, key=two))

# %% [markdown]
# ## Learning
#
# A **learner** is a model, an **estimator** (which finds the gradient) and an optimiser (which follows it). `eg.OK` is the estimator
# to begin with: its gradient reaches back to the beginning of the stream.

# %%
import optax

learner = eg.Learner(model, eg.OK(rank=8, window=8), optax.adam(1e-2), clip=1.0)
state = learner.init(batch=STREAMS, key=three)

# %% [markdown]
# `learner.step` takes one step: it predicts, compares, learns. Nothing is stored in the learner: you hand the state in and get the
# new one back.

# %%
state, out = learner.step(state, xs[0], ys[0], weights=asked[0])
out.predictions.shape  # a probability for each of 2 symbols, of 16 streams

# %% [markdown]
# `learner.run` does the same over many steps in one compiled loop, which is much faster. `weights` is 0 where there is no
# target: there the network only listens.

# %%
state = learner.init(batch=STREAMS, key=three)  # from the beginning
state, out = learner.run(state, xs, ys, weights=asked)


def right(out, ys, asked):
    """The share of right answers, episode by episode."""
    answers = np.asarray(out.predictions).argmax(-1) == ys
    return answers[asked[:, 0] == 1].mean(axis=1)


learned = right(out, ys, asked)
print(
    f"right answers in the first 5 episodes {learned[:5].mean():.0%}, "
    f"in the last 5 {learned[-5:].mean():.0%}"
)

# %% [markdown]
# ## The same with truncated backpropagation
#
# The usual way to train such a network remembers some steps and carries the error back through those. `eg.TBPTT(horizon=12,
# stride=1)` remembers twelve and learns at every step, as `eg.OK` does. Model, optimiser, data and keys are the same.

# %%
truncated = eg.Learner(
    model, eg.TBPTT(horizon=12, stride=1), optax.adam(1e-2), clip=1.0
)
_, out = truncated.run(truncated.init(batch=STREAMS, key=three), xs, ys, weights=asked)
guessed = right(out, ys, asked)

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(learned, color="C0", label="OK(rank=8, window=8)")
axes.plot(guessed, color="C1", label="TBPTT(horizon=12, stride=1)", linestyle="--")
axes.axhline(0.5, color="grey", lw=0.8)
axes.set(xlabel="episode", ylabel="share of right answers", ylim=(0, 1.05))
_ = axes.legend(frameon=False)
# The share of right answers over the episodes: that of OK rises to 1, that of TBPTT with a horizon of 12 steps stays at one half

# %% [markdown]
# The cue lies 24 steps before the question. With twelve remembered steps no error ever reaches it, so TBPTT guesses, however long
# it trains. With a horizon of 25 it would learn as well, and here that would be the better choice: it has no noise, and its step takes
# 0.18 ms where OK's takes 0.48 and that of a horizon of 12 takes 0.09 (`python benchmarks/step_times.py first`). But then one has to know
# the 25. *[Which estimator?](which-estimator.py)* shows how to find out.
#
# ## The trained model
#
# It is in the state: `state.model`. `losses` gives what it loses on a sequence, with its weights as they are, and `run` what it
# predicts.

# %%
new = episodes(4, seed=1)  # cues that it has never seen
losses = state.model.losses(*new[:2], weights=new[2])
print(
    f"loss at the questions: {float(losses.sum() / new[2].sum()):.4f} nats "
    f"(guessing costs {np.log(2):.4f})"
)

# %% [markdown]
# ## Where to go
#
# - Your data come one by one, for ever: *[A stream learned live](live-stream.py)*.
# - You have a cell or a loss of your own: *[Your own cell and loss](own-cell.py)*.
# - You would rather not write Python: *[Long runs](long-runs.py)* uses the command line.
