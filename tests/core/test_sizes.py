"""Sizes that cannot be: refused before anything is allocated or written, with the bytes and what to lower."""

import contextlib
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad._core import fitting, placing, room
from evergrad._core.planner import Rates
from evergrad._core.readouts import Softmax
from evergrad._training import evaluation, loop, run as runs, sizes
from evergrad._training.build import make_job
from evergrad._training.folder import create
from evergrad._training.resolve import resolve
from evergrad.export import export_safetensors
from evergrad.lab import noise
from evergrad.lab.subject import untrained
from tests.helpers import crossed
from tests.training_helpers import as_on_the_command_line  # noqa: F401

GB = 10**9
THERE = 24 * GB
MOST = 2 * GB  # that a refusal may take
KEY = jax.random.key(0)
RATES = Rates(products=5e10, thin=2e10, touched=1e10, operation=1e-6)

TINY = {"units": 6, "batch": 2, "rank": 2, "steps": 3}
OPTIONS = {  # what has to be said beside the option, and whether it is memory that is missing
    "units": ({"rank": 2}, True),
    "batch": ({}, True),
    "window": ({}, True),
    "rank": ({}, False),
    "copies": ({"rank": None, "estimator": "kf"}, True),
    "horizon": ({"rank": None, "estimator": "tbptt"}, True),
    "stride": ({"rank": None, "estimator": "tbptt"}, False),
    "length": ({}, False),
    "longest": ({}, False),
    "jitter": ({}, False),
}
VALUES = crossed([10**9, 2**31, 10**12, 10**18, 10**30, 10**400], lambda value: value == 10**12)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """One of 24 GB, whatever this one has."""
    monkeypatch.setattr(room, "host_memory", lambda: THERE)


@contextlib.contextmanager
def little_memory():
    """What happens inside never takes more than `MOST` bytes beyond what there was."""
    status, peak = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not status.exists():
        yield
        return

    def resident(name):
        return 1024 * int(re.search(rf"{name}:\s+(\d+)", status.read_text())[1])

    with contextlib.suppress(OSError):
        peak.write_text("5")
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < MOST


def words(given):
    return [w for name, value in given.items() if value is not None for w in (f"--{name}", str(value))]


def refused(*arguments):
    with little_memory():
        done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{len(str(v))} digits")
