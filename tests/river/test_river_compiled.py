"""What was compiled is kept for the next start, where nobody else can write; and after warming up nothing is waited for."""

import os
import stat
import subprocess
import sys
import time

import pytest

from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor, compiled

ONE = """
import jax
{first}
from evergrad.river import OnlineRNNRegressor
OnlineRNNRegressor(units=2, seed=0).predict_one({{"v": 1.0}})
print(jax.config.jax_compilation_cache_dir)
"""


def start(tmp_path, first="", **environment):
    unset = ("EVERGRAD_COMPILED", "JAX_COMPILATION_CACHE_DIR")
    plain = {name: value for name, value in os.environ.items() if name not in unset}
    words = [sys.executable, "-c", ONE.format(first=first)]
    env = {**plain, "XDG_CACHE_HOME": str(tmp_path), **environment}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True)


def test_programs_are_kept_in_a_folder_of_the_users_own(tmp_path):
    start(tmp_path)
    folder = tmp_path / "evergrad" / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = {
        path.name for path in folder.glob("jit__look-*-cache")
    }  # small ones take longer than worth keeping now and then
    assert kept
    start(tmp_path)
    assert {path.name for path in folder.glob("jit__look-*-cache")} == kept, "found again"


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    folder = tmp_path / "evergrad" / "compiled"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    folder.chmod(0o777)
    found = start(tmp_path)
    assert "others can write to" in found.stderr
    assert found.stdout.strip() == "None"
    assert not list(folder.iterdir())


def test_it_can_be_switched_off_and_a_cache_of_the_users_stays(tmp_path):
    assert start(tmp_path, EVERGRAD_COMPILED="0").stdout.strip() == "None"
    own = f"jax.config.update('jax_compilation_cache_dir', '{tmp_path / 'own'}')"
    assert start(tmp_path, own).stdout.strip() == str(tmp_path / "own")
    assert not (tmp_path / "evergrad" / "compiled").exists()


def test_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    for age, name in enumerate(("new", "older", "oldest")):
        (tmp_path / name).write_bytes(b"1234")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    monkeypatch.setattr(compiled, "LARGEST", 8)
    compiled._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "older"}


def test_an_option_that_this_xla_does_not_know_is_left_out(monkeypatch):
    assert compiled._known() == compiled.ONE_BY_ONE
    monkeypatch.setattr(compiled, "ONE_BY_ONE", {"xla_no_such_option": True})
    assert compiled._known.__wrapped__() == {}


@pytest.mark.parametrize("kind", [OnlineRNNRegressor, OnlineRNNClassifier])
def test_after_warming_up_no_sample_takes_half_a_second(kind):
    """The first, the 31st, new features and classes, another learning rate: processor time, since machines are shared."""
    took = []
    for rate in (None, 1e-4):
        model = kind(seed=0, learning_rate=rate)
        model.warmup(features=12, classes=4 if kind is OnlineRNNClassifier else 0)
        for t in range(40):
            x = {f"f{i}": float(t % (i + 2)) for i in range(1 + t // 4)}
            began = time.process_time()
            model.predict_one(x)
            model.learn_one(x, "abcd"[t * t % 4] if kind is OnlineRNNClassifier else float(t % 7))
            took.append(time.process_time() - began)
    assert max(took) < 0.5
