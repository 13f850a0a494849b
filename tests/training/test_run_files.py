"""The files of a run: whose they are, what a link may not do to them, what kills leave, and what is never deleted."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time

import equinox as eqx
import jax.numpy as jnp
import pytest

from evergrad import _native as native
from evergrad._core.checks import InputError
from evergrad._core.files import is_beside, read_checked, refuse_links_below, write_checked, write_whole, written_whole
from evergrad._core.recipe import program
from evergrad._registry import ESTIMATORS
from evergrad._training.build import make_job, takes_kernels
from evergrad._training.folder import open_run
from evergrad._training.resolve import resolve
from tests.helpers import crossed
from tests.tiny_run import STEPS, TINY, contents, finished, refused, succeed  # noqa: F401
from tests.training_helpers import (
    as_older_versions_did,
    as_on_the_command_line,  # noqa: F401
    assert_same_result,
    command,
    environment,
    reports,
)

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def run(finished, tmp_path):  # noqa: F811
    """A copy of a finished run with the checkpoints 10, 20 and 30."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def other(run, tmp_path):
    """One that differs in its seed alone."""
    succeed("train", *TINY, *STEPS, "--seed", 1, "--out", tmp_path / "other")
    return tmp_path / "other"


# ---- documents with a checksum


def test_a_document_is_read_as_it_was_written_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_checked(path, {"format": 1, "ü": [1, 0.1, None]})
    assert read_checked(path) == {"product": "evergrad", "format": 1, "ü": [1, 0.1, None]}
    path.write_text(path.read_text().replace("0.1", "0.2"))
    for old in (0, 1):
        with pytest.raises(InputError, match=r"a.json is damaged or not ours \(its checksum does not fit"):
            read_checked(path, old=old)


def test_only_older_formats_may_have_no_checksum(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"product": "evergrad", "format": 1}')
    assert read_checked(path, old=1)["format"] == 1
    with pytest.raises(InputError, match="checksum"):
        read_checked(path)
    path.write_text('{"product": "evergrad", "format": true}')
    with pytest.raises(InputError, match="checksum"):
        read_checked(path, old=1)


@pytest.mark.parametrize("content", ["[" * 100_000, "1" * 5000, "[]", '{"product": "other"}', "\x00", ""])
def test_what_is_no_document_of_ours_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=r"a.json is damaged or not ours"):
        read_checked(tmp_path / "a.json")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "settings.json")
    assert "is not a file with content" in refused("info", tmp_path)


# ---- checkpoints


def test_edited_notes_are_noticed(run, finished):  # noqa: F811
    path = run / "checkpoints" / "30" / "notes" / "metadata"
    path.write_text(path.read_text().replace('"notes": {"step": 30', '"notes": {"step": 70'))
    said = succeed("resume", run)
    assert "checkpoint 30" in said
    assert "done: 30 steps" in said
    assert_same_result(run, finished)


def test_edited_notes_of_an_older_version_are_noticed_too(run, finished):  # noqa: F811
    as_older_versions_did(run)
    path = run / "checkpoints" / "30" / "notes" / "metadata"
    path.write_text(path.read_text().replace('"notes": {"step": 30', '"notes": {"step": 70'))
    path = run / "checkpoints" / "20" / "notes" / "metadata"
    path.write_text(path.read_text().replace('"loss_sum"', '"lost_sum"'))
    said = succeed("resume", run)
    for step in (20, 30):
        assert f"checkpoint {step} in {run / 'checkpoints'} cannot be used: its notes are damaged." in said
    assert_same_result(run, finished)


def test_a_run_of_an_older_version_goes_on_as_if_it_were_new(run, finished, tmp_path):  # noqa: F811
    whole = shutil.copytree(finished, tmp_path / "whole")
    as_older_versions_did(run)
    for each in (run, whole):
        assert "cannot" not in succeed("resume", each, "--steps", 40)
    assert_same_result(run, whole)
    assert read_checked(run / "settings.json")["format"] == 2


