# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # The paper in an afternoon
#
# evergrad began with one paper: Benzing, Gauy, Mujika, Martinsson and Steger, *Optimal Kronecker-Sum Approximation of Real Time
# Recurrent Learning* (ICML 2019). This page walks through its idea with small programs, and ends with the command that
# makes all of its figures. You need `pip install 'evergrad[cli]'`.
#
# ## The problem
#
# To learn online one needs to know how the state *now* depends on every weight, through the whole past. That is a matrix G, the
# **influence**, with a row for each number in the state and a column for each weight. It can be carried forward:
# G' = H G + F, where H is how the new state depends on the old one, and F how it depends on the weights directly. That is **real-time
# recurrent learning** (RTRL). With n units it has about n³ numbers and takes n⁴ multiplications a step:

# %%
for n in (32, 128, 512):
    print(f"{n:4} units: {n**3:13,} numbers, {n**4:18,} multiplications a step")

# %% [markdown]
# ## The idea: a sum of few terms
#
# For most cells one step adds a Kronecker product to G, F = h ⊗ D: a vector times a matrix. So after t steps G is a sum of t such
# products. The paper keeps r of them. Every step makes r + 1 terms, and these must be made r again **without being wrong in the mean**.
# That is the same as to replace a small matrix of rank r + 1 by a random one of rank r:

# %%
import jax
import jax.numpy as jnp

import evergrad as eg

key = jax.random.key(0)
matrix = jax.random.normal(key, (5, 5))


def replaced(key):
    left, right = eg.optimal_low_rank(matrix, 2, key=key)  # two columns each: rank 2
    return left @ right.T


DRAWS = 20_000  # small: 200
draws = jax.vmap(replaced)(jax.random.split(key, DRAWS))
print(
    f"error of the mean  {float(jnp.linalg.norm(draws.mean(0) - matrix)):.3f} "
    f"(the matrix has the norm {float(jnp.linalg.norm(matrix)):.1f})"
)
print(f"variance           {float(((draws - matrix) ** 2).sum((1, 2)).mean()):.2f}")
print(
    f"least there can be {float(eg.optimal_variance(matrix, 2)):.2f}   (the paper's Theorem 2)"
)

# %% [markdown]
# Nothing that is right in the mean and of rank 2 has less variance. That is the "optimal" in the name, and `eg.OK` is this, at
# every step of a network.
#
# ## How noisy is it?
#
# The paper's Figure 3 asks for the angle between the estimated gradient and the exact one. Here is a small form of it: a network of 24
# units, 40 steps, and the estimators that came before.

# %%
import numpy as np

one, two, three = jax.random.split(key, 3)
model = eg.Model(
    eg.RHN(inputs=4, units=24, key=one, initial="fan_in"),
    eg.Softmax(units=24, classes=4, key=two, initial="fan_in"),
)
symbols = np.random.default_rng(0).integers(0, 4, (41, 4))
xs, ys = symbols[:-1], np.roll(symbols, 2, axis=0)[:-1]

estimators = {
    "OK, 8 terms": eg.OK(rank=8, window=0),
    "KF-RTRL, mean of 8": eg.KF(copies=8),
    "KF-RTRL": eg.KF(),
    "UORO": eg.UORO(),
}
for name, found in eg.lab.probe(
    model, estimators, xs, ys, probes=64, key=three
).items():
    print(f"{name:20} {found}")

# %% [markdown]
# For the same memory (8 terms of the same size) OK has far less noise than eight averaged copies of KF-RTRL.
#
# ## A window makes it cheaper and quieter
#
# That is ours, not the paper's. The newest k steps are kept as they are, and k terms are folded into the sum at once, every k steps. The
# reduction is done k times less often, and the newest steps, where most of the gradient is, carry no noise at all:

# %%
windows = {f"OK, 8 terms, window {k}": eg.OK(rank=8, window=k) for k in (0, 4, 8)}
for name, found in eg.lab.probe(model, windows, xs, ys, probes=64, key=three).items():
    print(f"{name:24} {found}")

# %% [markdown]
# ## The paper itself
#
# Every figure and table is one name:

# %% language="bash"
# evergrad paper list

# %% [markdown]
# The smallest of them takes seconds. It shows, for a tensor that the paper gives, approximations of rank 2 whose variance goes to 0,
# so that no best one exists (Lemma 2):

# %% language="bash"
# evergrad paper run lemma2 --budget quick --out paper

# %% [markdown]
# The whole paper, shrunk to minutes: `evergrad paper run all --budget quick`. In an afternoon and a night, on two cores:
#
# ```
# evergrad paper run all --budget desk --data PTB --jobs 2
# ```
#
# where `PTB` is a folder with the Penn Treebank, which cannot be shipped. Stop it when you like: the same command goes on. At the end there is
# one HTML page with a verdict for every number that the paper has, and it says where we do **not** reproduce it.
# [What came of it](../../experiments/README.md), [how it works](../paper.md), and [where we deviate](../deviations.md).
