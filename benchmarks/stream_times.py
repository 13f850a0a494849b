"""What a sample costs, with the default settings: one by one, as part of a whole series, and the longest wait after warming up.

    python benchmarks/stream_times.py --data PATH [--rows 1500] [--rounds 5] [--out benchmarks/results/stream_times.json]

Of each stream the first rows, all streams in turn, round after round; of the rounds the median, of longest waits the longest: the speed of a
virtual machine wanders from one minute to the next. One by one is `predict_one` and `learn_one` together, after `warmup`: median, 99 % and the longest of
all, the first samples included. A whole series is `run`, timed when it is compiled, the best of three. `megabytes` is river's
`_memory_usage`. Exit code 1 if a median is above 0.25 ms, a whole series above 0.05 ms a sample, or a wait above 0.5 s.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad.bench.streams import sets, validate
from evergrad.bench.streams.rivals import ours

STREAMS = ["WaterFlow", "respiratory", "ETTh1", "Elec2"]
LONGEST = "longest wait, ms"
GOALS = {"one by one, median ms": 0.25, "whole series, ms": 0.05, LONGEST: 500.0}


def measured(stream: sets.Stream) -> dict[str, float]:
    model, classes = ours(stream, 0), len({*stream.targets}) if stream.classes else 0
    model.warmup(features=stream.features[0], classes=classes)
    _, seconds = validate.validate(model, stream.features, stream.targets, stream.delay)
    each = 1e3 * np.array(seconds)
    return {
        "samples": len(each),
        "one by one, median ms": round(float(np.median(each)), 4),
        "one by one, 99 % ms": round(float(np.quantile(each, 0.99)), 4),
        LONGEST: round(float(each.max()), 2),
        "whole series, ms": round(_whole(stream), 4),
        "megabytes": round(model._raw_memory_usage / 1e6, 3),
    }


def together(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of several rounds of one stream."""
    found = {what: float(np.median([each[what] for each in rounds])) for what in rounds[0]}
    return found | {LONGEST: max(each[LONGEST] for each in rounds), "samples": rounds[0]["samples"]}


def _whole(stream):
    names = sorted(stream.features[0], key=repr)
    X, y = np.array([[x[name] for name in names] for x in stream.features]), np.array(stream.targets)
    took = []
    for _ in range(4):  # the first compiles
        model, began = ours(stream, 0), time.perf_counter()
        model.run(X, y, delay=stream.delay)
        took.append(time.perf_counter() - began)
    return 1e3 * min(took[1:]) / len(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with respiratory/, ett/ and elec2/")
    parser.add_argument("--only", nargs="*", default=STREAMS)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    streams = [stream.beginning(given.rows) for stream in sets.streams(given.data, given.only)]
    rounds = [{stream.name: measured(stream) for stream in streams} for _ in range(given.rounds)]
    found = {stream.name: together([each[stream.name] for each in rounds]) for stream in streams}
    missed = [
        f"{name}, {what}: {row[what]}"
        for name, row in found.items()
        for what, goal in GOALS.items()
        if row[what] > goal
    ]
    result = {
        **machine(),
        "rows": given.rows,
        "rounds": given.rounds,
        "goals": GOALS,
        "streams": found,
        "missed": missed,
    }
    print(json.dumps(result, indent=2))
    if given.out:
        write_whole(given.out, json.dumps(result, indent=2) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