@pytest.mark.parametrize("option", OPTIONS)
def test_a_run_that_cannot_be_is_refused_and_leaves_nothing_behind(option, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beside, is_memory = OPTIONS[option]
    said = refused("train", "copy", *words(TINY | beside | {option: value}), "--out", "runs/new")
    if is_memory and value < 2**63:
        assert re.search(rf"needs .* bytes\) of memory, and there are 24 GB .*: lower --{option}\.", said), said
    assert not list(tmp_path.iterdir())


def test_what_to_lower_is_what_would_do(tmp_path):
    both = words(TINY | {"batch": 10**9, "units": 9000, "window": 10**8})
    said = refused("train", "copy", *both, "--out", tmp_path / "new")
    assert "lower --units or --batch or --window" in said
    long = words(TINY | {"batch": 10_000, "longest": 10**8})
    assert "lower --batch or --longest" in refused("train", "copy", *long, "--out", tmp_path / "new")


def test_a_run_that_fits_is_not_refused():
    """A little above what is predicted, there is room enough; far below it there is not."""
    settings = resolve("copy", TINY)
    job = make_job(settings)
    needed = sizes._planned(settings, job.task, lambda *_: job.learner)
    for there, fits in ((needed, True), (needed // 2, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "host_memory", lambda there=there: there)
            with contextlib.nullcontext() if fits else pytest.raises(eg.InputError, match="of memory"):
                make_job(settings)


def test_a_prediction_is_no_more_than_what_is_held_and_used(tmp_path):
    """All arrays of a run's start are in it, each at least once."""
    settings = resolve("copy", TINY)
    job = make_job(settings)
    held = sum(a.nbytes for a in jax.tree.leaves(loop.begin(job).arrays()) if isinstance(a, jax.Array))
    assert held <= sizes._planned(settings, job.task, lambda *_: job.learner) < 3 * held


def test_a_resumed_run_is_refused_on_a_machine_too_small_for_it(tmp_path, monkeypatch):
    path = tmp_path / "run"
    create(path, make_job(resolve("copy", TINY)).settings, {}, None)
    before = {each: each.read_bytes() for each in path.iterdir() if each.name != "lock"}
    monkeypatch.setattr(room, "host_memory", lambda: 10_000)
    for command in ("resume", "evaluate"):
        assert "go on where there is more, or start a new run with lower" in refused(command, path)
    assert {each: each.read_bytes() for each in path.iterdir() if each.name != "lock"} == before


def test_a_model_of_a_file_is_refused_where_its_run_cannot_be(tmp_path):
    model = eg.Model(eg.LSTM(4, 6, key=KEY), eg.Softmax(6, 4, key=KEY))
    export_safetensors(jax.tree.map(as_single, model), tmp_path / "model.safetensors")
    given = ("import", "copy", tmp_path / "model.safetensors", "--rank", 2, "--steps", 3, "--out", tmp_path / "new")
    assert "lower --batch." in refused(*given, "--batch", 10**12)
    assert not (tmp_path / "new").exists()


def as_single(a):
    return jnp.asarray(a, jnp.float32) if eqx.is_inexact_array(a) else a


@pytest.mark.parametrize(
    "given",
    [
        "lab noise --units 1000000000",
        "lab noise --units 8 --steps 1000000000",
        "lab noise --units 8 --steps 10 --repetitions 1000000000",
        "lab noise --units 8 --steps 10 --batch 1000000000",
        "lab noise --units 8 --steps 10 --estimator ok:rank=2,window=1000000000",
        "lab noise --units 8 --steps 10 --estimator kf:copies=1000000000",
        "lab noise --units 8 --steps 10 --estimator tbptt:horizon=1000000000",
        "lab noise --units 8 --seed 1000000000000000000000000",
        "evaluate nowhere --steps 2147483648",
        "sample nowhere --length 2147483648",
        "paper run lemma2 --seeds 1000000000",
        "paper run lemma2 --jobs 1000000000",
        "plan --units 1000000000",
        "plan --batch 1000000000000",
        "plan --outputs 1000000000000",
        "train copy --coordinator localhost:1 --processes 100000000 --process-id 0 --out new",
    ],
)
def test_other_commands(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*given.split())
    assert not list(tmp_path.iterdir())


def test_reports_may_be_as_rare_as_one_likes():
    """Losses are kept for the steps of a call, not for those of a report; a call is no longer, whatever the report."""
    assert loop.most_steps(16, 1000) == 1000
    assert loop.most_steps(16, 10**9) * 16 <= 1 << 22
    assert loop.most_steps(10**9, 1000) == 1
    settings = resolve("copy", TINY | {"report": 10**9})
    job = make_job(settings)
    advance = loop.Loop(job, loop.begin(job), None, None, None, None)
    with little_memory():
        rare = job.learner.follow(*start(job), 3, room=advance._room)
    often = job.learner.follow(*start(job), 3, room=3)
    for one, other in zip(jax.tree.leaves(rare[0]), jax.tree.leaves(often[0]), strict=True):
        assert same(one, other)


def start(job):
    state, position = job.start()
    return state, job.source, position


def same(a, b):
    def plain(x):
        return jax.random.key_data(x) if eqx.is_array(x) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return np.asarray(plain(a)).tobytes() == np.asarray(plain(b)).tobytes() if eqx.is_array(a) else a == b


def test_an_evaluation_in_many_calls_is_the_same_as_in_one(monkeypatch):
    settings = resolve("copy", TINY)
    job = make_job(settings)

    def measure():
        return evaluation._frozen(job.learner.model, job.task, 2, 50, seed=1)

    whole = measure()
    monkeypatch.setattr(fitting, "_LOSSES", 14)
    parts = measure()
    assert parts.keys() == whole.keys()
    for name, value in whole.items():
        assert parts[name] == pytest.approx(value, rel=1e-12)


def test_a_text_is_not_longer_than_what_can_be_held():
    evaluation._check_length(10**8)
    with pytest.raises(eg.InputError, match=r"2000000000 needs 48 GB .*write less"):
        evaluation._check_length(2 * 10**9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: learner(eg.OK(rank=4)).init(batch=10**12, key=KEY),
        lambda: learner(eg.OK(rank=4)).init(batch=10**400, key=KEY),
        lambda: learner(eg.TBPTT(horizon=10**12, stride=1)).init(batch=2, key=KEY),
        lambda: learner(eg.UORO(window=10**9)).init(batch=2, key=KEY),
        lambda: eg.GRU(inputs=4, units=10**9, key=KEY),
        lambda: eg.RHN(inputs=4, units=10**9, key=KEY),
        lambda: Softmax(units=10**9, classes=10**4, key=KEY),
    ],
)
def test_in_python(make):
    with little_memory(), pytest.raises(eg.InputError, match=r"bytes\) of memory, and there are 24 GB|below 2\^63"):
        make()


def learner(estimator):
    model = eg.Model(eg.RHN(4, 8, key=KEY), eg.Softmax(8, 4, key=KEY))
    return eg.Learner(model, estimator, optax.adam(1e-3))


def test_a_plan_of_anything_is_a_plan():
    """Also of what no machine could hold: nothing is made to find out."""
    cell = eg.RHN(inputs=4, units=8, key=KEY)
    with little_memory():
        found = eg.plan(cell, batch=10**12, outputs=10**12, rates=RATES)
    assert all(option.bytes > 10**13 for option in found.options)


def test_what_was_not_foreseen_leaves_no_folder(tmp_path, monkeypatch):
    xla = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    for error, place in ((MemoryError(), "begin"), (xla, "begin"), (xla, "Loop")):
        with monkeypatch.context() as patch:
            patch.setattr(runs, place, lambda *_, error=error: (_ for _ in ()).throw(error))
            said = refused("train", "copy", *words(TINY), "--out", tmp_path / "new")
        assert "not enough memory" in said
        assert not list(tmp_path.iterdir())


def test_what_was_learned_is_kept(tmp_path):
    folder = create(tmp_path / "run", make_job(resolve("copy", TINY)).settings, {}, None)
    (folder.checkpoints / "300").mkdir(parents=True)
    runs._remove_unused(folder)
    assert folder.path.is_dir()
    (folder.checkpoints / "300").rmdir()
    runs._remove_unused(folder)
    assert not folder.path.exists()


def test_other_errors_are_not_taken_for_it():
    assert not room.ran_out(jax.errors.JaxRuntimeError("INTERNAL: something else"))
    assert not room.ran_out(ValueError("Out of memory"))


def test_limits_of_control_groups_are_found(tmp_path):
    mine, mounted = tmp_path / "cgroup", tmp_path / "fs"
    mine.write_text("4:memory,hugetlb:/outer/inner\n3:cpu:/\n1:name=systemd:/\n0::/slice/job\n")
    limits = {
        "memory/outer/memory.limit_in_bytes": "700",
        "slice/memory.max": "500",
        "slice/job/memory.max": "max",
        "memory.max": "900",
    }
    for name, value in limits.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(value + "\n")
    assert sorted(room._control_groups(mine, mounted)) == [500, 700, 900]
    assert list(room._control_groups(tmp_path / "none", mounted)) == []


class Accelerator:
    platform = "gpu"

    def __init__(self, stats):
        self.memory_stats = lambda: stats


@pytest.mark.parametrize(("stats", "there"), [(None, None), ({}, None), ({"bytes_limit": 80 * GB}, 80 * GB)])
def test_an_accelerator_says_what_it_has_or_nothing_is_refused(stats, there, monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Accelerator(stats)])
    assert room.there_is() == there
    with pytest.raises(eg.InputError, match="80 GB") if there else contextlib.nullcontext():
        room.require(10**15, "it", "use less")


def test_devices_of_a_process_share_its_memory_and_processes_do_not():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lanes",))
    assert placing.share(100, None) == placing.share(100, mesh) == 100


def test_bytes_for_people():
    assert [room.shown(n) for n in (0, 999, 1500, 24 * GB)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB (1,500 bytes)",
        "24 GB (24,000,000,000 bytes)",
    ]


def test_the_lab_knows_what_it_needs():
    """Within what a small measurement takes, the prediction is of its size."""
    settings = resolve("copy", {"units": 8, "length": 3, "longest": 3})
    subject = untrained(settings, steps=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "host_memory", lambda: 10_000)
        with pytest.raises(eg.InputError, match=r"measuring these estimators needs .*--repetitions"):
            noise.measure(subject.model, {"kf": eg.KF(copies=2)}, subject.data, repetitions=2, key=KEY)
