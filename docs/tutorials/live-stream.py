# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # A stream learned live
#
# A sensor gives a reading now and then, for ever. We want to know the next readings, and the rule behind them may change at any
# time. So the model has to learn from every reading when it comes, and must never stop. `evergrad.river` has models for this, with
# the calls that [river](https://riverml.xyz) uses. You need `pip install 'evergrad[river]' matplotlib`.
#
# ## A sensor
#
# Ours reads a wave with some noise. After 600 samples the wave is another one: faster, larger and higher up.

# %%
import numpy as np

SAMPLES = 1_200  # small: 60
CHANGE = SAMPLES // 2
AHEAD = 3  # we want the reading three samples ahead

t = np.arange(SAMPLES + AHEAD)
before, after = np.sin(2 * np.pi * t / 25), 1 + 2 * np.sin(2 * np.pi * t / 14)
noise = np.random.default_rng(0).normal(size=len(t))
wave = (np.where(t < CHANGE, before, after) + 0.05 * noise).tolist()

# %% [markdown]
# ## Predict, then learn
#
# A sample is a dictionary of features. At sample `now` we ask for the reading three samples ahead. Its true value is known three
# samples later: only then can it be learned, and `learn_one` finds by itself the sample that it belongs to. There is
# nothing to scale, no window to choose and no training set.

# %%
import copy

from evergrad.river import OnlineRNNRegressor

model = OnlineRNNRegressor(seed=0)
stopped = None  # a copy that stops learning where the rule changes
errors, errors_stopped, errors_last = [], [], []

for now in range(SAMPLES):
    if now == CHANGE:
        stopped = copy.deepcopy(model)
    if now >= AHEAD:
        model.learn_one({"reading": wave[now - AHEAD]}, wave[now])
    sample, truth = {"reading": wave[now]}, wave[now + AHEAD]
    errors.append(abs(model.predict_one(sample) - truth))
    errors_last.append(abs(wave[now] - truth))  # to say: it stays as it is
    if stopped is not None:
        errors_stopped.append(abs(stopped.predict_one(sample) - truth))

# %%
import matplotlib.pyplot as plt


def smooth(values):
    return np.convolve(values, np.ones(30) / 30, "valid")


figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(
    smooth(errors_last), color="#9AA5B1", label="it stays as it is (persistence)", lw=1
)
axes.plot(
    CHANGE + np.arange(len(smooth(errors_stopped))),
    smooth(errors_stopped),
    color="C1",
    label="stopped learning",
    ls="--",
)
axes.plot(smooth(errors), color="C0", label="learns on")
axes.axvline(CHANGE, color="black", lw=0.8, ls=":")
axes.set(xlabel="sample", ylabel="error, mean of 30", ylim=(0, None))
_ = axes.legend(frameon=False, fontsize=8)
# Errors over the samples: where the rule changes all jump; the model that learns on comes down again, the one that stopped does not

# %%
last = slice(-SAMPLES // 10, None)
print(
    f"mean error in the last tenth: learns on {np.mean(errors[last]):.2f}, "
    f"stopped {np.mean(errors_stopped[last]):.2f}, "
    f"persistence {np.mean(errors_last[last]):.2f}"
)

# %% [markdown]
# ## How sure is it?
#
# `predict_interval_one` gives an interval that holds the truth as often as you say, in the long run, whatever the stream does.
# `report` says how the model is doing.

# %%
low, high = model.predict_interval_one({"reading": wave[-1]}, coverage=0.9)
print(f"with a chance of 90 % the reading is between {low:.2f} and {high:.2f}")
report = model.report()
print(
    {
        name: round(report[name], 3)
        for name in ("error", "error of persistence", "error against persistence")
        if name in report
    }
)

# %% [markdown]
# ## Stop, and go on tomorrow
#
# The file holds numbers and text only, never code. What is loaded goes on exactly where the other stopped.

# %%
model.save("sensor.safetensors")
again = OnlineRNNRegressor.load("sensor.safetensors")
again.predict_one({"reading": 1.0}) == model.predict_one({"reading": 1.0})

# %% [markdown]
# ## A series without features
#
# `OnlineRNNForecaster` takes values only, and says the next ones.

# %%
from evergrad.river import OnlineRNNForecaster

forecaster = OnlineRNNForecaster(seed=0)
for value in wave[CHANGE : CHANGE + SAMPLES // 4]:
    forecaster.learn_one(value)
[round(value, 1) for value in forecaster.forecast(horizon=4)]

# %% [markdown]
# ## What to expect of it
#
# The models here mix three predictions by how well each did so far: persistence, a linear one and the network's. On the seven real streams
# that we measured, most of the gain comes from the linear part, and the untruncated gradient was no better than a short
# window of TBPTT: [the tables](../streams.md#shown-on-real-data) say so. The network pays where the past matters in a way that is
# not linear.
#
# Labels instead of numbers: `OnlineRNNClassifier`. Many sensors at once, threads, anomalies: [streams](../streams.md). Late and missing
# targets: [how to](../how-to/missing-targets.md).
