"""Bad input: a message that names file and line, exit code 2, and nothing left behind."""

import pytest
from typer.testing import CliRunner

from evergrad.cli import app
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
    "few.csv": b"a\n1\n2\n3\n4\n5\n",
    "empty.csv": b"",
    "one.csv": b"a\n1\n",
    "broken.toml": b"units = \n",
    "odd.toml": b"unitz = 3\n",
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
    "seed too large": ("copy --seed 99999999999999999999", ["--seed is 99999999999999999999", "4294967295 or less"]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_a_message_and_2_and_leaves_nothing_behind(case, tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    words, parts = CASES[case]
    done = CliRunner().invoke(app, ["train", *words.split(), "--out", "runs/new"], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    for part in parts:
        assert part in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_the_same_as_a_process(tmp_path):
    done = evergrad("train", "text", "--data", "nowhere.txt", "--out", "runs/new", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"evergrad: {tmp_path / 'nowhere.txt'} cannot be read")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())
