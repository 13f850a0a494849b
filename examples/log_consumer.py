"""A consumer of a log, as Kafka has them, that learns from every record once, whenever it is killed.

    python examples/log_consumer.py LOG MODEL

A log is a sequence of records that are known by their offset; here it is a file with a JSON object {"x": …, "y": …} on each line, and an
offset is a line's number. What makes it exact is that the offset is kept *in* the model's file: model and offset change together, in
one atomic write, so that after a kill the consumer goes on behind the last record that the model it finds has learned. With Kafka, replace
`records` by a consumer that is told to seek to that offset, and never commit offsets to the broker.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evergrad.river import OnlineRNNRegressor

EVERY = 1000  # records from one save to the next
OFFSET = "log_offset"


def records(log: Path, offset: int) -> Iterator[dict[str, Any]]:
    """Those from an offset on. A last line without an end is still being written."""
    with log.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines):
            if number >= offset and line.endswith("\n"):
                yield json.loads(line)


def consume(log: Path, path: Path, every: int = EVERY) -> OnlineRNNRegressor:
    """Learns all that the model in `path` has not learned yet."""
    model = OnlineRNNRegressor.load(path) if path.exists() else OnlineRNNRegressor(seed=0)
    offset = model.notes.get(OFFSET, 0)
    for count, record in enumerate(records(log, offset), start=1):
        model.learn_one(record["x"], record["y"])
        model.notes = {OFFSET: offset + count}
        if count % every == 0:
            model.save(path)
    model.save(path)
    return model


if __name__ == "__main__":
    learned = consume(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"{learned.notes.get(OFFSET, 0):,} records learned")
