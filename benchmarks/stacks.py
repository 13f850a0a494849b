"""A stack of two LSTMs of 64 units on the copy task: OK, exact RTRL and the layerwise scheme at equal steps.

    python benchmarks/stacks.py                       # string lengths learned, three seeds each, and what layerwise drops
    python benchmarks/stacks.py --times               # milliseconds a step, beside one layer of 128 units: on quiet cores

Same network, streams, rate and seeds for all; an update at every step. Every run is written down when it ends, into
benchmarks/results/stacks.json, and one that stands there with the same settings is not run again.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import numpy as np
import optax
from rich.console import Console
from rich.progress import track

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad._tasks import Copy
from evergrad._tasks.copy import SYMBOLS
from evergrad.lab.depth import dropped

UNITS, STREAMS, RATE, CLIP = 64, 8, 3e-3, 1.0
REPORT = 500  # steps
RESULTS = Path(__file__).parent / "results" / "stacks.json"
ESTIMATORS = {
    "OK(rank=8, window=4)": (eg.OK(rank=8, window=4), "exact"),
    "RTRL(window=64)": (eg.RTRL(window=64), "exact"),
    "OK(rank=8, window=4), layerwise": (eg.OK(rank=8, window=4), "layerwise"),
}
ONE_LAYER = f"OK(rank=8, window=4), one LSTM of {2 * UNITS}"


def stack(depth, key):
    one, two, three = jax.random.split(key, 3)
    cell = eg.Stack(eg.LSTM(SYMBOLS, UNITS, key=one), eg.LSTM(UNITS, UNITS, key=two), depth=depth)
    return eg.Model(cell, eg.Softmax(UNITS, SYMBOLS, key=three, initial="fan_in"))


def one_layer(key):
    one, two = jax.random.split(key)
    cell = eg.LSTM(SYMBOLS, 2 * UNITS, key=one)
    return eg.Model(cell, eg.Softmax(2 * UNITS, SYMBOLS, key=two, initial="fan_in"))


def begun(model, estimator, seed):
    """The learner, its state and the task's position before the first step."""
    state_key, task_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    learner = eg.Learner(model, estimator, optax.adam(RATE), clip=CLIP)
    return learner, learner.init(batch=STREAMS, key=state_key), Copy().start(batch=STREAMS, key=task_key)


def learned(name, seed, steps):
    """The longest string asked for, every REPORT steps, and what the layerwise scheme would drop in the end."""
    estimator, depth = ESTIMATORS[name]
    learner, state, position = begun(stack(depth, jax.random.key(seed)), estimator, seed)
    lengths = []
    for _ in track(range(steps // REPORT), f"{name}, seed {seed}", console=Console(stderr=True), transient=True):
        state, position, _ = learner.follow(state, Copy(), position, REPORT)
        lengths.append(int(position.length))
    return {"lengths": lengths, "dropped": shares(state.model, lengths[-1], jax.random.key(9))}


def shares(model, length, key, steps=200):
    """What the layerwise scheme drops of every layer's gradient, on strings of the length that the network has learned."""
    source = Copy(length=length, longest=length)
    position, data = source.start(batch=4, key=key), []
    for _ in range(steps):
        step, position = source.emit(position)
        data.append(step)
    data = jax.tree.map(lambda *a: np.stack(a), *data)
    found = dropped(model, data.x, data.y, data.reset, weights=data.weight, key=key)
    return [dataclasses.asdict(layer) | {"says": str(layer)} for layer in found]


def milliseconds(model, estimator, steps=REPORT):
    """A step, the median of five calls."""
    learner, state, position = begun(model, estimator, 0)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        state, position, _ = learner.follow(state, Copy(), position, steps)
        times.append(1e3 * (time.perf_counter() - start) / steps)
    return float(np.median(times[1:]))  # the first one compiles


def run_all(document, steps, seeds):
    runs = document["runs"]
    for seed in range(seeds):
        for name in ESTIMATORS:
            if str(seed) not in runs.setdefault(name, {}):
                runs[name][str(seed)] = learned(name, seed, steps)
                write_whole(RESULTS, json.dumps(document, indent=1) + "\n")
            show(name, seed, steps, runs[name][str(seed)])


def show(name, seed, steps, run):
    print(f"{name}, seed {seed}: length {run['lengths'][-1]} at {steps:,} steps; layerwise would drop", flush=True)
    for layer in run["dropped"]:
        print(f"  {layer['says']}", flush=True)


def time_all(document):
    models = {name: (stack(depth, jax.random.key(0)), each) for name, (each, depth) in ESTIMATORS.items()}
    models[ONE_LAYER] = one_layer(jax.random.key(0)), eg.OK(rank=8, window=4)
    document["ms"] = {}
    for name, (model, estimator) in models.items():
        document["ms"][name] = milliseconds(model, estimator)
        print(f"{name}: {document['ms'][name]:.2f} ms a step", flush=True)
    document["machine"] = machine()
    write_whole(RESULTS, json.dumps(document, indent=1) + "\n")


def opened(settings):
    """What is written down already, or, if it was of other settings, nothing."""
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    same = found.get("settings") == settings
    return {"settings": settings, "runs": found["runs"] if same else {}, "ms": found.get("ms", {}) if same else {}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--times", action="store_true", help="measure times only")
    options = parser.parse_args()
    network = f"two LSTMs of {UNITS}, copy"
    settings = {"network": network, "steps": options.steps, "streams": STREAMS, "rate": RATE, "clip": CLIP}
    document = opened(settings)
    time_all(document) if options.times else run_all(document, options.steps, options.seeds)


if __name__ == "__main__":
    main()
