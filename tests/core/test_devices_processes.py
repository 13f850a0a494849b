"""Runs of several processes, as real ones on loopback: they do what one does, can die, and go on in other numbers."""

import re
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from evergrad._core.checks import InputError
from evergrad._training.machines import make_mesh, muster, take_machines
from tests.training_helpers import (
    COPY_OK,
    TEXT_KTP,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    durable_state,
    evergrad,
    finish,
    free_address,
    garbage,
    listening,
    process,
    reports,
    start,
    start_team,
    succeed,
    succeed_together,
    write_series,
)

STEPS = 300
RUN = (*COPY_OK, "--batch", 4, "--steps", STEPS, "--report", 100, "--checkpoint-every", 50)
LOST = 4


def assert_close(run, reference, tolerance=1e-4):
    """The reports and all that the last checkpoint holds; random keys and counts to the bit."""
    for ours, theirs in zip(reports(run), reports(reference), strict=True):
        assert ours == pytest.approx(theirs, rel=tolerance)
    ours, theirs = durable_state(run), durable_state(reference)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        exact = not np.issubdtype(array.dtype, np.floating)
        scale = 1 if exact else max(1e-3, np.abs(theirs[name]).max(initial=0))
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=0 if exact else tolerance * scale, err_msg=name)


def newest(run):
    return max((int(path.name) for path in (run / "checkpoints").glob("*") if path.name.isdigit()), default=0)


