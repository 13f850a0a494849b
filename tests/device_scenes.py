"""What is done on one device and on several of the four that tests/conftest.py makes: the arrays of every case."""

import equinox as eqx
import jax
import numpy as np
import optax

import evergrad as eg
from evergrad._tasks.copy import Copy
from evergrad._tasks.cue import Cue
from evergrad._tasks.series import Series
from evergrad._tasks.text import CharacterText
from evergrad.bench import scale
from evergrad.bench.settings import Setting
from evergrad.bench.traffic import moves

BATCH, STEPS, UNITS, INPUTS = 4, 200, 8, 5
ESTIMATORS = {
    "ok": eg.OK(rank=3, window=4),
    "ok0": eg.OK(rank=3, window=0),
    "ok8": eg.OK(rank=8, window=4),
    "ktp": eg.KTP(rank=3),
    "uoro": eg.UORO(window=2),
    "rtrl": eg.RTRL(),
    "rtrl4": eg.RTRL(window=4),
    "tbptt": eg.TBPTT(horizon=10, stride=5),
}


def mesh(devices):
    return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("any",))


def model(cell=eg.RHN, readout=eg.Softmax, inputs=INPUTS):
    keys = jax.random.split(jax.random.key(1))
    return eg.Model(cell(inputs=inputs, units=UNITS, key=keys[0]), readout(UNITS, inputs, key=keys[1]))


def stack(inputs, units, *, key):
    one, two = jax.random.split(key)
    return eg.Stack(eg.GRU(inputs, units, key=one), eg.LSTM(units, units, key=two))


def learner(estimator, model):
    return eg.Learner(model, estimator, optax.adam(3e-3), clip=1.0)


def flat(tree):
    plain = lambda a: jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a  # noqa: E731
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(plain(leaf)) for path, leaf in leaves}


def streams(steps=STEPS):
    """Symbols in a circle, now and then from anew."""
    ids = (np.arange(steps + 1)[:, None] + np.arange(BATCH)) % INPUTS
    return ids[:-1], ids[1:], np.random.default_rng(0).random((steps, BATCH)) < 0.02


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


def followed(source, devices):
    """The same of a task that makes its streams inside the loop, with its position."""
    models = {Series: {"readout": eg.Linear, "inputs": 2}, Cue: {"inputs": 4}}
    teacher = learner(eg.KTP(rank=3), model(**models.get(type(source), {})))
    state = teacher.init(batch=BATCH, key=jax.random.key(2), mesh=None if devices == 1 else mesh(devices))
    key = jax.random.key(3)
    position = source.start(model=teacher.model) if isinstance(source, Series) else source.start(batch=BATCH, key=key)
    if isinstance(source, Copy):  # as if it had been learned, so that strings grow
        position = eqx.tree_at(lambda p: p.bits, position, position.bits / 10)
    losses = []
    for steps in (63, 130):
        state, position, some = teacher.follow(state, source, position, steps, room=130)
        losses.append(some)
    return {"losses": np.concatenate(losses)} | flat((state, position))


def some_targets(name, devices):
    """60 steps: in blocks of five, no stream has a target in some and one of them in others."""
    teacher, n = learner(ESTIMATORS[name], model()), int(devices)
    state = teacher.init(batch=BATCH, key=jax.random.key(2), **({} if n == 1 else {"mesh": mesh(n)}))
    xs, ys, resets = streams(60)
    weights = np.zeros((60, BATCH))
    if name == "tbptt":
        weights[np.arange(2, 60, 5), np.arange(12) % BATCH] = 1
    else:
        weights[np.arange(0, 60, 2), np.arange(30) % BATCH] = 1
    state, _ = teacher.run(state, xs, ys, resets, weights=weights)
    state, out = teacher.run(state, xs[:20], ys[:20], resets[:20], weights=np.zeros((20, BATCH)))
    return {"losses": np.asarray(out.losses)} | flat(state)


def lanes(name, devices):
    return learned(ESTIMATORS[name], int(devices))


def influence(name, cell, devices):
    return learned(
        ESTIMATORS[name], int(devices), shard="influence", cell=stack if cell == "stack" else getattr(eg, cell)
    )


def task(name, devices):
    chance = np.random.default_rng(0)
    sources = {
        "copy": lambda: Copy(threshold=0.9),
        "cue": lambda: Cue(gap=5, gap_to=9),
        "text": lambda: CharacterText(chance.integers(0, INPUTS, 500), reset_probability=0.05),
        "series": lambda: Series(chance.normal(size=(BATCH * STEPS, 2)).cumsum(axis=0), [0, 1], batch=BATCH),
    }
    return followed(sources[name](), int(devices))


def program(name, devices, shard, units=16):
    """What one device holds, of what, and what moves: [loops, bytes] of every collective operation."""
    setting = Setting("program", units=int(units), batch=BATCH, rank=4, symbols=50, window=4)
    how = {"estimator": ESTIMATORS[name], "shard": shard}
    compiled = scale.compiled(setting, mesh(int(devices)), steps=2, **how)
    _, state, _ = scale.prepare(setting, mesh(int(devices)), 2, **how)
    size = lambda tree: sum(a.nbytes for a in jax.tree.leaves(eqx.filter(tree, eqx.is_array)))  # noqa: E731
    found = moves(compiled.as_text())
    return {
        "held": np.array(compiled.memory_analysis().argument_size_in_bytes),
        "state": np.array(size(state)),
        "influence": np.array(max(a.nbytes for a in jax.tree.leaves(state.track.carried))),
        "scratch": np.array(compiled.memory_analysis().temp_size_in_bytes),
        "all-reduce": np.array([(m.loops, m.bytes) for m in found if m.kind == "all-reduce"]).reshape(-1, 2),
        "other": np.array([(m.loops, m.bytes) for m in found if m.kind != "all-reduce"]).reshape(-1, 2),
    }


def refused(batch, shard):
    try:
        learner(eg.OK(rank=3), model()).init(batch=int(batch), key=jax.random.key(0), mesh=mesh(3), shard=shard)
    except eg.InputError as error:
        return {"message": np.array(str(error))}


SCENES = {each.__name__: each for each in (lanes, some_targets, influence, task, program, refused)}


def arrays_of(case):
    """Of one written as SCENE/ARGUMENT/…, by name."""
    scene, *arguments = case.split("/")
    return SCENES[scene](*arguments)
