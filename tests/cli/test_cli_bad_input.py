"""Bad input: a message that names file and line, exit code 2, and nothing left behind."""

import hashlib
import os
import struct

import pytest
from typer.testing import CliRunner

from evergrad._cli import app
from evergrad._cli.overwriting import check_may_replace
from evergrad._core.checks import InputError
from evergrad._training import run as running
from evergrad._training.folder import open_run
from tests.training_helpers import as_on_the_command_line, evergrad  # noqa: F401

FILES = {
    "empty.txt": b"",
    "binary.txt": b"some\ntext\0\x01\x02" * 20,
    "latin.txt": "ein\nFlüsschen\n".encode("latin1") * 20,
    "train.txt": b"abcab\ncabc\n" * 20,
    "valid.txt": b"abc\nabx\n" * 5,
    "short.txt": b"abcabc",
    "gap.csv": b"time,a\n1,2\n2,\n3,4\n",
    "flat.csv": b"time,a,b\n1,2,5\n2,3,5\n3,4,5\n",
    "word.csv": b"time,a\n1,2\n2,two\n3,4\n",
    "unsorted.csv": b"time,a\n1,2\n3,3\n2,4\n",
    "twice.csv": b"time,a\n1,2\n1,3\n2,4\n",
    "years.csv": b"2020,2021\n1,2\n3,5\n4,1\n2,2\n7,3\n",
    "few.csv": b"a\n1\n2\n3\n4\n5\n",
    "empty.csv": b"",
    "one.csv": b"a\n1\n",
    "broken.toml": b"units = \n",
    "odd.toml": b"unitz = 3\n",
    "deep.toml": b"units = " + b"[" * 50_000,
    "digits.toml": b"units = " + b"9" * 5000,
    "hex.toml": b"learning_rate = 0x" + b"f" * 5000,
    "zero.toml": b'data = "a\\u0000b"\n',
    "latin.toml": b"# \xff\n",
}

