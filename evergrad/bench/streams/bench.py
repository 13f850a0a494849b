"""The comparison: every model on every stream, and what is written of it."""

import csv
import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from evergrad._core.files import written_whole
from evergrad.bench.streams import validate
from evergrad.bench.streams.rivals import OURS, fixed, ours, seeded
from evergrad.bench.streams.sets import Stream

WARM = 100  # samples left out of the times: they hold what is compiled once
DEEP_RIVER = "deep-river LSTM"


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


def run_at_once(stream: Stream, seed: int) -> Result:
    """A whole series handed over, timed on a second series of its length, when all is compiled."""
    names = sorted({name for x in stream.features for name in x}, key=repr)
    X, y = np.array([[x[name] for name in names] for x in stream.features]), np.array(stream.targets)
    ours(stream, seed).run(X, y, delay=stream.delay)
    model = ours(stream, seed)
    start = time.perf_counter()
    predictions = model.run(X, y, delay=stream.delay).tolist()
    each = (time.perf_counter() - start) / len(y)
    return _result(stream, f"{OURS}, whole series", seed, predictions, [each] * len(y), validate.size(model))


def compare(stream: Stream, seeds: int):
    """Results, one after the other."""
    for name, make in fixed(stream).items():
        yield run(stream, name, 0, make())
    for name, make in seeded(stream).items():
        for seed in range(seeds):
            yield run(stream, name, seed, make(seed))
    if len({frozenset(x) for x in stream.features}) == 1:
        for seed in range(seeds):
            yield run_at_once(stream, seed)


def compare_deep_river(streams: list[Stream], seeds: int, python: Path):
    """In its own environment, since its pins conflict with ours."""
    content = [
        {key: getattr(s, key) for key in ("name", "features", "targets", "delay", "classes", "first")} for s in streams
    ]
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "streams.json"), Path(folder, "results.json")
        given.write_text(json.dumps(content))
        for seed in range(seeds):
            files = deep_river_run_path(), given, found, validate.__file__
            _run_rival([python, *files, str(seed)])
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


def _result(stream, model, seed, predictions, seconds, size):
    error = validate.error(predictions, stream.targets, stream.first, stream.classes)
    return _row(stream, model, seed, error, seconds, size)


def _row(stream, model, seed, error, seconds, size):
    ms = np.array(seconds[WARM:] or seconds) * 1e3
    median, p99 = (round(float(np.percentile(ms, q)), 4) for q in (50, 99))
    return Result(stream.name, model, seed, len(seconds), round(error, 6), median, p99, round(size / 1e6, 4))
