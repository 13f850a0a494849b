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
    import evergrad.public  # noqa: F401

# these run long enough, or look at what was compiled; compiling is most of the time that all others take
OPTIMISED = {"test_copy.py", "test_noise.py", "test_costs.py", "test_bench.py", "test_plan.py", "test_streams_bench.py"}

# of the crossed tests, what `make test` runs; `make test-slow` runs the rest
FIRST_CHOICE = {
    "test_unbiased.py": r"\[(uoro|kf|ok|ok-signs|ktp)-rhn-|\[ok-lstm-3|enumeration.*\[(rhn|lstm)\]|\[(0|3|uoro|kf|ok|ktp)\]",
    "test_contract.py": r"\[(rtrl|tbptt|uoro|kf|ok|ktp)-rhn\]|\[rtrl-reset-before-gru\]|\[ok-window-lstm\]|jit",
    "test_river_checks.py": r"^(?!.*[12]\])",  # of river's data sets for its checks, the first
    "test_exact.py": r"^(?!.*\[(1|25)-softmax-reset).*((rhn|reset-before-gru)\]|[05]-softmax-lstm\]|-\d+\]|missing|wherever)",
    "test_ordinary_events.py": r"^(?!.*(kf-avg|kf-approx|ok-signs|b-ok|truncate|once\[.*-0\]))",
    "test_native.py": r"^(?!.*(float32|rnn-2))",
    "test_mixing.py": r"^(?!.*whole_runs.*\[(1\.0|1000000\.0|1e-08|.*signs))",
    "test_adapters.py": r"equinox_lstm|flax_gru",
    "test_cli_export.py": r"(?!)",  # one of its steps is among the examples of tests/test_cli_commands.py
    "test_plan.py": r"OK.*window=16",
}

CACHE = "EVERGRAD_TEST_CACHE"  # a folder where the processes that tests start find each other's compiled programs


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[CACHE] = tempfile.mkdtemp(prefix="evergrad-compiled-")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        pattern = FIRST_CHOICE.get(item.path.name)
        if pattern and "[" in item.name and not re.search(pattern, item.name):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item):
    jax.config.update("jax_disable_most_optimizations", item.path.name not in OPTIMISED)


def pytest_runtest_teardown(item):
    """Lets compiled programs go before their pages are more than Linux maps for one process (65,530)."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
