"""The comparison: every model on every stream, and what is written of it."""

import csv
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from evergrad._core.files import written_whole
from evergrad.bench.streams import validate
from evergrad.bench.streams.rivals import LEARNERS, OURS, fixed, seeded
from evergrad.bench.streams.sets import Stream

WARM = 100  # samples left out of the times: they hold what is compiled once
DEEP_RIVER = "deep-river LSTM"
ONE_BY_ONE, WHOLE = f"{OURS}, one by one", f"{OURS}, whole series"

Wanted = Callable[[str, str, int], bool]  # stream, model, seed


class FailedRival(RuntimeError):
    """What we are compared with could not be run; the message says why and what to do."""


@dataclass(frozen=True)
class Result:
    """One model with one seed on one stream. An error is a mean absolute one, or a share of wrong labels."""

    stream: str
    model: str
    seed: int
    samples: int
    error: float
    median_ms: float
    p99_ms: float
    megabytes: float


def run(stream: Stream, model: str, seed: int, made) -> Result:
    predictions, seconds = validate.validate(made, stream.features, stream.targets, stream.delay)
    return _result(stream, model, seed, predictions, seconds, validate.size(made))


def run_at_once(stream: Stream, model: str, seed: int, make: Callable[[int], Any]) -> Result:
    """A whole series handed over, timed on a second series of its length, when all is compiled."""
    names = sorted({name for x in stream.features for name in x}, key=repr)
    X, y = np.array([[x[name] for name in names] for x in stream.features]), np.array(stream.targets)
    make(seed).run(X, y, delay=stream.delay)
    made = make(seed)
    start = time.perf_counter()
    predictions = made.run(X, y, delay=stream.delay).tolist()
    each = (time.perf_counter() - start) / len(y)
    return _result(stream, model, seed, predictions, [each] * len(y), validate.size(made))


def compare(stream: Stream, seeds: int, wanted: Wanted) -> Iterator[Result]:
    """Those results that are wanted, one after the other.

    Ours that learn numbers are handed the whole series, which gives the errors of learning one by one; labels come one by one,
    since nobody knows at the start how many there will be. With seed 0 it is done the other way too, for its time.
    """
    for name, make in fixed(stream).items():
        if wanted(stream.name, name, 0):
            yield run(stream, name, 0, make())
    same = len({frozenset(x) for x in stream.features}) == 1  # features in all samples, as arrays have them
    whole = same and not stream.classes
    for name, make in seeded(stream).items():
        for seed in range(seeds):
            if wanted(stream.name, name, seed):
                at_once = whole and name in LEARNERS
                yield run_at_once(stream, name, seed, make) if at_once else run(stream, name, seed, make(seed))
    if whole and wanted(stream.name, ONE_BY_ONE, 0):
        yield run(stream, ONE_BY_ONE, 0, seeded(stream)[OURS](0))
    if same and stream.classes and wanted(stream.name, WHOLE, 0):
        yield run_at_once(stream, WHOLE, 0, seeded(stream)[OURS])


def compare_deep_river(streams: list[Stream], seeds: int, python: Path, wanted: Wanted) -> Iterator[Result]:
    """In its own environment, since its pins conflict with ours."""
    for seed in range(seeds):
        left = [stream for stream in streams if wanted(stream.name, DEEP_RIVER, seed)]
        if left:
            yield from _deep_river(left, seed, python)


def _deep_river(streams, seed, python):
    content = [
        {key: getattr(s, key) for key in ("name", "features", "targets", "delay", "classes", "first")} for s in streams
    ]
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "streams.json"), Path(folder, "results.json")
        given.write_text(json.dumps(content))
        _run_rival([python, deep_river_run_path(), given, found, validate.__file__, str(seed)])
        for stream, got in zip(streams, json.loads(found.read_text()), strict=True):
            yield _row(stream, DEEP_RIVER, seed, got["error"], got["seconds"], got["bytes"])


def _run_rival(words: list) -> None:
    try:
        subprocess.run(words, check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise FailedRival(
            f"deep-river failed ({error}): results without it, or with the seeds before, are written. Mend its "
            "environment (`make bench-streams` makes one), or leave it out with --deep-river none."
        ) from None


def deep_river_run_path() -> Path:
    return Path(__file__).with_name("deep_river_run.py")


def summary(results: list[Result]) -> list[dict[str, object]]:
    """One row a stream and model: mean and spread of the error over seeds, and the times of the seeds' medians."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        groups.setdefault((r.stream, r.model), []).append(r)
    return [
        {
            "stream": stream,
            "model": model,
            "samples": rows[0].samples,
            "seeds": len(rows),
            "error": statistics.mean(r.error for r in rows),
            "spread": statistics.stdev([r.error for r in rows]) if len(rows) > 1 else 0.0,
            "median_ms": statistics.median(r.median_ms for r in rows),
            "p99_ms": statistics.median(r.p99_ms for r in rows),
            "megabytes": rows[0].megabytes,
        }
        for (stream, model), rows in groups.items()
    ]


def write_csv(results: list[Result], path: Path) -> None:
    with written_whole(path) as beside, beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, asdict(results[0]).keys())
        writer.writeheader()
        writer.writerows(asdict(r) for r in results)


def read_csv(path: Path) -> list[Result]:
    """What `write_csv` wrote; nothing if there is no such file."""
    if not path.exists():
        return []
    kinds = get_type_hints(Result)
    with path.open(newline="") as file:
        return [Result(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def _result(stream, model, seed, predictions, seconds, size):
    error = validate.error(predictions, stream.targets, stream.first, stream.classes)
    return _row(stream, model, seed, error, seconds, size)


def _row(stream, model, seed, error, seconds, size):
    ms = np.array(seconds[WARM:] or seconds) * 1e3
    median, p99 = (round(float(np.percentile(ms, q)), 4) for q in (50, 99))
    return Result(stream.name, model, seed, len(seconds), round(error, 6), median, p99, round(size / 1e6, 4))
