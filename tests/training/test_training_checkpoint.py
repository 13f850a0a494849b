"""Durable states: exact, whole or not at all, and never trusted blindly."""

import json
import pickle
import shutil
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evergrad._core.checks import InputError
from evergrad._core.files import with_checksum
from evergrad._training import checkpoint
from evergrad._training.checkpoint import Checkpoints
from tests.training_helpers import as_on_the_command_line  # noqa: F401

# a reader of Orbax's that a damaged file stopped may be heard of later, from a thread that has no name
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")


def tree(seed=0):
    key = jax.random.key(seed)
    return {
        "weights": jax.random.normal(key, (300, 20)),
        "keys": jax.random.split(key, 3),
        "count": jnp.asarray(seed, jnp.uint32),
        "nothing": None,
        "name": "not an array",
    }


def saved(folder, seeds=(1, 2, 3)):
    checkpoints = Checkpoints(folder, keep=5)
    for seed in seeds:
        checkpoints.save(10 * seed, tree(seed), {"seed": seed})
    checkpoints.close()
    return folder


def load(folder, like=None):
    complaints = []
    found = Checkpoints(folder, read_only=True).load(tree() if like is None else like, complaints.append)
    return found, complaints


def test_what_is_loaded_is_what_was_saved(tmp_path):
    (found, notes), complaints = load(saved(tmp_path / "c"), eqx.filter_eval_shape(tree))
    assert complaints == []
    assert notes == {"seed": 3}
    assert eqx.tree_equal(found, tree(3))


def test_the_last_few_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    for step in range(1, 6):
        checkpoints.save(step, tree(step), {})
    checkpoints.wait()
    assert checkpoints.steps() == [4, 5]
    checkpoints.close()


def test_memory_may_be_given_away_while_it_is_written(tmp_path):
    checkpoints, state = Checkpoints(tmp_path / "c"), {"a": jnp.zeros((500, 500))}
    change = jax.jit(lambda a: a + 1, donate_argnums=0)
    checkpoints.save(1, state, {})
    for _ in range(20):
        state["a"] = change(state["a"])
    checkpoints.close()
    (found, _), _ = load(tmp_path / "c", {"a": jnp.zeros((500, 500))})
    assert float(jnp.abs(found["a"]).max()) == 0


def test_no_checkpoint_is_none(tmp_path):
    (tmp_path / "c").mkdir()
    assert load(tmp_path / "c") == (None, [])


