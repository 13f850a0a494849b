"""Signals, locks, and two processes on one run."""

import signal
import time

import pytest

from tests.training_helpers import (
    COPY_OK,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    evergrad,
    start,
    succeed,
)

LONG = (*COPY_OK, "--report", 500)


def wait_for_reports(run, process, count=1):
    deadline = time.monotonic() + 120
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def step_reached(output):
    sentence = output.split("at step ")[1]
    return int(sentence.split(";")[0].replace(",", ""))


def interrupted(run, number):
    """What a run that got the signal after its first report said last."""
    process = start("train", *LONG, "--steps", 10**7, "--out", run)
    wait_for_reports(run, process)
    refused = evergrad("resume", run)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"stopped by {number.name} at step" in output
    assert f"evergrad resume {run}" in output
    assert refused.returncode == 2
    assert f"another process (pid {process.pid}) is working on {run}" in refused.stderr
    return output


@pytest.mark.slow  # as SIGINT below, but for the number
def test_sigterm_ends_with_143_and_a_second_process_is_refused_before(tmp_path):
    step = step_reached(interrupted(tmp_path / "run", signal.SIGTERM))
    assert (tmp_path / "run" / "checkpoints" / str(step)).is_dir()


def test_sigint_ends_with_130_and_what_is_resumed_is_as_if_it_had_never_stopped(tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    steps = step_reached(interrupted(run, signal.SIGINT)) + 1000
    succeed("resume", run, "--steps", steps)
    succeed("train", *LONG, "--steps", steps, "--out", whole)
    assert_same_result(run, whole)


def test_a_finished_run_can_be_resumed_and_says_it_is_done(tmp_path):
    run = tmp_path / "run"
    succeed("train", *LONG, "--steps", 500, "--out", run)
    before = (run / "metrics.jsonl").read_bytes()
    assert "done: 500 steps" in succeed("resume", run)
    assert (run / "metrics.jsonl").read_bytes() == before
