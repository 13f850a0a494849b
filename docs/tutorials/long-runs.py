# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # Long runs
#
# A training run of hours or days will be interrupted: by you, by a power cut, by a queue that gives the machine to somebody else.
# The command line is made for that. You need `pip install 'evergrad[cli]'`; nothing on this page is Python.
#
# ## Start
#
# A run is one folder. Everything about it is inside: settings, reports, checkpoints.

# %% language="bash"
# STEPS=600  # small: 20
# evergrad train cue --cell lstm --units 16 --batch 8 --gap 10 --gap-to 15 --steps $STEPS --report $((STEPS / 2)) --out runs/cue

# %% [markdown]
# ## Look
#
# `info` shows what a run is, how far it has come, and whether somebody is working on it now.

# %% language="bash"
# evergrad info runs/cue | head -20

# %% [markdown]
# ## Go on
#
# Ctrl-C, a kill or a crash stops a run at any moment; `evergrad resume runs/cue` goes on from the last checkpoint, **exactly**: the
# numbers at the end are those of a run that was never interrupted, to the last bit. A checkpoint is written every minute; with
# `--checkpoint-every` after so many steps as well. A run that is finished can be trained on:

# %% language="bash"
# STEPS=1200  # small: 40
# evergrad resume runs/cue --steps $STEPS

# %% [markdown]
# Is it really exact? We train a second run to the same end without stopping, and compare the reports. They have no times in them, so
# they must be the same file.

# %% language="bash"
# STEPS=1200  # small: 40
# REPORT=300  # small: 10
# evergrad train cue --cell lstm --units 16 --batch 8 --gap 10 --gap-to 15 --steps $STEPS --report $REPORT --out runs/whole > log.txt
# cmp runs/cue/metrics.jsonl runs/whole/metrics.jsonl && echo "the same, byte by byte"

# %% [markdown]
# ## Several devices
#
# The streams of a batch can be spread over devices. `--devices 4` takes four; on a CPU it makes four out of the one, which is good
# for trying it out. A run may go on with another number of devices than it was started with.

# %% language="bash"
# STEPS=1500  # small: 50
# evergrad resume runs/cue --steps $STEPS --devices 2

# %% [markdown]
# From Python, before the first thing that JAX does: `jax.config.update("jax_num_cpu_devices", 2)`, and then
# `learner.init(batch=8, key=key, mesh=jax.make_mesh((2,), ("devices",)))`. All other calls stay as they are.
#
# Several machines: start the same command on each of them, with `--coordinator HOST:PORT --processes 4 --process-id 0` (1, 2, 3), or
# `--processes auto` under SLURM, Open MPI or Kubernetes: [more than one device](../devices.md).
#
# ## When something goes wrong
#
# | you see | it means | do |
# |---|---|---|
# | exit code 3, "became non-finite" | it diverged; the checkpoints stay | a lower `--learning-rate`; [more](../how-to/loss-does-not-move.md) |
# | "is being worked on" | another process has the run | wait, or stop that one |
# | a checkpoint is named as damaged and set aside | the disk lost something | nothing: the one before it is used |
# | "the data changed since" | the file in `--data` is another one now | put the old one back, or start a new run |
#
# All exit codes, and what the folder holds: [training runs](../training.md).