def largest_file(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def truncate(folder):
    path = largest_file(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(folder):
    path = largest_file(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_notes(**changes):
    def change(folder):
        path = folder / "notes" / "metadata"
        notes = json.loads(path.read_text())
        del notes["checksum"]
        path.write_text(json.dumps(with_checksum(notes | changes)))

    return change


def wipe(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "holiday.txt").write_text("a photograph")


DAMAGE = {
    "truncated": (truncate, ""),
    "bit flipped": (flip, ""),
    "foreign": (change_notes(product="other"), "not written by evergrad"),
    "foreign folder": (wipe, ""),
    "newer": (change_notes(format=8), "format 8 and this evergrad reads up to 7: install a newer version"),
    "another step": (change_notes(step=20), "it is the checkpoint of step 20"),
    "damaged notes": (change_notes(checksums=[]), "its notes are damaged"),
    "no notes": (lambda folder: shutil.rmtree(folder / "notes"), ""),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path, kind):
    damage, message = DAMAGE[kind]
    folder = saved(tmp_path / "c")
    damage(folder / "30")
    (found, notes), complaints = load(folder)
    assert notes == {"seed": 2}
    assert eqx.tree_equal(found, tree(2))
    assert len(complaints) == 1
    assert "checkpoint 30" in complaints[0]
    assert message in complaints[0]


def test_if_none_is_good_it_says_so(tmp_path):
    folder = saved(tmp_path / "c", seeds=(1, 2))
    for step in ("10", "20"):
        truncate(folder / step)
    with pytest.raises(InputError, match="none of the 2 checkpoints"):
        load(folder)


def test_another_form_does_not_match_the_settings(tmp_path):
    folder = saved(tmp_path / "c", seeds=(1,))
    wide = tree() | {"weights": jnp.zeros((300, 21))}
    with pytest.raises(InputError, match=r"does not match the settings: weights is float32\[300, 20\] there"):
        load(folder, wide)
    with pytest.raises(InputError, match="more is in only one of the two"):
        load(folder, tree() | {"more": jnp.zeros(3)})


def test_what_could_not_be_used_is_set_aside_and_never_overwritten(tmp_path):
    folder = saved(tmp_path / "c")
    wipe(folder / "30")
    checkpoints = Checkpoints(folder, keep=5)
    checkpoints.set_aside_after(20)
    assert checkpoints.steps() == [10, 20]
    assert (tmp_path / "unreadable" / "30" / "holiday.txt").read_text() == "a photograph"
    checkpoints.save(30, tree(7), {"seed": 7})
    checkpoints.close()
    assert load(folder)[0][1] == {"seed": 7}


def test_loading_never_unpickles(tmp_path, monkeypatch):
    folder = saved(tmp_path / "c")

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert load(folder)[0][1] == {"seed": 3}
    for path in folder.rglob("*"):
        assert not path.is_file() or not path.read_bytes().startswith(b"\x80")


def test_a_read_only_look_leaves_an_unfinished_one_alone(tmp_path):
    folder = saved(tmp_path / "c")
    unfinished = folder / "40.orbax-checkpoint-tmp"
    unfinished.mkdir()
    assert load(folder)[0][1] == {"seed": 3}
    assert unfinished.exists()
    Checkpoints(folder).close()
    assert not unfinished.exists()
    np.testing.assert_array_equal(sorted(int(p.name) for p in folder.iterdir()), [10, 20, 30])


@pytest.mark.parametrize("old", [2, 6])  # a window's steps, and those of a horizon that is longer than its stride
def test_old_formats_get_the_cells_weights_for_the_steps_remembered(tmp_path, monkeypatch, old):
    weight = jnp.arange(6.0).reshape(2, 3)
    model, track = {"cell": {"weight": weight}}, {"count": jnp.asarray(4)}
    monkeypatch.setattr(checkpoint, "FORMAT", old)
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(1, {"state": {"model": model, "track": track}}, {})
    checkpoints.close()
    monkeypatch.undo()
    like = {"state": {"model": model, "track": track | {"weights": {"weight": jnp.zeros((5, 2, 3))}}}}
    found, _ = Checkpoints(tmp_path / "c", read_only=True).load(like, complain=pytest.fail)
    np.testing.assert_array_equal(found["state"]["track"]["weights"]["weight"], jnp.stack([weight] * 5))
    assert int(found["state"]["track"]["count"]) == 4


def test_format_1_with_its_other_checksums_is_still_read(tmp_path):
    folder = saved(tmp_path / "c", seeds=(1,))
    path = folder / "10" / "notes" / "metadata"
    notes = json.loads(path.read_text())
    del notes["checksum"]
    arrays = {name: np.asarray(array) for name, array in checkpoint.by_name(tree(1)).items()}
    notes |= {"format": 1, "checksums": {name: zlib.crc32(array.tobytes()) for name, array in arrays.items()}}
    path.write_text(json.dumps(notes))
    found, complaints = load(folder)
    assert eqx.tree_equal(found[0], tree(1))
    assert complaints == []
    flip(folder / "10")
    with pytest.raises(InputError, match="none of the 1 checkpoints"):
        load(folder)


def test_what_waited_beside_the_track_in_format_4_is_found_in_it(tmp_path, monkeypatch):
    """Before format 5 the state had `phase`, `waiting` and `waiting_output`, also in the copy to go back to, which needs none."""
    readout, track = {"bias": jnp.arange(3.0)}, {"count": jnp.asarray(4)}
    beside = {"phase": jnp.asarray(-2), "waiting": readout, "waiting_output": None}
    then = {"state": {"track": track} | beside, "back": ({"time": jnp.asarray(7)} | beside, jnp.asarray(1))}
    monkeypatch.setattr(checkpoint, "FORMAT", 4)
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(1, then, {})
    checkpoints.close()
    monkeypatch.undo()
    zeros = jax.tree.map(jnp.zeros_like, readout)
    waiting = {"phase": jnp.asarray(0), "readout": zeros, "output": None}
    with_stride = {"state": {"track": track | {"waiting": waiting}}, "back": ({"time": jnp.asarray(0)}, jnp.asarray(0))}
    without = {"state": {"track": track}, "back": ({"time": jnp.asarray(0)}, jnp.asarray(0))}
    for like in (with_stride, without):
        if like is without:  # a window never had anything waiting but a phase of 0
            del then["state"]["waiting"], then["back"][0]["waiting"]
            monkeypatch.setattr(checkpoint, "FORMAT", 4)
            checkpoints = Checkpoints(tmp_path / "d")
            checkpoints.save(1, then, {})
            checkpoints.close()
            monkeypatch.undo()
        folder = tmp_path / ("d" if like is without else "c")
        found, _ = Checkpoints(folder, read_only=True).load(like, complain=pytest.fail)
        assert int(found["back"][0]["time"]) == 7
        if like is with_stride:
            assert int(found["state"]["track"]["waiting"]["phase"]) == -2
            np.testing.assert_array_equal(found["state"]["track"]["waiting"]["readout"]["bias"], jnp.arange(3.0))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_slots_of_format_5_are_taken_in_one_round(tmp_path, monkeypatch, count):
    """Before format 6 a horizon of 3 had 5 slots, the oldest step first."""
    steps = jnp.arange(5.0)[:, None]
    then = {"state": {"track": {"memories": {"alive": steps}, "deltas": steps + 10, "count": jnp.asarray(count)}}}
    monkeypatch.setattr(checkpoint, "FORMAT", 5)
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(1, then, {})
    checkpoints.close()
    monkeypatch.undo()
    empty = jnp.zeros((3, 1))
    like = {"state": {"track": {"memories": {"alive": empty}, "deltas": empty, "count": jnp.asarray(0)}}}
    found, _ = Checkpoints(tmp_path / "c", read_only=True).load(like, complain=pytest.fail)
    track, remembered = found["state"]["track"], min(count, 3)
    slots = [(int(track["count"]) - 1 - i) % 3 for i in range(remembered)]
    newest_first = [count - 1 - i for i in range(remembered)]
    assert [float(track["memories"]["alive"][slot, 0]) for slot in slots] == newest_first
    assert [float(track["deltas"][slot, 0]) - 10 for slot in slots] == newest_first
