"""A hostile configuration: strict dtypes, no silent broadcasting, shapes checked at run time."""

import os
import shutil
import tempfile
from pathlib import Path

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

with install_import_hook("evergrad", "beartype.beartype"):
    import evergrad._public  # noqa: F401

# these run long enough, or look at what was compiled; compiling is most of the time that all others take
OPTIMISED = {"test_copy.py", "test_noise.py", "test_costs.py", "test_bench.py", "test_plan.py", "test_streams_bench.py"}

os.environ["EVERGRAD_COMPILED"] = "0"  # nothing of a test is left in the user's cache
CACHE = "EVERGRAD_TEST_CACHE"  # a folder where the processes that tests start find each other's compiled programs


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[CACHE] = tempfile.mkdtemp(prefix="evergrad-compiled-")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


def pytest_runtest_setup(item):
    jax.config.update("jax_enable_x64", True)  # a run inside a test sets it as the run wants it
    jax.config.update("jax_disable_most_optimizations", item.path.name not in OPTIMISED)


def pytest_runtest_teardown(item):
    """Lets compiled programs go before their pages are more than Linux maps for one process (65,530)."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
