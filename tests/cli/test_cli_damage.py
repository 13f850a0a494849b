"""What can happen to a run's folder, to its data and to the disk."""

import shutil

import pytest

from tests.training_helpers import (
    COPY_OK,
    SERIES_TBPTT,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    change_settings,
    evergrad,
    process,
    reports,
    succeed,
    write_series,
)

STEPS = ("--steps", 600, "--report", 200, "--checkpoint-every", 200)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    succeed("train", *COPY_OK, *STEPS, "--out", run)
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run with the checkpoints 200, 400 and 600."""
    return shutil.copytree(finished, tmp_path / "run")


def refused(done, *parts):
    assert done.returncode == 2, done.stdout + done.stderr
    for part in parts:
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def truncate(folder):
    path = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:100])


def test_a_truncated_checkpoint_is_named_and_the_one_before_is_used(run, finished):
    truncate(run / "checkpoints" / "600")
    output = succeed("resume", run)
    assert "checkpoint 600" in output
    assert "cannot be used" in output
    assert_same_result(run, finished)
    assert (run / "unreadable" / "600").is_dir()


def test_if_no_checkpoint_is_good_nothing_is_touched(run):
    for step in (200, 400, 600):
        truncate(run / "checkpoints" / str(step))
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    refused(evergrad("resume", run), "none of the 3 checkpoints")
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == before
    assert len(reports(run)) == 3


def test_settings_that_do_not_match_are_refused(run):
    change_settings(run, lambda document: document["settings"].update(units=7))
    refused(evergrad("resume", run), "does not match the settings")


def test_a_newer_run_is_refused(run):
    change_settings(run, lambda document: document.update(format=99, version="9.9"))
    refused(evergrad("resume", run), "evergrad 9.9 in format 99", "install a newer version")


def test_damaged_settings_are_refused(run):
    (run / "settings.json").write_text('{"product": "evergrad", ')
    refused(evergrad("resume", run), "settings.json is damaged")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    refused(evergrad("resume", tmp_path), "is no run of evergrad")
    refused(evergrad("info", tmp_path / "nowhere"), "there is no folder")


def test_a_folder_with_something_in_it_is_left_alone(run, tmp_path):
    refused(evergrad("train", *COPY_OK, *STEPS, "--out", run), "has a run in it", f"evergrad resume {run}")
    other = tmp_path / "photographs"
    other.mkdir()
    (other / "holiday.txt").write_text("a photograph")
    refused(evergrad("train", *COPY_OK, *STEPS, "--out", other), "not empty", "choose another --out")
    assert [path.name for path in other.iterdir()] == ["holiday.txt"]


def test_changed_data_is_refused(tmp_path):
    data, run = write_series(tmp_path / "wave.csv", rows=700), tmp_path / "run"
    given = ("--report", 100, "--steps", 200)
    succeed("train", *SERIES_TBPTT, "--data", data, *given, "--out", run)
    data.write_text(data.read_text().replace("\n3,", "\n3,1"))
    refused(evergrad("resume", run, "--steps", 300), "wave.csv has changed since", "put the old data back")
    data.unlink()
    refused(evergrad("resume", run, "--steps", 300), "wave.csv cannot be read")


# permissions mean something to root too once it has lost CAP_DAC_OVERRIDE (1), with prctl's PR_CAPBSET_DROP (24)
OBEY_PERMISSIONS = "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)"


def test_a_read_only_folder_is_refused(tmp_path, run):
    place = tmp_path / "locked"
    place.mkdir(mode=0o555)
    done = process("train", *COPY_OK, *STEPS, "--out", place / "run", after=OBEY_PERMISSIONS)
    refused(done, f"{place / 'run'} cannot be made (Permission denied)", "choose an --out")
    (run / "lock").chmod(0o444)
    run.chmod(0o555)
    refused(process("resume", run, after=OBEY_PERMISSIONS), "lock cannot be written (Permission denied)")


# no file may grow beyond so many bytes: for a process that is what a full disk is like
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"


def test_a_full_disk_says_so_and_leaves_the_last_good_checkpoint(run, finished):
    # a checkpoint needs a file larger than this; the reports do not
    done = process("resume", run, "--steps", 800, after=NO_ROOM)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "could not be written" in done.stderr
    assert "File too large" in done.stderr
    assert "Complete checkpoints there: 400, 600" in done.stderr
    assert "Traceback" not in done.stderr
    succeed("resume", run, "--steps", 600)
    assert_same_result(run, finished)
