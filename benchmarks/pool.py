"""One network for 10,000 keys: samples a second, bytes a key, and the error against persistence.

    python benchmarks/pool.py [--keys 10000] [--batches 1 64 1024] [--seconds 10] [--rounds 40] [--out benchmarks/results/pool.json]

Every key is a series of its own: a wave with its own period, phase, level and unit, and noise. Speed: batches of arbitrary keys
(some come twice), learned with `run`, which predicts before it learns; compiling is not counted. Bytes: what the arrays keep of a
key (`bytes_a_key`), and by how much the resident memory grew for one. Errors: a new pool learns so many rounds, each a sample of
every key in batches of the largest size, one update a batch (more where a key comes twice); of the last half of them the mean
absolute error of each key over persistence's, and its quartiles over the keys. Seed 0 for data and weights, default settings.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad.river import OnlineRNNPool


class Series:
    """So many waves; the next sample of any of them."""

    def __init__(self, keys: int):
        rng = self.rng = np.random.default_rng(0)
        self.period, self.phase = rng.uniform(6, 40, keys), rng.uniform(0, 7, keys)
        self.unit, self.level = 10.0 ** rng.uniform(-2, 4, keys), rng.normal(size=keys)
        self.time = np.zeros(keys)

    def next(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features [n, 2], the wave one sample before and noise, and targets [n]. Keys that come twice are asked twice of one moment."""
        self.time[np.unique(keys)] += 1
        angle = (2 * np.pi * self.time / self.period + self.phase)[keys]
        y = self.unit[keys] * (self.level[keys] + np.sin(angle) + 0.1 * self.rng.normal(size=len(keys)))
        before = angle - (2 * np.pi / self.period)[keys]
        return np.stack([np.sin(before), self.rng.normal(size=len(keys))], axis=1), y


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filled(keys: int, batch: int) -> tuple[OnlineRNNPool, float]:
    """A pool that knows all keys, and by how many bytes a key the memory grew."""
    model, series = OnlineRNNPool(seed=0), Series(keys)
    model.warmup(features=2, batch=batch)
    before = resident()
    for part in np.array_split(np.arange(keys), max(1, keys // batch)):
        model.learn_many(*series.next(part), part)
    return model, (resident() - before) / keys


def pace(model: OnlineRNNPool, keys: int, batch: int, seconds: float) -> float:
    """Samples a second."""
    series, rng, done = Series(keys), np.random.default_rng(1), 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        which = rng.integers(keys, size=batch)
        model.run(*series.next(which), which)
        done += batch
    return done / (time.perf_counter() - begun)


def errors(keys: int, batch: int, rounds: int) -> np.ndarray:
    """Of each key, over persistence's."""
    model, series = OnlineRNNPool(seed=0), Series(keys)
    last, ours, theirs = np.zeros(keys), np.zeros(keys), np.zeros(keys)
    for i in range(rounds):
        for part in np.array_split(np.arange(keys), max(1, keys // batch)):
            X, y = series.next(part)
            said = model.run(X, y, part)
            if i >= rounds // 2:
                ours[part] += np.abs(y - said)
                theirs[part] += np.abs(y - last[part])
            last[part] = y
        print(f"\rround {i + 1} of {rounds}", end="", flush=True)
    print()
    return ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--seconds", type=float, default=10, help="for each size of batch")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "pool.json")
    options = parser.parse_args()
    model, grown = filled(options.keys, max(options.batches))
    found = {**machine(), "keys": options.keys, "bytes_a_key": model.bytes_a_key, "resident_bytes_a_key": round(grown)}
    print(f"{options.keys:,} keys, {model.bytes_a_key:,} bytes each in arrays, {grown:,.0f} in all")
    found["samples_a_second"] = {}
    for batch in options.batches:
        pace(model, options.keys, batch, min(1, options.seconds))
        found["samples_a_second"][batch] = round(pace(model, options.keys, batch, options.seconds))
        print(f"batches of {batch:,}: {found['samples_a_second'][batch]:,} samples a second")
    parts = np.quantile(errors(options.keys, max(options.batches), options.rounds), [0.25, 0.5, 0.75])
    found |= {"rounds": options.rounds, "error_over_persistence_quartiles": parts.round(4).tolist()}
    print(f"error over persistence's, a key: median {parts[1]:.3f}, quartiles {parts[0]:.3f} and {parts[2]:.3f}")
    write_whole(options.out, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
