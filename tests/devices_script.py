"""A process with four devices: `python -m tests.devices_script NAME FILE` runs a scene and writes its arrays.

The number of devices is fixed when JAX starts, so scenes with several of them need a process of their own.
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import equinox as eqx
import jax
import numpy as np
import optax

import evergrad as eg
from evergrad.tasks.copy import Copy
from evergrad.tasks.series import Series
from evergrad.tasks.text import CharacterText

BATCH, STEPS, UNITS, INPUTS = 4, 200, 8, 5
ESTIMATORS = {
    "ok": eg.OK(rank=3, window=4),
    "ok0": eg.OK(rank=3, window=0),
    "ktp": eg.KTP(rank=3),
    "uoro": eg.UORO(window=2),
    "rtrl": eg.RTRL(),
    "rtrl4": eg.RTRL(window=4),
    "tbptt": eg.TBPTT(horizon=10, stride=5),
}


def mesh(devices):
    return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("any",))


def model(cell=eg.RHN, inputs=INPUTS, outputs=INPUTS):
    keys = jax.random.split(jax.random.key(1))
    return eg.Model(cell(inputs=inputs, units=UNITS, key=keys[0]), eg.Softmax(UNITS, outputs, key=keys[1]))


def learner(estimator, model):
    return eg.Learner(model, estimator, optax.adam(3e-3), clip=1.0)


def flat(tree):
    plain = lambda a: jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a  # noqa: E731
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(plain(leaf)) for path, leaf in leaves}


def streams(steps=STEPS):
    chance = np.random.default_rng(0)
    ids = chance.integers(0, INPUTS, (steps + 1, BATCH))
    return ids[:-1], ids[1:], chance.random((steps, BATCH)) < 0.02


def learned(estimator, devices, *, shard="lanes", cell=eg.RHN):
    """The losses of 200 steps, in two calls, and the state after them."""
    teacher = learner(estimator, model(cell))
    spread = {} if devices == 1 else {"mesh": mesh(devices), "shard": shard}
    state = teacher.init(batch=BATCH, key=jax.random.key(2), **spread)
    xs, ys, resets = streams()
    losses = []
    for part in (slice(0, 100), slice(100, None)):
        state, out = teacher.run(state, xs[part], ys[part], resets[part])
        losses.append(np.asarray(out.losses))
    return {"losses": np.concatenate(losses)} | flat(state)


def followed(source, position, devices):
    outputs = source.targets.shape[-1] if isinstance(source, Series) else INPUTS
    keys = jax.random.split(jax.random.key(1))
    readout = eg.Linear if isinstance(source, Series) else eg.Softmax
    inputs = source.inputs.shape[-1] if isinstance(source, Series) else INPUTS
    teacher = learner(
        eg.OK(rank=3, window=4),
        eg.Model(eg.RHN(inputs=inputs, units=UNITS, key=keys[0]), readout(UNITS, outputs, key=keys[1])),
    )
    state = teacher.init(batch=BATCH, key=jax.random.key(2), mesh=None if devices == 1 else mesh(devices))
    position = position(teacher.model)
    losses = []
    for steps in (63, 130):
        state, position, some = teacher.follow(state, source, position, steps, room=130)
        losses.append(some)
    return {"losses": np.concatenate(losses)} | flat((state, position))


def lanes(names):
    return {f"{name}/{n}": learned(ESTIMATORS[name], n) for name in names for n in (1, 2, 4)}


def influence(names):
    return {
        f"{name}/{cell.__name__}/{n}": learned(ESTIMATORS[name], n, shard="influence", cell=cell)
        for name in names
        for cell in (eg.RHN, eg.GRU)
        for n in (1, 4)
    }


def tasks():
    text = np.random.default_rng(0).integers(0, INPUTS, 500)
    rows = np.random.default_rng(1).normal(size=(4 * 200, 2)).cumsum(axis=0)
    copy, text, series = (
        Copy(threshold=0.9),
        CharacterText(text, reset_probability=0.05),
        Series(rows, [0], batch=BATCH),
    )
    start = lambda source: lambda _: source.start(batch=BATCH, key=jax.random.key(3))  # noqa: E731
    positions = {"copy": start(copy), "text": start(text), "series": lambda m: series.start(model=m)}
    sources = {"copy": copy, "text": text, "series": series}
    return {f"{name}/{n}": followed(sources[name], positions[name], n) for name in sources for n in (1, 4)}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    scene, file, *names = sys.argv[1:]
    results = tasks() if scene == "tasks" else {"lanes": lanes, "influence": influence}[scene](names)
    np.savez(file, **{f"{case}|{name}": array for case, arrays in results.items() for name, array in arrays.items()})
