"""Nothing that a file says moves the cursor, colours or retitles the terminal that shows it."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._cli.errors import leave
from evergrad._cli.sample import sample
from evergrad._core.printable import brief, first_line, printable, printable_lines
from evergrad._training import evaluation, folder, run as running
from evergrad._training.display import Display
from tests.training_helpers import as_on_the_command_line  # noqa: F401

WILD = "a\x1b[31mred\x1b]0;title\x07\r\b\x7f\x9b\u202e\u2028\ud800ü²"
TAME = "a\\x1b[31mred\\x1b]0;title\\x07\\r\\x08\\x7f\\x9b\\u202e\\u2028\\ud800ü²"


def test_control_characters_are_spelt_out():
    assert printable(WILD) == TAME
    assert printable("a\nb") == "a\\nb"
    assert printable_lines("a\n\tb\x1b") == "a\n\tb\\x1b"
    assert printable(printable(WILD)) == TAME


def test_every_message_is_fit_to_be_shown(capsys):
    assert str(eg.InputError(f"the column {WILD}")) == f"the column {TAME}"
    with pytest.raises(Exception, match="2"):
        leave(WILD, 2)
    assert capsys.readouterr().err == f"evergrad: {TAME}\n"


def test_what_a_run_says_is_fit_to_be_shown():
    screen = io.StringIO()
    Display(Console(file=screen, force_terminal=False, width=200), None, None, "bits").say(f"results in {WILD}")
    assert screen.getvalue() == f"results in {TAME}\n"


def test_values_are_shown_in_brief():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert brief(deep) == "of the kind list and too large to show"
    assert brief(int("9" * 4000) ** 2) == "of the kind int and too large to show"
    assert brief("x" * 1000) == f"'{'x' * 99}…"
    assert first_line(ValueError("\n one \x1b\n two")) == "one \\x1b"


HEADERS = b"time,\x1b[31mred\x1b]0;title\x07\n1,2\n2,%b\n3,2\n"


@pytest.mark.parametrize("cell", [b"x", b"", b"inf", b"2"], ids=["text", "missing", "infinite", "constant"])
@pytest.mark.parametrize("options", [(), ("--columns", "rd"), ("--targets", "rd"), ("--time", "rd")], ids=str)
def test_headers_of_a_csv(cell, options, tmp_path):
    (tmp_path / "odd.csv").write_bytes(HEADERS % cell)
    given = ["train", "series", "--data", str(tmp_path / "odd.csv"), *options, "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2, done.output
    assert done.stderr.rstrip("\n").isprintable()
    assert "red" in done.stderr


def test_keys_of_a_toml_file(tmp_path):
    (tmp_path / "odd.toml").write_bytes(b'"\\u001b[31m\\n" = 1\n')
    done = CliRunner().invoke(
        app, ["train", "copy", "--config", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "r")]
    )
    assert done.exit_code == 2
    assert '"\\x1b[31m\\n" is unknown' in done.stderr


def test_names_of_files_and_folders(tmp_path):
    place = tmp_path / os.fsdecode(b"\xff\x1b[31m[bold]")
    place.mkdir()
    for given in (["info"], ["evaluate"], ["export"], ["resume"], ["compare"]):
        done = CliRunner().invoke(app, [*given, str(place)])
        assert done.exit_code == 2, done.output
        assert "\\udcff\\x1b[31m[bold] is no run of evergrad" in done.stderr
        assert "\x1b" not in done.output


def test_what_is_shown_of_a_run(tmp_path, monkeypatch):
    """Its folder is called `[/]`, which would end a colour of rich's, and its data have a name with an escape sequence."""
    monkeypatch.setattr(running, "_go", lambda *args, **kwargs: None)
    monkeypatch.chdir(tmp_path)  # a long path would be broken into lines
    data, run = Path("\x1b[31m.csv"), Path("[/]")
    data.write_bytes(b"a\n1\n2\n4\n8\n")
    given = ["train", "series", "--data", str(data), "--units", "3", "--rank", "2", "--out", str(run)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.5}\n')
    for given in (["info", str(run)], ["compare", str(run), "--plot", str(tmp_path / "\x1b[31m.png")]):
        done = CliRunner().invoke(app, given, env={"COLUMNS": "200"})
        assert done.exit_code == 0, (done.output, done.exception)
        assert "[/]" in done.output
        assert "\x1b" not in done.output


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("screen", "shown"), [(Terminal(), "a\\x1b[31m\n"), (io.StringIO(), "a\x1b[31m\n")])
def test_a_sample_is_tame_on_a_terminal_and_exact_in_a_file(screen, shown, monkeypatch):
    monkeypatch.setattr(evaluation, "write", lambda *args, **kwargs: "a\x1b[31m")
    monkeypatch.setattr(folder, "open_run", lambda path: None)
    monkeypatch.setattr("sys.stdout", screen)
    sample(None, length=3, temperature=1.0, prompt=None, seed=0)
    assert screen.getvalue() == shown
