"""What a run shows: nothing wider than the terminal, and what matters most goes last."""

import io
import json

import pytest
from rich.console import Console

from evergrad._training.display import Display, fitting
from evergrad._training.resolve import resolve
from evergrad._training.tasks import CopyTask
from tests.tiny_run import succeed
from tests.training_helpers import as_on_the_command_line  # noqa: F401

ROW = {"step": 12_000, "loss": 0.1234, "length": 12}
SPEED = {"steps_per_second": 532.0, "memory_mib": 1234.0}


def shown_at(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    display = Display(console, CopyTask(resolve("copy", {})), "OK(rank=8, window=16, mix='sampling')", "bits/symbol")
    return display, screen


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_nothing_is_wider_than_the_terminal(width):
    display, screen = shown_at(width)
    display._steps = 100_000
    display.report(ROW, SPEED)
    display.moved(12_000, 532.0, 0.1234, ROW)
    for line in [*screen.getvalue().splitlines(), *display._bar().plain.splitlines()]:
        assert len(line) <= width - 3, line


def test_at_80_columns_there_is_all_that_matters():
    display, screen = shown_at(80)
    display._steps = 100_000
    display.report(ROW, SPEED)
    assert screen.getvalue().strip() == "step 12,000/100,000  loss 0.1234  length 12  532 steps/s  left 0:02:45"
    assert "compiling 0:00:0" in display._bar().plain
    display.moved(12_000, 532.0, 0.1234, ROW)
    first, second = display._bar().plain.splitlines()
    assert "12,000/100,000  532 steps/s  left 0:02:45" in first
    assert second.startswith("loss 0.1234 bits/symbol · length 12")


def test_what_goes_first():
    parts = ["step 1/2", "the loss and much more", "5 steps/s", "left 0:01"]
    assert fitting(parts, 100, [1, 3, 2]) == parts
    assert fitting(parts, 45, [1, 3, 2]) == ["step 1/2", "the loss and…", "5 steps/s", "left 0:01"]
    assert fitting(parts, 32, [1, 3, 2]) == ["step 1/2", "5 steps/s", "left 0:01"]
    assert fitting(parts, 20, [1, 3, 2]) == ["step 1/2", "5 steps/s"]
    assert fitting(parts, 10, [1, 3, 2]) == ["step 1/2"]


def test_only_what_was_measured_is_written_and_the_end_says_it(tmp_path):
    """A validation at the first report, at a multiple of --valid-every, and at the end."""
    sizes = ("--units", 4, "--batch", 2, "--steps", 50, "--report", 10, "--valid-every", 30, "--estimator", "tbptt")
    (tmp_path / "text.txt").write_text("abcab cab " * 200)
    said = succeed("train", "text", "--data", tmp_path / "text.txt", *sizes, "--out", tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "valid_bpc" in row] == [10, 30, 50]
    done = next(line for line in said.splitlines() if line.startswith("done: 50 steps"))
    assert f"valid {rows[-1]['valid_bpc']:.3f}" in done
    assert ["valid" in line for line in said.splitlines() if line.startswith("step")] == [
        True,
        False,
        True,
        False,
        True,
    ]