def wait_until(happened, processes):
    deadline = time.monotonic() + 300
    while not happened() and all(process.poll() is None for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lose_one(run, processes, victim, sign=signal.SIGKILL):
    """Kills one in the middle; how many seconds it took until all had ended, and what the others said."""
    wait_until(lambda: newest(run) >= 50, processes)
    processes[victim].send_signal(sign)
    killed = time.monotonic()
    others = [process for i, process in enumerate(processes) if i != victim]
    outputs = [process.communicate(timeout=60)[0] for process in others]
    seconds = time.monotonic() - killed
    processes[victim].kill()
    processes[victim].communicate()
    assert [process.returncode for process in others] == [LOST] * len(others), "\n".join(outputs)
    return seconds, outputs


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    place = tmp_path_factory.mktemp("undisturbed")
    succeed("train", *RUN, "--out", place / "one")
    outputs = succeed_together(2, "train", *RUN, "--out", place / "two")
    return place, outputs


def test_two_processes_do_what_one_does(undisturbed):
    place, outputs = undisturbed
    assert_close(place / "two", place / "one")
    assert "done: 300 steps" in outputs[0]
    assert "step" not in outputs[1]  # the first speaks for all


@pytest.mark.slow
def test_one_is_killed_and_the_run_goes_on_with_as_many_or_fewer(undisturbed, tmp_path):
    place, _ = undisturbed
    run, alone = tmp_path / "killed", tmp_path / "alone"
    seconds, (said,) = lose_one(run, start_team(2, "train", *RUN, "--out", run), victim=1)
    assert seconds < 20
    assert "process 1 is gone" in said
    assert "evergrad resume" in said
    assert 50 <= newest(run) < STEPS
    shutil.copytree(run, alone)
    succeed_together(2, "resume", run)
    assert_same_result(run, place / "two")  # to the bit, as if nothing had happened
    succeed("resume", alone)
    assert_close(alone, place / "one")


@pytest.mark.slow
def test_the_first_of_four_is_killed_and_the_run_goes_on_with_two_and_then_four(undisturbed, tmp_path):
    place, _ = undisturbed
    run = tmp_path / "run"
    seconds, outputs = lose_one(run, start_team(4, "train", *RUN, "--out", run), victim=0)
    assert seconds < 10
    assert all("process 0 is gone" in said for said in outputs)
    succeed_together(2, "resume", run, "--steps", 200)
    assert newest(run) == 200
    succeed_together(4, "resume", run, "--steps", STEPS)
    assert_close(run, place / "one")


@pytest.mark.slow
def test_one_that_is_frozen_is_missed_within_the_stated_time(tmp_path):
    run = tmp_path / "run"
    seconds, (said,) = lose_one(run, start_team(2, "train", *RUN, "--out", run), victim=1, sign=signal.SIGSTOP)
    assert seconds < 20
    assert "process 1 is gone" in said


@pytest.mark.slow
@pytest.mark.parametrize("task", ["text", "series"])
def test_other_tasks_in_two_processes(tmp_path, task):
    given = (*TEXT_KTP, "--batch", 4, "--valid-every", 100, "--steps", 200)
    if task == "series":
        given = ("series", "--data", write_series(tmp_path / "wave.csv"), "--units", 6, "--rank", 2, "--batch", 4)
    for out, run in (("one", succeed), ("two", lambda *a: succeed_together(2, *a))):
        run("train", *given, "--report", 50, "--out", tmp_path / out)
    assert_close(tmp_path / "two", tmp_path / "one", tolerance=1e-3)


@pytest.mark.slow
def test_a_signal_to_one_stops_all_with_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    processes = start_team(2, "train", *RUN, "--steps", 100_000, "--out", run)
    wait_until(lambda: newest(run) >= 50, processes)
    processes[1].send_signal(signal.SIGTERM)
    outputs = finish(processes)
    assert [process.returncode for process in processes] == [143, 143], "\n".join(outputs)
    assert "stopped by SIGTERM" in outputs[0]


@pytest.mark.slow
def test_a_part_that_one_process_cannot_read_makes_all_take_the_one_before(undisturbed, tmp_path):
    place, _ = undisturbed
    run = tmp_path / "run"
    shutil.copytree(place / "two", run)
    parts = [p for p in (run / "checkpoints" / "300" / "arrays").rglob("1*") if p.is_file() and "hidden" in str(p)]
    assert parts
    for part in parts:  # what the second process would read
        part.write_bytes(b"\0" * len(part.read_bytes()))
    outputs = succeed_together(2, "resume", run)
    assert "checkpoint 300" in outputs[0]
    assert_same_result(run, place / "two")


def refuse(processes, *parts):
    outputs = finish(processes)
    assert [process.returncode for process in processes] == [2] * len(processes), "\n".join(outputs)
    for output in outputs:
        assert "Traceback" not in output
        for part in parts:
            assert part in output


@pytest.mark.slow
def test_two_with_the_same_id_are_refused(tmp_path):
    twins = start_team(3, "train", *RUN, "--out", tmp_path / "run", "--join-timeout", 20, ids=(0, 1, 1))
    refuse(twins, "Start each once")
    assert not (tmp_path / "run").exists()


def test_different_settings_are_refused(tmp_path):
    address = ("--coordinator", free_address(), "--processes", 2, "--out", tmp_path / "run")
    processes = [start("train", *RUN, *address, "--process-id", i, "--units", 6 + i) for i in (0, 1)]
    refuse(processes, "process 0 has --units 6 and process 1 has 7")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # what tests/core/test_devices_team.py shows of threads, of a process
def test_nonsense_at_the_door_does_not_end_process_0_nor_the_waiting(tmp_path):
    where = free_address()
    options = ("--coordinator", where, "--processes", 2, "--process-id", 0, "--join-timeout", 3)
    first = start("train", *RUN, *options, "--out", tmp_path / "run")
    place = ("127.0.0.1", int(where.split(":")[1]))
    wait_until(lambda: place in listening(first.pid), [first])
    assert {host for host, _ in listening(first.pid)} == {"127.0.0.1"}  # and nowhere else
    with garbage(where):
        refuse([first], "process 0 could not join: within 3 seconds 2 processes")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_cluster_says_which_process_this_is(undisturbed, tmp_path, monkeypatch):
    place, _ = undisturbed
    words = {"SLURM_JOB_ID": time.time_ns() // 1000 % 4096, "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": 2}
    for name, word in words.items():
        monkeypatch.setenv(name, str(word))
    processes = []
    for id in ("0", "1"):
        monkeypatch.setenv("SLURM_PROCID", id)
        monkeypatch.setenv("SLURM_LOCALID", id)
        processes.append(start("train", *RUN, "--processes", "auto", "--out", tmp_path / "run"))
    outputs = finish(processes)
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    assert_same_result(tmp_path / "run", place / "two")


def test_a_cpu_is_made_into_as_many_devices_as_are_asked_for(undisturbed, tmp_path):
    place, _ = undisturbed
    run = tmp_path / "run"
    assert "on 2 x cpu" in succeed("train", *RUN, "--steps", 200, "--devices", 2, "--out", run)
    assert "on 2 x cpu" in succeed("resume", run, "--steps", STEPS, "--devices", 2)
    assert_close(run, place / "one")


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (5, 'jax.config.update("jax_num_cpu_devices", 5) must come before the first thing that JAX does'),
        (100_000, "--devices 100000: 100000 of each process, which cannot be more than 256"),
    ],
)
def test_devices_that_cannot_be_are_refused(devices, message):
    """In this process, where JAX has started with four."""
    assert len(jax.devices()) == 4
    machines, _ = take_machines({"devices": devices})
    with pytest.raises(InputError, match=re.escape(message)):
        make_mesh(machines, muster(machines))


