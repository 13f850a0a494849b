"""Commands on runs whose data, or whose place, are not what they were; all in this process."""

import contextlib
import json
import shutil

import jax
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from evergrad._cli import app
from evergrad._cli.json_option import check_json_file, write_json
from evergrad._core.files import read_checked, write_checked
from tests.training_helpers import as_on_the_command_line, change_settings, write_series  # noqa: F401

TINY = ("--cell", "rnn", "--units", "2", "--estimator", "tbptt", "--horizon", "2", "--report", "20")
BOOK = "the sea and the sand\n" * 40


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def succeed(*words):
    done = call(*words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout


def refused(*words, code=2):
    done = call(*words)
    assert done.exit_code == code, f"{done.output} {done.exception!r}"
    assert isinstance(done.exception, SystemExit)
    return done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a text and a series, and a run of each."""
    place = tmp_path_factory.mktemp("made")
    (place / "book.txt").write_text(BOOK)
    write_series(place / "wave.csv", rows=60)
    before = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    with contextlib.chdir(place):
        succeed("train", "text", *TINY, "--batch", 1, "--steps", 40, "--data", "book.txt", "--out", "text")
        succeed("train", "series", *TINY, "--data", "wave.csv", "--out", "series")
    jax.config.update("jax_enable_x64", before[0])
    jax.config.update("jax_numpy_dtype_promotion", before[1])
    return place


def rename_in_settings(run, before, now):
    content = json.dumps(read_checked(run / "settings.json")).replace(before, now)
    write_checked(run / "settings.json", json.loads(content))


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A copy of it that may be spoilt, and the current folder."""
    copy = shutil.copytree(made, tmp_path / "made")
    for run in ("text", "series"):
        rename_in_settings(copy / run, str(made), str(copy))
    monkeypatch.chdir(copy)
    return copy


def test_a_changed_text_is_refused_and_another_one_is_read_with_the_symbols_of_the_run(place):
    original, rotated = place / "book.txt", place / "rotated.txt"
    rotated.write_text(BOOK[4:] + BOOK[:4])  # the same characters, the first of them another one
    expected = json.loads(succeed("evaluate", "text", "--data", rotated))["bpc"]
    shutil.copy(rotated, original)
    assert json.loads(succeed("evaluate", "text", "--data", original))["bpc"] == expected
    for command in ("evaluate", "sample"):
        assert "book.txt has changed since text began" in refused(command, "text")


def test_the_columns_of_other_data_are_found_by_name(place):
    rows = [line.split(",") for line in (place / "wave.csv").read_text().splitlines()]
    (place / "swapped.csv").write_text("\n".join(",".join((b, t, a)) for t, a, b in rows) + "\n")
    (place / "other.csv").write_text("\n".join(",".join(row[:2]) for row in rows) + "\n")
    own, swapped = (json.loads(succeed("evaluate", "series", "--data", f)) for f in ("wave.csv", "swapped.csv"))
    assert own | {"data": ""} == swapped | {"data": ""}
    assert '"c1" is unknown' in refused("evaluate", "series", "--data", "other.csv")


def test_a_run_can_be_used_from_any_folder_and_an_older_one_from_its_own(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = succeed("evaluate", "made/text")
    rename_in_settings(place / "text", f"{place}/", "")
    assert "book.txt cannot be read" in refused("evaluate", "made/text")
    monkeypatch.chdir(place)
    assert succeed("evaluate", "text") == expected


def test_what_is_not_ours_is_not_overwritten(place):
    precious, settings = place / "precious.md", place / "series" / "settings.json"
    precious.write_text("# evergrad\n")
    results = place / "results.csv"
    shutil.copy(precious, results)
    before = settings.read_bytes()
    for words in (
        ("export", "series", "--out", precious),
        ("export", "series", "--format", "safetensors", "--out", settings),
        ("plan", "--json", precious),
        ("compare", "series", "--plot", precious),
        ("lab", "noise", "series", "--out", place / "noise"),
        ("streams", "bench", "--only", "AirlinePassengers", "--out", place),
    ):
        (place / "noise").mkdir(exist_ok=True)
        shutil.copy(precious, place / "noise" / "noise.png")
        assert "made by evergrad: choose another --" in refused(*words)
    assert (precious.read_text(), results.read_text(), settings.read_bytes()) == ("# evergrad\n",) * 2 + (before,)


def test_what_is_ours_is_overwritten(place):
    for words in (
        ("export", "series", "--out", "model.onnx"),
        ("export", "series", "--format", "safetensors", "--out", "model.safetensors"),
        ("compare", "series", "--plot", "compare.png"),
    ):
        succeed(*words)
        succeed(*words)
    write_json(place / "ours.json", {})
    check_json_file(place / "ours.json")


def test_odd_prompts_seeds_and_terminals(place, monkeypatch):
    assert "--prompt is not UTF-8" in refused("sample", "text", "--prompt", "\udcff")
    assert "--seed" in refused("sample", "text", "--seed", 10**23)
    monkeypatch.setattr("evergrad._training.evaluation.write", lambda *given, **options: "né")
    done = CliRunner(charset="ascii").invoke(app, ["sample", "text"])
    assert (done.exit_code, done.stdout) == (0, "n?\n")


def test_a_run_without_its_speed_is_compared_all_the_same(place):
    (place / "text" / "speed.jsonl").unlink()
    (place / "series" / "speed.jsonl").write_text("")
    for run in ("text", "series"):
        assert "–" in succeed("compare", run, "--plot", "speed.png")


def test_foreign_lines_among_the_reports_are_named_and_set_aside(place):
    metrics = place / "text" / "metrics.jsonl"
    before = metrics.read_bytes()
    metrics.write_bytes(before + b"5\n\xff\xfe\n")
    for words in (("info", "text"), ("compare", "text")):
        done = call(*words)
        assert done.exit_code == 0
        for line in (3, 4):
            assert f"metrics.jsonl, line {line} is cut off, damaged or no report" in done.stderr
    assert "metrics.jsonl: 2 of its lines could not be read; kept in" in succeed("resume", "text", "--steps", 60)
    assert metrics.read_bytes().startswith(before)
    assert (place / "text" / "metrics.aside.jsonl").read_bytes() == b"5\n\xff\xfe\n"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cell", "foo", '"foo" is unknown'),
        ("estimator", "zz", '"zz" is unknown'),
        ("task", "zz", '"zz" is unknown'),
        ("units", "abc", "settings.json, units is 'abc', but must be a whole number"),
        ("steps", None, "settings.json, steps is null"),
        ("report", 0, "must be 1 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused(place, name, value, message):
    change_settings(place / "text", lambda document: document["settings"].update({name: value}))
    for command in ("info", "resume"):
        assert message in refused(command, "text")


def test_a_text_without_newlines_can_be_sampled_without_a_prompt(place):
    given = ("--batch", 1, "--steps", 20, "--data", "line.txt", "--out", "line")
    (place / "line.txt").write_text(BOOK.replace("\n", " "))
    succeed("train", "text", *TINY, *given)
    assert succeed("sample", "line", "--length", 5).startswith("t")


def test_evaluate_advises_no_option_that_it_does_not_have(place):
    lines = (place / "wave.csv").read_text().splitlines()
    for cell, message in (("two", "not a number. Mend it."), ("", "(one of 1). Fill it.")):
        (place / "bad.csv").write_text("\n".join([*lines[:-1], f"99,{cell},1"]) + "\n")
        assert message in refused("evaluate", "series", "--data", "bad.csv")
    (place / "bad.csv").write_text("\n".join([lines[0], *(f"{t},1,{t}" for t in range(20))]) + "\n")
    assert "column c0 is 1 in every row" in (said := refused("evaluate", "series", "--data", "bad.csv"))
    assert "--columns" not in said


def test_import_has_the_options_of_train_but_those_that_the_model_decides():
    groups = get_command(app).commands
    train, imported = ({p.name for p in groups[name].commands["series"].params} for name in ("train", "import"))
    assert train - imported == {"cell", "units", "weights", "initial"}
