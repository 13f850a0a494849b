"""A stack of two LSTMs of 64 units on the copy task: OK, exact RTRL and the layerwise scheme at equal steps.

    python benchmarks/stacks.py --steps 20000 --seeds 3 --json benchmarks/results/stacks.json

Same network, streams, rate and seeds for all; an update at every step. Prints the string length learned, milliseconds a
step beside one layer of 128 units, and what the layerwise scheme drops of each layer's gradient.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
import optax

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad._tasks import Copy
from evergrad._tasks.copy import SYMBOLS
from evergrad.lab.depth import dropped

UNITS, STREAMS, RATE = 64, 16, 3e-3
ESTIMATORS = {
    "OK(rank=8, window=16)": (eg.OK(rank=8, window=16), "exact"),
    "RTRL(window=64)": (eg.RTRL(window=64), "exact"),
    "OK(rank=8, window=16), layerwise": (eg.OK(rank=8, window=16), "layerwise"),
}


def network(depth, key, sizes=(UNITS, UNITS)):
    one, two, three = jax.random.split(key, 3)
    first = eg.LSTM(SYMBOLS, sizes[0], key=one)
    cell = first if len(sizes) == 1 else eg.Stack(first, eg.LSTM(sizes[0], sizes[1], key=two), depth=depth)
    return eg.Model(cell, eg.Softmax(sizes[-1], SYMBOLS, key=three, initial="fan_in"))


def learned(name, seed, steps, report):
    """Length reached at every report, seconds a step, and the model at the end."""
    estimator, depth = ESTIMATORS[name]
    model_key, state_key, task_key = jax.random.split(jax.random.key(seed), 3)
    learner = eg.Learner(network(depth, model_key), estimator, optax.adam(RATE), clip=1.0)
    source = Copy()
    state, position = learner.init(batch=STREAMS, key=state_key), source.start(batch=STREAMS, key=task_key)
    lengths, times = [], []
    for _ in range(steps // report):
        start = time.perf_counter()
        state, position, _ = learner.follow(state, source, position, report)
        times.append((time.perf_counter() - start) / report)
        lengths.append(int(position.length))
    return lengths, float(np.median(times)), state.model


def one_layer_ms(report):
    learner = eg.Learner(
        network("", jax.random.key(0), (2 * UNITS,)), eg.OK(rank=8, window=16), optax.adam(RATE), clip=1.0
    )
    source = Copy()
    state = learner.init(batch=STREAMS, key=jax.random.key(1))
    position = source.start(batch=STREAMS, key=jax.random.key(2))
    for _ in range(2):
        start = time.perf_counter()
        state, position, _ = learner.follow(state, source, position, report)
    return 1e3 * (time.perf_counter() - start) / report


def shares(model, key):
    """What the layerwise scheme drops on copy strings of the length that the network has learned."""
    length = 5
    source = Copy(length=length, longest=length)
    position, data = source.start(batch=4, key=key), []
    for _ in range(200):
        step, position = source.emit(position)
        data.append(step)
    data = jax.tree.map(lambda *a: np.stack(a), *data)
    return [str(layer) for layer in dropped(model, data.x, data.y, data.reset, weights=data.weight, key=key)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    document = {"product": "evergrad", "machine": machine(), "steps": options.steps, "streams": STREAMS, "rate": RATE}
    document["one_layer_of_128_ms"] = one_layer_ms(options.report)
    print(
        f"one LSTM of {2 * UNITS}, OK(rank=8, window=16): {document['one_layer_of_128_ms']:.2f} ms a step", flush=True
    )
    for name in ESTIMATORS:
        runs = []
        for seed in range(options.seeds):
            lengths, seconds, model = learned(name, seed, options.steps, options.report)
            runs.append({"seed": seed, "lengths": lengths, "ms": 1e3 * seconds})
            print(
                f"{name}, seed {seed}: length {lengths[-1]} at {options.steps:,} steps, {1e3 * seconds:.2f} ms",
                flush=True,
            )
        document[name] = {"runs": runs}
        if "layerwise" not in name and "OK" in name:
            document["dropped"] = shares(model, jax.random.key(9))
            print("the layerwise scheme would drop, on this network:", *document["dropped"], sep="\n  ", flush=True)
    if options.json:
        write_whole(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