def test_devices_that_do_not_divide_the_batch_are_refused(tmp_path):
    done = evergrad("train", "copy", "--units", 6, "--batch", 3, "--devices", 2, "--out", tmp_path / "run")
    assert done.returncode == 2, done.stderr
    assert "3 streams cannot be shared out evenly over 2 devices" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"SLURM_JOB_ID": "8", "SLURM_STEP_NODELIST": "node[03-06]", "SLURM_NTASKS": "4"}, ("node03:61448", 2, 4)),
        ({"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.5:1", "OMPI_COMM_WORLD_SIZE": "3"}, ("10.0.0.5:61441", 2, 3)),
    ],
)
def test_a_cluster_is_asked(monkeypatch, words, found):
    ids = ("SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    for name, word in (words | dict.fromkeys(ids, "2")).items():
        monkeypatch.setenv(name, word)
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0")
    monkeypatch.setattr("evergrad._training.machines.join", lambda *given: given[:3])
    machines, _ = take_machines({"processes": "auto"})
    assert muster(machines) == found


def test_without_a_cluster_there_is_nobody_to_ask():
    machines, _ = take_machines({"processes": "auto"})
    with pytest.raises(InputError, match="--processes auto: this is no step of SLURM"):
        muster(machines)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "a:1", "processes": "2", "process_id": 2}, "2 processes have the ids 0 to 1"),
        ({"processes": "2", "process_id": 0}, "--coordinator is missing"),
        ({"coordinator": "a:1"}, "--processes, --process-id is missing"),
        ({"coordinator": "nowhere", "processes": "2", "process_id": 0}, "HOST:PORT"),
        ({"coordinator": "a:1", "processes": "many", "process_id": 0}, "give a number from 1 to 4096, or auto"),
        ({"coordinator": "a:1", "processes": "100000000", "process_id": 0}, "give a number from 1 to 4096, or auto"),
        ({"devices": 0}, "--devices is 0, but must be 1 or more"),
        ({"shard": "weights"}, "weights"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        take_machines(given)


def test_as_many_devices_as_cores_do_not_wait_for_each_other(tmp_path):
    """Two devices on two cores hung for good: XLA had two threads, and both waited (a process of its own, since threads are made once)."""
    sizes = ("--cell", "lstm", "--units", 16, "--batch", 8, "--gap", 10, "--gap-to", 15, "--steps", 40)
    two = "os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))"
    done = process("train", "cue", *sizes, "--devices", 2, "--out", tmp_path / "run", after=two)
    assert done.returncode == 0, done.stdout + done.stderr
