"""What was compiled is kept for the next start, where nobody else can write; and after warming up nothing is waited for."""

import os
import stat
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor, compiled, machine

ONE = """
from evergrad.river import OnlineRNNRegressor
OnlineRNNRegressor(units=2, seed=0).predict_one({"v": 1.0})
from jax._src.xla_bridge import _CPU_ENABLE_ASYNC_DISPATCH
print("by another thread" if _CPU_ENABLE_ASYNC_DISPATCH.value else "at once")
"""


def start(tmp_path, **said):
    unset = ("EVERGRAD_COMPILED", "JAX_COMPILATION_CACHE_DIR", "JAX_CPU_ENABLE_ASYNC_DISPATCH")
    plain = {name: value for name, value in os.environ.items() if name not in unset}
    env = plain | {"XDG_CACHE_HOME": str(tmp_path)} | said
    return subprocess.run([sys.executable, "-c", ONE], env=env, capture_output=True, text=True, check=True)


def test_programs_are_kept_in_a_folder_of_the_users_own(tmp_path):
    assert start(tmp_path).stdout.strip() == "at once"
    folder = tmp_path / "evergrad" / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = {
        path.name for path in folder.glob("jit__look-*-cache")
    }  # small ones take longer than worth keeping now and then
    assert kept
    assert start(tmp_path, JAX_CPU_ENABLE_ASYNC_DISPATCH="1").stdout.strip() == "by another thread", "as the user said"
    assert {path.name for path in folder.glob("jit__look-*-cache")} == kept, "found again"


def test_how_programs_are_started_is_not_changed_once_jax_has_begun(monkeypatch):
    monkeypatch.delenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", raising=False)
    changed, _ = [], jax.devices()  # it has
    monkeypatch.setattr(jax.config, "update", lambda *how: changed.append(how))
    compiled.at_once()
    assert not changed


@pytest.fixture
def without_cache(tmp_path, monkeypatch):
    """As a process that has compiled nothing yet and whose user has said nothing; the tests' own cache comes back after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("EVERGRAD_COMPILED")
    tests_own, least = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "evergrad" / "compiled"
    jax.config.update("jax_compilation_cache_dir", tests_own)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    compilation_cache.reset_cache()


def kept_by_now():
    """Whether a process that asks now keeps its programs, and where."""
    return compiled.keep.__wrapped__(), jax.config.jax_compilation_cache_dir


def test_a_folder_that_others_can_write_to_is_not_used(without_cache):
    assert kept_by_now() == (True, str(without_cache))
    jax.config.update("jax_compilation_cache_dir", None)
    without_cache.chmod(0o777)
    with pytest.warns(UserWarning, match="others can write to"):
        assert kept_by_now() == (False, None)
    assert not list(without_cache.iterdir())


def test_it_can_be_switched_off_and_a_cache_of_the_users_stays(without_cache, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("EVERGRAD_COMPILED", "0")
        assert kept_by_now() == (False, None)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert kept_by_now() == (False, str(tmp_path / "own"))
    assert not without_cache.exists()


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


@pytest.mark.parametrize("kind", [OnlineRNNRegressor, OnlineRNNClassifier])
def test_a_samples_programs_are_one_part_each_and_say_what_many_parts_do(kind, monkeypatch):
    def said(model):
        rng = np.random.default_rng(0)
        model.warmup(features=2, classes=2)
        for x, y in zip(rng.normal(size=(40, 2)).tolist(), rng.integers(2, size=40).tolist(), strict=True):
            yield (
                model.predict_one({"a": x[0]})
                if kind is OnlineRNNRegressor
                else [*model.predict_proba_one({"a": x[0]}).values()]
            )
            model.learn_one({"a": x[0]}, y)

    def parts(program, *given):
        return program.lower(*given).compile().as_text().partition("\nENTRY")[2].count("fusion(")

    one, many = kind(units=5, seed=0), kind(units=5, seed=0)
    found = [*said(one)]
    session = one._session
    assert parts(session.machine.look, session.leaves, np.zeros((1, session.settings.slots))) <= 1
    machine._machine.cache_clear()
    monkeypatch.setattr(compiled, "as_one", lambda function, **options: function)
    for a, b in zip(found, said(many), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert parts(many._session.machine.look, session.leaves, np.zeros((1, session.settings.slots))) > 10
    machine._machine.cache_clear()
