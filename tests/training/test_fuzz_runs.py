"""Whatever happens to the files of a run: what is read is what was written, or it is refused in a sentence.

All damage is drawn from fixed seeds; `make test-slow` draws many times as much.
"""

import contextlib
import json
import random
import resource
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from evergrad._core.checks import InputError
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.folder import open_run
from evergrad._training.metrics import Metrics
from tests.mutations import damage_file, damage_tree, damaged_bytes, damaged_json
from tests.tiny_run import call, contents, finished  # noqa: F401
from tests.training_helpers import (
    as_older_versions_did,
    as_on_the_command_line,  # noqa: F401
    command_line_config,
    durable_state,
)

# a reader of Orbax's that a damaged file stopped may be heard of later, from a thread that has no name
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")

ENDS = {0, 2, 3, 4}  # exit codes that a damaged run may end with
GIBIBYTES_2 = 2 << 20  # in KiB, as the operating system counts


def draws(few, many):
    """Seeds: few, and many for the slow tests."""
    return pytest.mark.parametrize(
        "seeds", [range(few), pytest.param(range(few, many), marks=pytest.mark.slow)], ids=["few", "many"]
    )


@contextlib.contextmanager
def little_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIBIBYTES_2


# ---- checkpoints


def tree(step):
    key, count = jax.random.key(step), jnp.asarray(step, jnp.int32)
    return {"weights": jax.random.normal(key, (9, 4), jnp.float32), "keys": jax.random.split(key, 2), "count": count}


NOTES = {"step": 0, "loss": 0.25, "resets": False}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of the steps 10, 20 and 30."""
    folder = tmp_path_factory.mktemp("saved") / "c"
    checkpoints = Checkpoints(folder, owner="me")
    for step in (10, 20, 30):
        checkpoints.save(step, tree(step), NOTES | {"step": step})
    checkpoints.close()
    return folder


def loaded(folder):
    """The step of the checkpoint that is used, if all that it has is right; and what was said."""
    said = []
    state, notes = Checkpoints(folder, owner="me", read_only=True).load(tree(0), said.append)
    assert notes == NOTES | {"step": notes["step"]}
    assert eqx.tree_equal(state, tree(notes["step"]))
    return notes["step"], said


def check_next_is_used(folder, why):
    step, said = loaded(folder)
    assert step == 30 or (step == 20 and len(said) == 1 and "checkpoint 30" in said[0]), (why, step, said)


@draws(50, 3000)
def test_damaged_notes(saved, tmp_path, seeds):
    folder = shutil.copytree(saved, tmp_path / "c")
    path = folder / "30" / "notes" / "metadata"
    whole = path.read_bytes()
    for seed in seeds:
        chance = random.Random(f"notes {seed}")
        in_json = json.dumps(damaged_json(json.loads(whole), chance)).encode()
        path.write_bytes(chance.choice([in_json, damaged_bytes(whole, chance)]))
        check_next_is_used(folder, seed)


@draws(20, 1500)
def test_a_damaged_checkpoint(saved, tmp_path, seeds):
    folder = shutil.copytree(saved, tmp_path / "c")
    with little_memory():
        for seed in seeds:
            damage_tree(folder / "30", random.Random(f"tree {seed}"))
            check_next_is_used(folder, seed)
            shutil.rmtree(folder / "30")
            shutil.copytree(saved / "30", folder / "30")


@draws(8, 400)
def test_checkpoints_that_change_places(saved, tmp_path, seeds):
    folder = shutil.copytree(saved, tmp_path / "c")
    for seed in seeds:
        damage_tree(folder, random.Random(f"places {seed}"))
        with contextlib.suppress(InputError):  # if none is left
            loaded(folder)
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)


# ---- the other files of a run


@draws(100, 10_000)
def test_damaged_settings(finished, tmp_path, seeds):  # noqa: F811
    (tmp_path / "run").mkdir()
    path, whole = tmp_path / "run" / "settings.json", (finished / "settings.json").read_bytes()
    path.write_bytes(whole)
    expected = open_run(tmp_path / "run")
    for seed in seeds:
        chance = random.Random(f"settings {seed}")
        in_json = json.dumps(damaged_json(json.loads(whole), chance)).encode()
        path.write_bytes(chance.choice([in_json, damaged_bytes(whole, chance)]))
        with contextlib.suppress(InputError):
            assert open_run(tmp_path / "run") == expected, seed


@draws(100, 10_000)
def test_damaged_settings_of_an_older_version_are_refused_or_have_values_that_can_be(finished, tmp_path, seeds):  # noqa: F811
    run = shutil.copytree(finished, tmp_path / "run")
    as_older_versions_did(run)
    path = run / "settings.json"
    whole = json.loads(path.read_text())
    for seed in seeds:
        path.write_text(json.dumps(damaged_json(whole, random.Random(f"old settings {seed}"))))
        with contextlib.suppress(InputError):
            assert open_run(run).path == run


@draws(50, 3000)
def test_damaged_reports_are_kept_in_one_file_or_the_other(finished, tmp_path, seeds):  # noqa: F811
    run = shutil.copytree(finished, tmp_path / "run")
    metrics, aside, folder = run / "metrics.jsonl", run / "metrics.aside.jsonl", open_run(run)
    whole = metrics.read_bytes()
    for seed in seeds:
        damaged = damaged_bytes(whole, random.Random(f"metrics {seed}"))
        metrics.write_bytes(damaged)
        aside.unlink(missing_ok=True)
        Metrics(folder, 30).close()
        kept, apart = metrics.read_bytes(), aside.read_bytes() if aside.exists() else b""
        assert set(kept.splitlines()) <= set(whole.splitlines()), seed  # nothing that is not true
        for line in damaged.splitlines():  # and nothing lost
            assert line in apart.splitlines() or json.loads(line) in map(json.loads, kept.splitlines()), seed


# ---- the whole command


def resumed(run):
    return call("resume", run, "--steps", 40)


@pytest.fixture(scope="module")
def expected(finished, tmp_path_factory):  # noqa: F811
    run = shutil.copytree(finished, tmp_path_factory.mktemp("expected") / "run")
    with command_line_config():
        assert resumed(run).exit_code == 0
        return durable_state(run)


def check_resume(run, expected, outside, why):
    before = {name: content for name, content in contents(outside).items() if "run" not in name.parts}
    done = resumed(run)
    assert done.exit_code in ENDS, (why, done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), (why, done.exception)
    assert "Traceback" not in done.output, why
    assert {n: content for n, content in contents(outside).items() if "run" not in n.parts} == before, why
    if done.exit_code == 0:
        state = durable_state(run)
        assert all(array.tobytes() == expected[name].tobytes() for name, array in state.items()), (why, done.output)
    return done


@draws(4, 200)
def test_resume_on_damaged_runs(finished, expected, tmp_path, seeds):  # noqa: F811
    (tmp_path / "precious.txt").write_text("somebody else's")
    for seed in seeds:
        chance, run = random.Random(f"resume {seed}"), shutil.copytree(finished, tmp_path / "run")
        for _ in range(chance.randrange(1, 4)):
            part = chance.choice(
                ["settings.json", "metrics.jsonl", "speed.jsonl", "lock", "checkpoints", "checkpoints"]
            )
            if (run / part).is_dir():
                damage_tree(run / part, chance)
            elif (run / part).exists():
                damage_file(run / part, chance)
        check_resume(run, expected, tmp_path, seed)
        shutil.rmtree(run)