def test_a_checkpoint_of_another_run_is_not_taken(run, other, finished):  # noqa: F811
    for step in (20, 30):
        shutil.rmtree(run / "checkpoints" / str(step))
        shutil.copytree(other / "checkpoints" / str(step), run / "checkpoints" / str(step))
    said = succeed("resume", run)
    for step in (20, 30):
        assert re.search(rf"checkpoint {step} .* belongs to another run, with other settings or data", said)
    assert_same_result(run, finished)


def test_what_may_be_changed_later_does_not_make_another_run(run, tmp_path):
    more = ("--steps", 40, "--report", 10, "--checkpoint-every", 5, "--keep", 2)
    succeed("train", *TINY, *more, "--out", tmp_path / "longer")
    assert open_run(tmp_path / "longer").identity == open_run(run).identity
    succeed("train", *TINY, *more, "--learning-rate", 0.1, "--out", tmp_path / "faster")
    assert open_run(tmp_path / "faster").identity != open_run(run).identity


def test_a_foreign_folder_among_the_checkpoints_is_set_aside_not_deleted(run):
    (run / "checkpoints" / "5").mkdir()
    (run / "checkpoints" / "5" / "holiday.txt").write_text("a photograph")
    succeed("resume", run, "--steps", 90)
    assert (run / "unreadable" / "5" / "holiday.txt").read_text() == "a photograph"


# ---- reports


def test_a_damaged_line_costs_no_other_report(run, finished):  # noqa: F811
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    broken = lines[0].replace(b'"loss": ', b'"loss": 1')
    path.write_bytes(broken + lines[1] + lines[2])
    said = succeed("resume", run, "--steps", 40)
    assert "metrics.jsonl: 1 of its lines could not be read; kept in" in said
    assert (run / "metrics.aside.jsonl").read_bytes() == broken
    assert [row["step"] for row in reports(run)] == [20, 30, 40]
    assert path.read_bytes().startswith(lines[1] + lines[2])


def test_reports_that_will_not_be_made_again_are_kept(run):
    """Those beyond the last step, when fewer are asked for than were once reported."""
    shutil.rmtree(run / "checkpoints" / "30")
    last = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)[-1]
    said = succeed("resume", run, "--steps", 25)
    assert "metrics.jsonl: 1 of its lines of later than step 20 may not come out the same" in said
    assert (run / "metrics.aside.jsonl").read_bytes() == last
    assert [row["step"] for row in reports(run)] == [10, 20, 25]


def test_reports_that_are_made_again_leave_nothing_behind(run, finished):  # noqa: F811
    shutil.rmtree(run / "checkpoints" / "30")
    succeed("resume", run)
    assert_same_result(run, finished)
    assert not list(run.glob("*aside*"))


# ---- links


FILES = ("lock", "settings.json", "metrics.jsonl", "speed.jsonl", "plot.png", "metrics.aside.jsonl")
FOLDERS = ("checkpoints", "unreadable", "tensorboard", "checkpoints/10", "checkpoints/30/notes")


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_no_link_in_a_run_is_followed_to_write_or_delete(run, tmp_path, name):
    outside = tmp_path / "outside"
    link, target = run / name, outside / "target"
    outside.mkdir()
    if link.exists():
        link.rename(target)
    elif name in FOLDERS:
        target.mkdir()
    else:
        target.write_text("precious")
    link.symlink_to(target)
    before, kept = contents(outside), contents(run)
    assert f"{link} is a link, and evergrad writes and deletes nothing behind links" in refused(
        "resume", run, "--steps", 40
    )
    assert contents(outside) == before
    assert contents(run) == kept


