"""examples/log_consumer.py: every record is learned once, whenever it is killed."""

import importlib.util
import json
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "log_consumer.py"


@pytest.fixture(scope="module")
def consumer():
    spec = importlib.util.spec_from_file_location("log_consumer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def log(path, count):
    lines = [json.dumps({"x": {"a": float(i % 5)}, "y": float((i + 1) % 5)}) + "\n" for i in range(count)]
    path.write_text("".join(lines))
    return lines


def test_killed_anywhere_it_has_learned_what_an_undisturbed_one_has(tmp_path, consumer, monkeypatch):
    log(tmp_path / "log", 60)
    whole = consumer.consume(tmp_path / "log", tmp_path / "whole")
    read = consumer.records

    def cut_short(path, offset):
        for count, record in enumerate(read(path, offset)):
            if count == 23:
                raise KeyboardInterrupt
            yield record

    monkeypatch.setattr(consumer, "records", cut_short)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            consumer.consume(tmp_path / "log", tmp_path / "cut", every=10)
    monkeypatch.undo()
    cut = consumer.consume(tmp_path / "log", tmp_path / "cut", every=10)
    assert cut.notes == whole.notes == {consumer.OFFSET: 60}
    assert cut.predict_one({"a": 2.0}) == whole.predict_one({"a": 2.0})


def test_a_record_that_is_still_being_written_waits(tmp_path, consumer):
    lines = log(tmp_path / "log", 8)
    (tmp_path / "log").write_text("".join(lines)[:-3])
    assert len(list(consumer.records(tmp_path / "log", 5))) == 2