CASES = {
    "empty text": ("text --data empty.txt", ["empty.txt is empty"]),
    "binary text": ("text --data binary.txt", ["binary.txt, line 2", "zero byte", "--bytes"]),
    "wrong encoding": ("text --data latin.txt", ["latin.txt, line 2", "not UTF-8", "0xfc", "iconv"]),
    "strange character": (
        "text --data train.txt --valid valid.txt --test train.txt",
        ["valid.txt, line 2", "'x'", "never had"],
    ),
    "short text": ("text --data short.txt", ["short.txt has 6 symbols"]),
    "missing text": ("text --data nowhere.txt", ["nowhere.txt cannot be read"]),
    "more lanes than text": ("text --data train.txt --batch 500", ["too few for 500 streams", "--batch"]),
    "missing cell": ("series --data gap.csv", ["gap.csv, line 3, column a", "--missing skip"]),
    "constant column": ("series --data flat.csv", ["flat.csv, column b is 5 in every row", "--columns"]),
    "text in a number column": ("series --data word.csv", ["word.csv, line 3, column a", "'two' is not a number"]),
    "unsorted": ("series --data unsorted.csv", ["unsorted.csv, line 4", "earlier than the one before"]),
    "duplicate": ("series --data twice.csv", ["twice.csv, line 3", "the same as the one before"]),
    "fewer rows than lanes": ("series --data few.csv --batch 9", ["5 rows, fewer than the 9 streams"]),
    "period too long": ("series --data few.csv --period 5", ["--period 5 is longer than the 5 rows"]),
    "empty csv": ("series --data empty.csv", ["empty.csv is empty"]),
    "no data": ("series", ["--data FILE.csv"]),
    "too many steps": ("series --data few.csv --steps 6", ["has 5 rows", "already seen"]),
    "unknown column": ("series --data flat.csv --columns tme", ['"tme" is unknown', 'Did you mean "time"']),
    "negative steps": ("copy --steps -5", ["--steps is -5, but must be 1 or more"]),
    "unknown cell": ("copy --cell lstn", ['"lstn" is unknown', 'Did you mean "lstm"']),
    "unknown estimator": ("copy --estimator otk", ['"otk" is unknown', 'Did you mean "ok"']),
    "unknown optimiser": ("copy --optimiser adm", ['Did you mean "adam"']),
    "rank too large": ("copy --units 4 --rank 9", ["OK(rank=9)", "use `RTRL()` or a rank below 9"]),
    "foreign parameter": ("copy --estimator tbptt --rank 3", ["--rank means nothing to tbptt"]),
    "no number": ("copy --units many", ["--units", "valid integer"]),
    "unknown option": ("copy --unitz 3", ["--unitz", "--units"]),
    "broken settings": ("copy --config broken.toml", ["broken.toml is no TOML", "line 1"]),
    "unknown setting": ("copy --config odd.toml", ['"unitz" is unknown', 'Did you mean "units"']),
    "unknown task": ("copi", ["copi"]),
    "endless clip": ("copy --units 4 --rank 2 --clip inf", ["clip=inf", "above 0 and finite"]),
    "rare reports": ("copy --report 3000000000", ["--report is 3000000000, but must be 1000000000 or less"]),
    "long strings": ("copy --length 3000000000", ["--length is 3000000000, but must be 100000000 or less"]),
    "longest strings": ("copy --longest 100000000000", ["--longest is 100000000000, but must be 100000000 or less"]),
    "one row": ("series --data one.csv", ["one.csv has one row"]),
    "a target twice": ("series --data flat.csv --targets a,a", ["--targets has a twice"]),
    "device as text": ("text --data /dev/zero", ["/dev/zero is a device and no file"]),
    "device as series": ("series --data /dev/zero", ["/dev/zero is a device and no file"]),
    "device as settings": ("copy --config /dev/zero", ["/dev/zero is a device and no file"]),
    "pipe as text": ("text --data pipe", ["pipe is a pipe and no file", "write what it gives to a file"]),
    "pipe as validation": ("text --data train.txt --valid pipe --test train.txt", ["pipe is a pipe and no file"]),
    "pipe as settings": ("copy --config pipe", ["pipe is a pipe and no file"]),
    "pipe as weights": ("copy --weights pipe", ["a model is read from a .onnx"]),
    "folder as settings": ("copy --config .", ["cannot be read (Is a directory)"]),
    "deep settings": ("copy --config deep.toml", ["deep.toml has lists in lists too deep"]),
    "settings with many digits": ("copy --config digits.toml", ["digits.toml is no TOML", "digits"]),
    "settings with many more": ("copy --config hex.toml", ["hex.toml, learning_rate is of the kind int", "1e30"]),
    "zero byte in a name": ("text --config zero.toml", ["zero.toml, data", "zero byte"]),
    "settings that are no text": ("copy --config latin.toml", ["latin.toml is no TOML", "utf-8"]),
    "many digits": (f"copy --steps {'9' * 30}", ["--steps is 999999999999999999999999999999", "or less"]),
    "no name": ("text --data \udcff.txt", ["--data is '\\udcff.txt', which is not UTF-8"]),
    "years as numbers": ("series --data years.csv --columns 2020", ['"2020" is unknown: ', "has 1, 2."]),
    "names as numbers": ("series --data flat.csv --no-header", ["flat.csv, line 1, column 1: 'time' is not a number"]),
    "seed too large": ("copy --seed 99999999999999999999", ["--seed is 99999999999999999999", "4294967295 or less"]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_a_message_and_2_and_leaves_nothing_behind(case, tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    words, parts = CASES[case]
    done = CliRunner().invoke(app, ["train", *words.split(), "--out", "runs/new"], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    for part in parts:
        assert part in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "pipe"])


def test_a_series_from_a_pipe_is_read_once_and_years_can_be_names(tmp_path, monkeypatch):
    """As `--data <(cat years.csv)` gives it."""
    monkeypatch.setattr(running, "_go", lambda *args, **kwargs: None)
    out, into = os.pipe()
    os.write(into, FILES["years.csv"])
    os.close(into)
    given = ["train", "series", "--data", f"/dev/fd/{out}", "--header", "--units", "3", "--rank", "2"]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "run")])
    os.close(out)
    assert done.exit_code == 0, done.output
    assert "is a pipe, which can be read only once: this run cannot be resumed" in done.stderr
    run = open_run(tmp_path / "run")
    assert run.fingerprints == {f"/dev/fd/{out}": hashlib.sha256(FILES["years.csv"]).hexdigest()}
    assert (run.settings.header, run.settings.steps) == (True, 5)


def test_the_same_as_a_process(tmp_path):
    done = evergrad("train", "text", "--data", "nowhere.txt", "--out", "runs/new", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"evergrad: {tmp_path / 'nowhere.txt'} cannot be read")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_folder_with_an_odd_name_among_the_checkpoints(tmp_path, monkeypatch):
    """`²` is a digit to Python, and no number."""
    monkeypatch.setattr(running, "_go", lambda *args, **kwargs: None)
    run = str(tmp_path / "run")
    done = CliRunner().invoke(app, ["train", "copy", "--units", "3", "--rank", "2", "--out", run])
    assert done.exit_code == 0, done.output
    for odd in ("²", "4x", "-5"):
        (tmp_path / "run" / "checkpoints" / odd).mkdir(parents=True)
    assert CliRunner().invoke(app, ["resume", run, "--steps", "7"]).exit_code == 0


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "content", [DEEP, b"9" * 5000, struct.pack("<Q", len(DEEP)) + DEEP], ids=["deep", "digits", "model"]
)
def test_a_file_that_is_not_ours_is_left_alone(content, tmp_path):
    for name, kind in (("a.json", "JSON"), ("a.safetensors", "safetensors")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is there already and is no"):
            check_may_replace(tmp_path / name, kind, "--out")
