"""Damaged CSV and TOML files and odd command lines: exit code 0 or 2, a sentence, nothing changed but the run's folder.

A few hundred of each here, thousands in `make test-slow`; every one can be had again from its number.
"""

import csv
import dataclasses
import functools
import gzip
import json
import os
import random
import shutil

import numpy as np
import pyarrow
import pytest
import typer.main
import typer.testing
from pyarrow import parquet
from typer.testing import CliRunner

import evergrad._training.run
from evergrad._cli import app
from evergrad._registry import CELLS, ESTIMATORS
from evergrad._tasks.table import read_columns
from evergrad._training.resolve import checked, resolve
from evergrad._training.settings import TASKS, fields, flag
from tests.fuzzing import assert_a_sentence, damaged, forget_peak, peak_mib, result_unless_refused
from tests.training_helpers import as_on_the_command_line  # noqa: F401

COUNT = pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.slow)])


@pytest.fixture(autouse=True)
def little_memory():
    """Nothing makes this process hold a gigabyte more."""
    before = peak_mib()
    forget_peak()
    yield
    assert peak_mib() < before + 1024


CSVS = (
    b"time,a,b\n" + b"".join(b"%d,%d,%d.5\n" % (t, t % 7, t * t) for t in range(30)),
    b'"date";"Zug, Wagen";"x"\r\n'
    + b"".join(b'2024-01-%02d;"%d,25";-%d\r\n' % (t, t % 5, t * t) for t in range(1, 31)),
    b"".join(b"%d\t%d\n" % (t, (t * 37) % 11) for t in range(40)),
)


