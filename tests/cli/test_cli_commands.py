"""Every command; every example in a help text, as it stands. Real processes are in the files beside this one."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from evergrad._training.comparison import table
from evergrad._training.folder import open_run
from tests.training_helpers import (
    COPY_OK,
    TEXT_KTP,
    change_settings,
    environment,
    evergrad,
    reports,
    succeed,
    write_series,
)

HELPED = [
    "",
    "train",
    "train copy",
    "train cue",
    "train text",
    "train series",
    "train add",
    "train chaos",
    "resume",
    "evaluate",
    "sample",
    "compare",
    "info",
]
HELPED += ["demo", "lab", "lab noise", "paper", "paper list", "paper run", "paper report", "paper export"]


def help_of(words):
    return succeed(*words.split(), "--help")


@pytest.mark.parametrize("words", HELPED)
def test_every_command_has_help_with_an_example(words):
    assert "Example: evergrad" in help_of(words)


def test_help_is_quick_because_it_does_not_import_jax():
    code = "import sys\nfrom evergrad._cli import app\ntry: app(['train', 'text', '--help'])\nexcept SystemExit: pass\n"
    code += "print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def example(words):
    """The example's words, its runs shortened."""
    line = re.search(r"Example: evergrad (.*?)(?:╭|\n *\n|$)", help_of(words), re.DOTALL)[1]
    line = re.sub(r"--steps \d+", "--steps 20 --report 10", " ".join(line.split()))
    return shlex.split(line)


def test_the_examples_work_one_after_the_other(tmp_path):
    write_series(tmp_path / "rates.csv", rows=200)
    for words in (
        "train copy",
        "train cue",
        "train text",
        "train series",
        "resume",
        "evaluate",
        "sample",
        "export",
        "info",
    ):
        succeed(*example(words), cwd=tmp_path)
    shutil.copytree(tmp_path / "runs" / "copy", tmp_path / "runs" / "other")
    succeed(*example("compare"), cwd=tmp_path)
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    """A run from a TOML file, with TensorBoard."""
    place = tmp_path_factory.mktemp("text")
    (place / "run.toml").write_text("steps = 999\nreport = 100\nvalid-every = 300\n")
    words = (*TEXT_KTP, "--config", place / "run.toml", "--steps", 400, "--tensorboard")
    output = succeed("train", *words, "--out", place / "run")
    return place / "run", output


def test_a_run_leaves_what_was_promised(text_run):
    run, output = text_run
    document = json.loads((run / "settings.json").read_text())
    assert document["settings"]["steps"] == 400  # said on the command line
    assert document["settings"]["report"] == 100  # said in the file
    assert document["settings"]["reset_probability"] == 0.01  # said nowhere
    found = reports(run)
    assert [row["step"] for row in found] == [100, 200, 300, 400]
    assert all(row["loss"] > 0 for row in found)
    assert ["valid_bpc" in row for row in found] == [True, False, True, True]
    assert all(row.get("valid_bpc", 1) > 0 for row in found)
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [*(run / "tensorboard").glob("events.*")]
    assert "step 400/400" in output
    assert "KTP(rank=2" in output
    assert "\x1b" not in output


@pytest.mark.slow
def test_evaluate_measures_the_model_of_the_last_report(text_run, tmp_path):
    run, _ = text_run
    result = json.loads(succeed("evaluate", run))
    assert result["valid_bpc"] == reports(run)[-1]["valid_bpc"]
    assert result["test_bpc"] > 0
    other = tmp_path / "other.txt"
    other.write_text("The class statement. " * 30)
    assert json.loads(succeed("evaluate", run, "--data", other))["bpc"] > 0
    other.write_text("fine\nstrange: ☃\n")
    done = evergrad("evaluate", run, "--data", other)
    assert done.returncode == 2
    assert "other.txt, line 2" in done.stderr


@pytest.mark.slow
def test_samples_are_reproducible_and_depend_on_seed_and_temperature(text_run):
    run, _ = text_run

    def draw(*options):
        return succeed("sample", run, "--length", 40, "--prompt", "The ", *options)

    first = draw()
    assert first.startswith("The ")
    assert len(first.rstrip("\n")) >= 40
    assert draw() == first
    assert draw("--seed", 1) != first
    assert draw("--temperature", 0) != first


def test_info_and_compare_show_the_runs(text_run, tmp_path):
    run, _ = text_run
    assert "not running" in succeed("info", run)
    picture = tmp_path / "picture.png"
    shown = succeed("compare", run, run, "--plot", picture)
    assert shown.count("KTP(rank=2, window=0)") == 2
    assert f"{reports(run)[-1]['valid_bpc']:.4f}" in shown
    succeed("compare", run, "--plot", picture)
    picture.write_text("a photograph")
    done = evergrad("compare", run, "--plot", picture)
    assert done.returncode == 2
    assert "no PNG file made by evergrad" in done.stderr
    assert picture.read_text() == "a photograph"


def test_a_comparison_at_80_columns_loses_no_word(text_run):
    console = Console(width=80, file=io.StringIO())
    console.print(table([("runs/a-name-of-usual-length", open_run(text_run[0]))]))
    said = console.file.getvalue()
    assert "…" not in said
    assert "KTP(rank=2," in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.slow
def test_runs_of_different_tasks_are_not_compared(text_run, tmp_path):
    succeed("train", *COPY_OK, "--steps", 20, "--report", 20, "--out", tmp_path / "copy")
    done = evergrad("compare", text_run[0], tmp_path / "copy")
    assert done.returncode == 2
    assert "different tasks (copy, text)" in done.stderr
    assert "only text can be sampled" in evergrad("sample", tmp_path / "copy").stderr


def test_steps_that_are_done_stay_done_and_divergence_ends_with_3_and_keeps_the_last_good_checkpoint(tmp_path):
    run = tmp_path / "run"
    words = (*COPY_OK, "--report", 50, "--checkpoint-every", 50)
    succeed("train", *words, "--steps", 100, "--out", run)
    done = evergrad("resume", run, "--steps", 99)
    assert (done.returncode, "has 100 behind it already" in done.stderr) == (2, True)
    change_settings(run, lambda document: document["settings"].update(learning_rate=1e30, optimiser="adam"))
    done = evergrad("resume", run, "--steps", 300)
    assert done.returncode == 3
    for part in ("the loss", "at step", "OK(rank=2, window=3", "norms: influence", "gradient", "--learning-rate"):
        assert part in done.stderr
    assert (run / "checkpoints" / "100").is_dir()
    assert not (run / "checkpoints" / "300").exists()
    done = evergrad("resume", run, "--steps", 300, "--on-divergence", "reset-influence")
    assert done.returncode == 3
    assert "on from step 100 with zero influence (reset number 1)" in done.stdout
    assert "again, with the influence just reset" in done.stderr
