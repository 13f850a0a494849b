"""A run that is killed and resumed, again and again, ends bit for bit like one that never was."""

import random
import signal
import time

import pytest

from tests.training_helpers import (
    COPY_OK,
    SERIES_TBPTT,
    TEXT_KTP,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    reports,
    start,
    succeed,
    write_series,
)

STEPS = 6000
OPTIONS = ("--steps", STEPS, "--report", 500, "--checkpoint-every", 100, "--checkpoint-seconds", 0.2)


def arguments(estimator, tmp_path):
    """A run of every kind: OK with a window on copy, KTP on text, TBPTT on a series."""
    if estimator == "ok":
        return (*COPY_OK, *OPTIONS)
    if estimator == "ktp":
        return (*TEXT_KTP, *OPTIONS, "--valid-every", 2000)
    data = write_series(tmp_path / "wave.csv", rows=2 * STEPS)
    return (*SERIES_TBPTT, "--data", data, *OPTIONS)


def unfinished(run):
    return [*(run / "checkpoints").glob("*.orbax-checkpoint-tmp")]


def newest(run):
    return max((int(path.name) for path in (run / "checkpoints").glob("*") if path.name.isdigit()), default=0)


def in_a_checkpoint(process, run, chance):
    wait_until(lambda: unfinished(run), process)


def on_the_way(process, run, chance):
    goal = newest(run) + chance.randrange(1, 600)
    wait_until(lambda: newest(run) >= goal, process)
    time.sleep(chance.uniform(0, 0.2))


def at_the_start(process, run, chance):
    time.sleep(chance.uniform(0.5, 3))


MOMENTS = (in_a_checkpoint, on_the_way, at_the_start)


def wait_until(happened, process):
    while not happened() and process.poll() is None:
        time.sleep(0.001)


def kill(process, run):
    """Says whether a checkpoint was being written."""
    process.kill()
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, output
    return bool(unfinished(run))


def kill_and_resume(tmp_path, estimator, kills):
    """How many of the kills fell into the middle of a checkpoint."""
    chance = random.Random(f"{estimator} {kills}")
    run, reference = tmp_path / "killed", tmp_path / "whole"
    given = arguments(estimator, tmp_path)
    succeed("train", *given, "--out", reference)
    process = start("train", *given, "--out", run)
    inside = 0
    for i in range(kills):
        MOMENTS[i % len(MOMENTS)](process, run, chance)
        inside += kill(process, run)
        again = ("resume", run) if (run / "settings.json").exists() else ("train", *given, "--out", run)
        process = start(*again)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert [row["step"] for row in reports(run)] == list(range(500, STEPS + 1, 500))
    assert_same_result(run, reference)
    return inside


@pytest.mark.slow
def test_a_few_kills_leave_no_trace(tmp_path):
    assert kill_and_resume(tmp_path, "ok", kills=2) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["ok", "ktp", "tbptt"])
def test_a_dozen_kills_leave_no_trace(tmp_path, estimator):
    assert kill_and_resume(tmp_path, estimator, kills=12) >= 3
