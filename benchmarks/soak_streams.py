"""1,000,000 samples of a stream that goes wrong in every way we know, through regressor and classifier.

    python benchmarks/soak_streams.py [--samples 1000000] [--out benchmarks/results/soak_streams.json]

They come in blocks of 1,000: every tenth block one by one, the others by `run`, a third of these with targets five samples late.
Mixed in at random: NaN and missing features, gaps (samples that are predicted and never learned), targets that come late, outliers
and -9999 among features and targets, changes of unit by 1,000 and back, new levels, plateaus, features and categories that appear and
vanish, classes that appear and vanish. Every tenth part the resident memory and the errors are noted. It fails (exit code 1) if
anything is raised, if a prediction is not finite, or if memory in the last tenth exceeds that of the third tenth (until then
features and classes are still new) by 2 % or more. Errors are over all samples of which neither the target nor the one that was told last was wild.
"""

import argparse
import itertools
import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor

PARTS = 10
BLOCK, ALONE = 1000, 10  # samples in a block, and the blocks of which one is sent sample by sample
LATE = 5  # samples, in every third block that is sent as a whole
GROWTH = 1.02


def samples(number: int, seed: int) -> Iterator[tuple[dict[str, Any], float, str, bool, int]]:
    """Features, a number, a label, whether the number is wild, and how late the target comes (-1: never)."""
    rng = np.random.default_rng(seed)
    level, unit, still, swing = 0.0, 1.0, 0, 0.0
    for t in range(number):
        if rng.random() < 1e-4:
            unit = 1e-3 if unit == 1.0 else 1.0
        if rng.random() < 1e-4:
            level = 10 * rng.normal()
        still = 300 if rng.random() < 1e-4 else max(still - 1, 0)
        swing = swing if still else 0.9 * swing + 0.3 * rng.normal() + 0.3 * math.sin(t / 7)
        wild = rng.random() < 1e-3
        y = float(rng.choice([-9999.0, 1e6 * rng.normal()])) if wild else unit * (level + swing)
        late = -1 if rng.random() < 0.01 else int(rng.integers(2, 9)) if rng.random() < 0.01 else 0
        yield _features(rng, t, swing), y, _label(rng, t, swing), wild, late


def _features(rng, t, swing):
    era = t // 5_000  # some features, and some categories, are there in every fourth era only
    x: dict[str, Any] = {"wave": math.sin((t + 1) / 7), "noise": float(rng.normal()), "seen": swing}
    x[f"era {era % 4}"] = float(era % 7)
    x["kind"] = f"k{rng.integers(3) + 3 * (era % 8)}"
    if rng.random() < 0.02:
        x["noise"] = rng.choice([math.nan, -9999.0, 1e9])
    if rng.random() < 0.02:
        del x["wave"]
    if rng.random() < 0.01:
        x["seen"] = None
    return x


def _label(rng, t, swing):
    """Three classes, and one more in every other era; one in a hundred is drawn at random."""
    kinds = 3 + (t // 20_000) % 2
    return f"c{rng.integers(kinds) if rng.random() < 0.01 else min(int(2 * abs(swing)), kinds - 1)}"


class Student:
    """A learner with the targets that it has not been told yet, and how wrong it was."""

    def __init__(self, model: Any):
        self.model = model
        self.later: dict[int, list[tuple[dict[str, Any], Any, bool]]] = {}
        self.lost = self.baseline = 0.0
        self.judged = 0
        self.last, self.wild = None, False  # the target that was told last, and whether it was a wild one

    def take(self, t: int, x: dict[str, Any], y: Any, late: int, wild: bool) -> None:
        for then, target, odd in self.later.pop(t, ()):
            self.model.learn_one(then, target)
            self.last, self.wild = target, odd
        said = self.model.predict_one(x)
        if not wild and not self.wild and said is not None and self.last is not None:
            self._judge(said, y, self.last)
        if late == 0:
            self.model.learn_one(x, y)
        elif late > 0:
            self.later.setdefault(t + late, []).append((x, y, wild))
        if late == 0:
            self.last, self.wild = y, wild

    def take_block(self, block: list[tuple[dict[str, Any], Any, int, bool]], late: int) -> None:
        """By `run`. Targets that would come late, or never, are missing."""
        self.later.clear()
        there = [when == 0 for _, _, when, _ in block]
        missing, kind = (None, object) if isinstance(block[0][1], str) else (math.nan, float)
        y = np.array([target if told else missing for told, (_, target, *_) in zip(there, block, strict=True)], kind)
        said = self.model.run(pd.DataFrame([x for x, *_ in block]), y, delay=late)
        for t, (_, target, _, wild) in enumerate(block):
            if t >= max(late, 1) and there[t - max(late, 1)]:
                _, self.last, _, self.wild = block[t - max(late, 1)]
            if not wild and not self.wild and there[t] and self.last is not None:
                self._judge(said[t], target, self.last)
        for told, (_, target, _, wild) in list(zip(there, block, strict=True))[-max(late, 1) :]:
            if told:  # `run` has learned them all when it returns
                self.last, self.wild = target, wild

    def _judge(self, said, y, last):
        if isinstance(y, str):
            lost, baseline = said != y, last != y
        else:
            lost, baseline = abs(said - y), abs(last - y)
            if not math.isfinite(said):
                raise ArithmeticError(f"{said} was predicted")
        self.lost, self.baseline, self.judged = self.lost + lost, self.baseline + baseline, self.judged + 1


def run(number: int, seed: int) -> tuple[list[dict[str, float]], float]:
    students = Student(OnlineRNNRegressor(seed=seed)), Student(OnlineRNNClassifier(seed=seed))
    began, notes, stream = time.time(), [], samples(number, seed)
    for index in range(number // BLOCK):
        _send(index, list(itertools.islice(stream, BLOCK)), students)
        done = (index + 1) * BLOCK
        if done * PARTS // number > (done - BLOCK) * PARTS // number:
            notes.append(_note(done, students))
            print(json.dumps(notes[-1]), flush=True)
    return notes, time.time() - began


def _send(index, block, students):
    numbers, labels = students
    if index % ALONE:
        late = LATE if index % 3 == 0 else 0
        numbers.take_block([(x, y, when, wild) for x, y, _, wild, when in block], late)
        labels.take_block([(x, label, when, False) for x, _, label, _, when in block], late)
        return
    for t, (x, y, label, wild, when) in enumerate(block, index * BLOCK):
        numbers.take(t, x, y, when, wild)
        labels.take(t, x, label, when, False)


def _note(samples, students):
    numbers, labels = students
    return {
        "samples": samples,
        "resident_mib": round(_resident(), 1),
        "regressor_error_over_persistence": round(numbers.lost / numbers.baseline, 4),
        "classifier_wrong": round(labels.lost / labels.judged, 4),
        "last_class_wrong": round(labels.baseline / labels.judged, 4),
    }


def _resident() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # the most so far, where there is no better


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "soak_streams.json")
    options = parser.parse_args()
    notes, seconds = run(options.samples, options.seed)
    growth = notes[-1]["resident_mib"] / notes[2]["resident_mib"]
    result = {**machine(), "samples": options.samples, "seed": options.seed, "seconds": round(seconds)}
    result |= {"growth": round(growth - 1, 5), "flat": growth < GROWTH, "notes": notes}
    print(json.dumps(result, indent=2))
    write_whole(options.out, json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["flat"] else 1)


if __name__ == "__main__":
    main()
