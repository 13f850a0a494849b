"""1,000,000 samples of a stream that goes wrong in every way we know, through regressor and classifier, one by one.

    python benchmarks/soak_streams.py [--samples 1000000] [--out benchmarks/results/soak_streams.json]

Mixed in at random: NaN and missing features, gaps (samples that are predicted and never learned), targets that come late, outliers
and -9999 among features and targets, changes of unit by 1,000 and back, new levels, plateaus, features and categories that appear and
vanish, classes that appear and vanish. Every tenth part the resident memory and the errors are noted. It fails (exit code 1) if
anything is raised, if a prediction is not finite, or if memory in the last tenth exceeds that of the third tenth (until then
features and classes are still new) by 2 % or more. Errors are over all samples whose target was not wild.
"""

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor

PARTS = 10
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
    return f"c{rng.integers(kinds) if rng.random() < 0.01 else int(3 * swing) % kinds}"


class Student:
    """A learner with the targets that it has not been told yet, and how wrong it was."""

    def __init__(self, model: Any):
        self.model = model
        self.later: dict[int, list[tuple[dict[str, Any], Any]]] = {}
        self.lost = self.baseline = 0.0
        self.judged, self.last = 0, None

    def take(self, t: int, x: dict[str, Any], y: Any, late: int, wild: bool) -> None:
        for then, target in self.later.pop(t, ()):
            self.model.learn_one(then, target)
        said = self.model.predict_one(x)
        if not wild and said is not None and self.last is not None:
            self._judge(said, y)
        if late == 0:
            self.model.learn_one(x, y)
        elif late > 0:
            self.later.setdefault(t + late, []).append((x, y))
        self.last = y if late == 0 else self.last

    def _judge(self, said, y):
        if isinstance(y, str):
            lost, baseline = said != y, self.last != y
        else:
            lost, baseline = abs(said - y), abs(self.last - y)
            if not math.isfinite(said):
                raise ArithmeticError(f"{said} was predicted")
        self.lost, self.baseline, self.judged = self.lost + lost, self.baseline + baseline, self.judged + 1


def run(number: int, seed: int) -> tuple[list[dict[str, float]], float]:
    students = Student(OnlineRNNRegressor(seed=seed)), Student(OnlineRNNClassifier(seed=seed))
    began, notes = time.time(), []
    for t, (x, y, label, wild, late) in enumerate(samples(number, seed)):
        students[0].take(t, x, y, late, wild)
        students[1].take(t, x, label, late, False)
        if (t + 1) % (number // PARTS) == 0:
            notes.append(_note(t + 1, students))
            print(json.dumps(notes[-1]), flush=True)
    return notes, time.time() - began


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