def write_again(columns, path):
    """As a plain CSV with a header."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *(f"c{i}" for i in range(len(columns.names)))])
        rows = [["NA" if np.isnan(v) else repr(float(v)) for v in row] for row in columns.values]
        writer.writerows([[number, *row] for number, row in enumerate(rows)])


@COUNT
def test_damaged_csv(count, tmp_path):
    """What can be read can be written and is read the same again."""
    path, again = tmp_path / "data.csv", tmp_path / "again.csv"
    for seed, whole in enumerate(CSVS):
        for number, content in enumerate(damaged(whole, count // len(CSVS), seed)):
            path.write_bytes(content)
            header, missing = (None, True, False)[number % 3], number % 2 == 0
            found = result_unless_refused(lambda: read_columns(path, None, None, missing=missing, header=header))  # noqa: B023
            if found is not None:
                assert np.isfinite(found.values[~np.isnan(found.values)]).all()
                assert missing or not np.isnan(found.values).any()
                write_again(found, again)
                same = read_columns(again, None, None, missing=True)
                np.testing.assert_array_equal(same.values, found.values)


@COUNT
def test_damaged_gzip(count, tmp_path):
    """Which has a checksum: what can be read is what was written."""
    path = tmp_path / "data.csv.gz"
    whole = gzip.compress(CSVS[0], mtime=0)
    path.write_bytes(whole)
    expected = read_columns(path, None, None, missing=False).values
    for content in damaged(whole, count):
        path.write_bytes(content)
        found = result_unless_refused(lambda: read_columns(path, None, None, missing=False))
        assert found is None or np.array_equal(found.values, expected)


@COUNT
def test_damaged_parquet(count, tmp_path):
    path = tmp_path / "data.parquet"
    table = {"time": pyarrow.array(range(30), pyarrow.date32()), "a": [t % 7 for t in range(30)], "b": [1.5, 2.5] * 15}
    parquet.write_table(pyarrow.table(table), path)
    for content in damaged(path.read_bytes(), count):
        path.write_bytes(content)
        result_unless_refused(lambda: read_columns(path, None, None, missing=True))


TOML = {
    "copy": b'task = "copy"\nunits = 16\nlearning-rate = 1e-3\nestimator = "ok"\nrank = 2\nbatch = 2\nthreshold = 0.2\n',
    "text": b'cell = "lstm"\ndata = "text.txt"\nbytes = true\nreset_probability = 0.5\nseed = 7\nkeep = 2\n# end\n',
    "series": b"data = '''rates.csv'''\ncolumns = \"a,b\"\nmissing = 'skip'\nheader = true\nahead = 3\nclip = 2\n",
}


@COUNT
def test_damaged_toml(count, tmp_path):
    """What is accepted is a whole set of settings that can be kept and read back."""
    path = tmp_path / "run.toml"
    for seed, (task, whole) in enumerate(TOML.items()):
        for content in damaged(whole, count // len(TOML), seed):
            path.write_bytes(content)
            settings = result_unless_refused(lambda: resolve(task, {}, path))  # noqa: B023
            if settings is not None:
                kept = dataclasses.asdict(settings)
                assert json.loads(json.dumps(kept)) == kept
                for name, field in fields(task).items():
                    assert kept[name] is None or checked(field, kept[name], name) == kept[name]


FILES = {
    "rates.csv": CSVS[0],
    "years.csv": b"2020,2021\n1,2\n3,5\n4,1\n2,2\n7,3\n",
    "odd.csv": b"time,\x1b[31mred\x1b]0;title\x07\n1,2\n2,x\n3,1\n",
    "text.txt": b"abcab\ncabc\n" * 20,
    "colour.txt": b"ab\x1b[31m\n" * 20,
    "deep.toml": b"units = " + b"[" * 50_000,
    "digits.toml": b"units = " + b"9" * 5000,
    "hex.toml": b"learning_rate = 0x" + b"f" * 5000,
    "key.toml": b'"\\u001b[31m" = 1\n',
    "good.toml": b"units = 3\n",
    "zero.toml": b'data = "a\\u0000b"\n',
    "bad.onnx": b"\x08\x08",
    "bad.safetensors": b"\xff" * 16,
    b"\xff.txt": b"abcab\ncabc\n" * 20,
}
WHOLE = (
    "-1",
    "0",
    "1",
    "2",
    "3",
    "4",
    "9223372036854775807",
    "9223372036854775808",
    "9" * 400,
    "9" * 5000,
    "1e3",
    "",
    "²",
)
REAL = ("0", "-1", "0.5", "1e-3", "nan", "inf", "-inf", "1e400", "", "x", "9" * 400, "0x1p3")
WORDS = (
    *CELLS,
    *ESTIMATORS,
    "adam",
    "sgd",
    "float32",
    "skip",
    "a",
    "a,b",
    "a,a",
    "",
    "\x1b[31m",
    "\udcff",
    "²",
    "../x",
)
# huge ones are for the tests of the planner
SIZES = ("units", "batch", "rank", "window", "copies", "diagonal_rank", "horizon", "stride", "report", "steps")
PATHS, NAMES = ("weights", "data", "valid", "test"), [os.fsdecode(name) for name in FILES]


def value_for(name, field, chance):
    """One that is allowed, or of any kind."""
    kind, choices = field.metadata["kind"], field.metadata["choices"]
    if choices and chance.random() < 0.5:
        return chance.choice(choices)
    if name in PATHS:
        return chance.choice((*NAMES, "pipe", "/dev/zero", "folder", "nowhere", "\x1b[31m"))
    if kind is int:
        return chance.choice([value for value in WHOLE if not (name in SIZES and value == "9223372036854775807")])
    return chance.choice(REAL if kind is float else WORDS)


def command_line(chance):
    """Of `train` or `import`, a few of its options with values of all kinds."""
    task = chance.choice(TASKS)
    started = ("train", task, "--units", "3", "--batch", "2", "--estimator", "uoro")
    words = [*chance.choice((started, started, ("import", task, "bad.onnx"))), "--out", "runs/new"]
    options = fields(task)
    for name in chance.sample(sorted(options), chance.randrange(4)):
        if options[name].metadata["kind"] is bool:
            words += [chance.choice((flag(name), f"--no-{name}"))]
        else:
            words += [flag(name), value_for(name, options[name], chance)]
    if task == "series" and "--data" not in words:
        words += ["--data", chance.choice(("rates.csv", "rates.csv", "years.csv", "odd.csv"))]
    if chance.random() < 0.3:
        words += [
            "--config",
            chance.choice([*(name for name in NAMES if "toml" in name), "pipe", "/dev/zero", "folder"]),
        ]
    return words


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with files of all kinds, where runs are made and not trained."""
    for name, content in FILES.items():
        (tmp_path / os.fsdecode(name)).write_bytes(content)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evergrad._training.run, "_go", lambda *args, **kwargs: None)
    monkeypatch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))  # made once
    return tmp_path


def seen(place):
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*") if "runs" not in path.parts}


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_odd_command_lines(count, place):
    before = seen(place)
    for number in range(count):
        words = command_line(random.Random(number))
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code in (0, 2), (words, done.output, done.exception)
        assert done.exit_code or not done.stderr or "is a pipe" in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.output, words
        assert (place / "runs" / "new").exists() == (done.exit_code == 0), words
        if done.stderr.startswith("evergrad: "):
            assert_a_sentence(done.stderr.rstrip("\n"))
        shutil.rmtree(place / "runs", ignore_errors=True)
    assert seen(place) == before
