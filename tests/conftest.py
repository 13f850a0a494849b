"""A hostile configuration: strict dtypes, no silent broadcasting, shapes checked at run time.

Most of the time that small tests take is XLA's, so it compiles with little thought here (`make test-slow` compiles as
users' programs are), and workers and the processes that tests start find each other's programs in one folder.
"""

import gc
import itertools
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
jax.config.update("jax_num_cpu_devices", 4)  # for tests of several devices; all else is on the first
jax.config.update("jax_disable_most_optimizations", True)  # also for what is made while tests are collected

# what compiles fastest: a third of the time of XLA's present defaults; read when JAX starts, so before any array
QUICKLY = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", QUICKLY)

with install_import_hook("evergrad", "beartype.beartype"):
    import evergrad._public  # noqa: F401

os.environ["EVERGRAD_COMPILED"] = "0"  # nothing of a test is left in the user's cache
_TESTS = itertools.count(1)
CACHE = "EVERGRAD_TEST_CACHE"  # a folder for compiled programs; one that is given is kept, and the next run is faster


def pytest_configure(config):
    if not hasattr(config, "workerinput") and CACHE not in os.environ:
        os.environ[CACHE] = config.compiled = tempfile.mkdtemp(prefix="evergrad-compiled-")
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_unconfigure(config):
    if hasattr(config, "compiled"):
        shutil.rmtree(config.compiled, ignore_errors=True)


def pytest_collection_finish(session):
    """Tracing makes many objects and few cycles: looking for these among all that was imported takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


# What has been replaced inside, as part of what JAX knows programs by: equal learners share programs, and one that was compiled
# with a replacement must not serve without it, or the other way round; with the same replacement it may.
_REPLACED = jax.make_user_context(())
_ALIVE = []  # so that no two replacements ever have one id


@pytest.fixture
def monkeypatch(monkeypatch):
    """As usual, but that programs are told apart by what was replaced in the package."""
    plain = monkeypatch.setattr

    def setattr_(target, name, *rest, **how):
        plain(target, name, *rest, **how)
        if _INSIDE.match(target if isinstance(target, str) else _home(target)):
            _ALIVE.append((target, name, *rest))
            _REPLACED.set_global((*_REPLACED.get_global(), tuple(map(id, _ALIVE[-1]))))

    monkeypatch.setattr = setattr_
    yield monkeypatch
    monkeypatch.undo()
    _REPLACED.set_global(())


# not what is asked for memory, for a plan, or for how many steps the next call takes: no program has that in it
_INSIDE = re.compile(r"evergrad\._(core(?!\.(room|planner|fitting\.Pace)\b)|estimators|pasts|cells|native)\b")


def _home(target):
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    return f"{module}.{name}" if module else name


def pytest_runtest_setup(item):
    """Compiling is most of the time that tests take, but for those that run long or look at what was compiled."""
    optimised = item.get_closest_marker("optimised") is not None
    jax.config.update("jax_enable_x64", True)  # a run inside a test sets it as the run wants it
    jax.config.update("jax_disable_most_optimizations", not optimised)


def pytest_runtest_teardown(item):
    """Lets compiled programs go before their pages are more than Linux maps for one process (65,530). To count them takes 25 ms."""
    maps = Path("/proc/self/maps")
    if next(_TESTS) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