def test_a_run_that_is_itself_a_link_is_read_but_not_written(run, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(run)
    before = contents(run)
    assert "is a link" in refused("resume", link, "--steps", 40)
    assert "is a link" in refused("train", *TINY, *STEPS, "--out", link)
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    assert "is a link" in refused("train", *TINY, *STEPS, "--out", link)
    assert contents(run) == before
    assert not (tmp_path / "nowhere").exists()
    link.unlink()
    link.symlink_to(run)
    succeed("info", link)


def test_a_lock_that_is_no_lock_is_left_alone(run):
    (run / "lock").write_text("a photograph")
    assert "lock is no lock of a run" in refused("resume", run)
    assert (run / "lock").read_text() == "a photograph"
    (run / "lock").unlink()
    os.mkfifo(run / "lock")
    assert "is no file" in refused("resume", run)


def test_results_are_not_written_through_links(run, tmp_path):
    picture = tmp_path / "picture.png"
    picture.symlink_to(run / "plot.png")
    before = contents(run)
    assert "is a link" in refused("compare", run, "--plot", picture)
    assert contents(run) == before
    with pytest.raises(InputError, match="is a link"):
        write_whole(picture, "text")
    with pytest.raises(InputError, match="is no file"):
        write_whole(tmp_path, "text")


def test_links_below_a_folder_are_found(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    refuse_links_below(tmp_path)
    refuse_links_below(tmp_path / "nowhere")
    (tmp_path / "a" / "b" / "c").symlink_to("nowhere")
    with pytest.raises(InputError, match="c is a link"):
        refuse_links_below(tmp_path)


def test_a_snapshot_by_hard_links_is_not_changed(run, tmp_path):
    shutil.copytree(run, tmp_path / "snapshot", copy_function=os.link)
    before = contents(tmp_path / "snapshot")
    succeed("resume", run, "--steps", 40)
    after = contents(tmp_path / "snapshot")
    del before[next(name for name in before if name.name == "lock")]
    assert {name: after[name] for name in before} == before


# ---- what kills leave behind


def test_names_of_unfinished_files():
    for name in (".a.json.0123456789abcdef", ".a.json.4711"):
        assert is_beside(name, "a.json")
    for name in (
        ".a.json.",
        ".a.json.20240101",
        ".axjson.4711",
        "a.json.4711",
        ".a.json.0123456789abcdeg",
        ".a.json.x",
    ):
        assert not is_beside(name, "a.json")


def test_two_who_write_the_same_file_do_not_meet(tmp_path, monkeypatch):
    """Processes in containers may have the same number."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with written_whole(tmp_path / "a") as one, written_whole(tmp_path / "a") as two:
        assert one != two
        one.write_text("one")
        two.write_text("two")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_unfinished_files_are_removed_by_resume(run):
    for name in (".settings.json.4711", ".metrics.jsonl.0123456789abcdef", ".plot.png.4711"):
        (run / name).write_text("half")
    (run / ".settings.json.backup").write_text("mine")
    succeed("resume", run)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".settings.json.backup"]


def half_made(path, token, *, locked=True, files=(), age=0.0):
    half = path.with_name(f".{path.name}-{token}")
    half.mkdir()
    for name in (*files, *(("lock",) if locked else ())):
        (half / name).write_text("")
    os.utime(half, (time.time() - age,) * 2)
    return half


def test_half_made_folders_are_removed_unless_somebody_may_be_working_with_them(tmp_path):
    path = tmp_path / "new"
    gone = [
        half_made(path, "killed__", files=("settings.json",)),
        half_made(path, "earlier0", files=(".settings.json.0123456789abcdef",)),
        half_made(path, "older_v1", locked=False, files=(".settings.json.12",), age=100),
        half_made(path, "atonce__", locked=False, age=100),
    ]
    busy = half_made(path, "busy____", files=("settings.json",))
    kept = [
        busy,
        half_made(path, "justmade", locked=False),
        half_made(path, "foreign_", files=("holiday.txt",), age=100),
        half_made(path, "toolonganame", age=100),
        half_made(tmp_path / "other", "killed__", age=100),
    ]
    (tmp_path / f".{path.name}-alink___").symlink_to(busy)
    with (busy / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        succeed("train", *TINY, *STEPS, "--out", path)
    assert not any(half.exists() for half in gone)
    assert all(half.exists() for half in kept)
    assert (tmp_path / f".{path.name}-alink___").is_symlink()


def test_a_folder_that_is_being_made_is_locked(tmp_path, monkeypatch):
    seen = []

    def look(path, document):
        seen.append(open_run_lock(path.parent))
        write_checked(path, document)

    monkeypatch.setattr("evergrad._training.folder.write_checked", look)
    succeed("train", *TINY, *STEPS, "--out", tmp_path / "run")
    assert seen == [True]


def open_run_lock(folder):
    """Whether somebody holds the lock."""
    with (folder / "lock").open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ---- kernels


@pytest.mark.parametrize("estimator", crossed(ESTIMATORS, lambda estimator: estimator in ("ok", "rtrl", "tbptt")))
def test_who_takes_kernels(estimator, monkeypatch):
    """Those whose steps call them, and not where all is small."""
    called, call = [], native.call
    cell = {"rflo": "leaky", "kernl": "rnn"}.get(estimator, "rhn")
    own = {"snap": {"order": 1}, "ktp": {"rank": 4}}.get(estimator, {})  # all that dense weights, and few units, allow
    job = make_job(resolve("copy", {"estimator": estimator, "cell": cell, "units": 8, "batch": 4} | own))
    monkeypatch.setattr(native, "available", lambda: True)
    assert not takes_kernels(job)
    monkeypatch.setattr(native, "SMALL", 1)
    takes = takes_kernels(job)
    monkeypatch.setattr(native, "call", lambda *args, **words: called.append(args) or call(*args, **words))
    fixed = job.learner._recipe, job.source, 1, jnp.int32(1)
    eqx.filter_eval_shape(program("follow", True), fixed, *eqx.filter_eval_shape(job.start))
    assert takes == bool(called)
    monkeypatch.setattr(native, "available", lambda: False)
    assert not takes_kernels(job)


def test_whether_kernels_were_used_is_in_the_settings_and_said_when_it_changes(run, monkeypatch):
    assert open_run(run).kernels is False
    assert "native kernels" not in succeed("resume", run, "--steps", 40)
    monkeypatch.setattr("evergrad._training.run.takes_kernels", lambda job: True)
    said = succeed("resume", run, "--steps", 50)
    assert "was trained without native kernels so far and goes on with them" in said
    assert said.index("not be the same to the last bit") < said.index("steps 40 to 50")
    assert open_run(run).kernels is True
    monkeypatch.undo()
    assert "was trained with native kernels so far and goes on without them" in succeed("resume", run, "--steps", 60)


def test_a_run_of_an_older_version_has_nothing_to_say_of_kernels(run, monkeypatch):
    as_older_versions_did(run)
    monkeypatch.setattr("evergrad._training.run.takes_kernels", lambda job: True)
    assert "native kernels" not in succeed("resume", run, "--steps", 40)
    assert open_run(run).kernels is True


def test_without_the_same_kernels_later_reports_are_kept(run, monkeypatch):
    shutil.rmtree(run / "checkpoints" / "30")
    last = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)[-1]
    monkeypatch.setattr("evergrad._training.run.takes_kernels", lambda job: True)
    succeed("resume", run)
    assert (run / "metrics.aside.jsonl").read_bytes() == last


# ---- nobody reads the output


def test_head_ends_a_run_with_a_checkpoint_and_a_word(tmp_path):
    words = command("train", *TINY, "--steps", 10**7, "--report", 200, "--out", tmp_path / "run")
    channels = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(), text=True, **channels) as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in said
    found = re.search(r"stopped since nobody reads its output any more \(SIGPIPE\) at step ([\d,]+); go on with", said)
    step = int(found[1].replace(",", ""))
    assert (tmp_path / "run" / "checkpoints" / str(step)).is_dir()
    assert reports(tmp_path / "run")[-1]["step"] == step
