"""A hostile configuration: strict dtypes, no silent broadcasting, shapes checked at run time."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

with install_import_hook("evergrad", "beartype.beartype"):
    import evergrad._public  # noqa: F401

# these run long enough, or look at what was compiled; compiling is most of the time that all others take
OPTIMISED = {"test_copy.py", "test_noise.py", "test_costs.py", "test_bench.py", "test_plan.py", "test_streams_bench.py"}

CACHE = "EVERGRAD_TEST_CACHE"  # a folder where the processes that tests start find each other's compiled programs


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[CACHE] = tempfile.mkdtemp(prefix="evergrad-compiled-")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


@pytest.fixture
def monkeypatch(monkeypatch):
    """As usual, but that what was compiled is forgotten when something of the inside is replaced, and when it is put back: equal
    learners share programs, and one that was compiled with the replacement must not serve another test, or the other way round."""
    plain, replaced = monkeypatch.setattr, []

    def setattr_(target, name, *rest, **how):
        plain(target, name, *rest, **how)
        if _INSIDE.match(target if isinstance(target, str) else _home(target)):
            replaced.append(target)
            jax.clear_caches()

    monkeypatch.setattr = setattr_
    yield monkeypatch
    if replaced:
        monkeypatch.undo()
        jax.clear_caches()


_INSIDE = re.compile(r"evergrad\._(core|estimators|pasts|cells|native)\b")


def _home(target):
    return getattr(target, "__module__", None) or getattr(target, "__name__", "")


def pytest_runtest_setup(item):
    jax.config.update("jax_enable_x64", True)  # a run inside a test sets it as the run wants it
    jax.config.update("jax_disable_most_optimizations", item.path.name not in OPTIMISED)


def pytest_runtest_teardown(item):
    """Lets compiled programs go before their pages are more than Linux maps for one process (65,530)."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
