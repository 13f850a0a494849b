"""How the programs are compiled: for one thread, and kept on disk, so that the next start finds them.

They are kept by JAX's own cache, in a folder that nobody else can write to. What JAX reads back from there it executes, so a folder that others can write to, or that belongs to somebody else, is not used.
Whoever has set JAX's cache (`JAX_COMPILATION_CACHE_DIR`) keeps it as it is; `EVERGRAD_COMPILED=0` does without.
"""

import contextlib
import functools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.xla_metadata import set_xla_metadata

from evergrad._native.library import cache, private
from evergrad.river import forks

WORTH = 0.1  # seconds of compiling; what takes less is not kept
LARGEST = 2**29  # bytes at a start; beyond it what was used longest ago goes
# XLA else has what does not depend on each other done by several threads, which for parts of a microsecond costs more than it saves
ONE_BY_ONE: dict[str, bool | str] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def jit(function: Callable, **options: Any) -> Any:
    """`jax.jit` for a program of many small parts, each of which is done after the other."""
    return jax.jit(function, compiler_options=_known(), **options)


def as_one(function: Callable, **options: Any) -> Callable:
    """As one part of the program it is in, rather than as hundreds that XLA's runtime starts one by one.

    XLA does so with small loops of its own; where it does not know these words it makes parts as ever. Not for products of matrices,
    sorts, scatters and kernels, which ask the runtime for more than such a part is given.
    """
    inner = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*args: Any, **static: Any) -> Any:
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            return inner(*args, **static)

    return call


@functools.cache
def _known() -> dict[str, bool | str]:
    """Nothing where this XLA does not know the option."""
    try:
        jax.jit(lambda: 0, compiler_options=ONE_BY_ONE)()
    except jax.errors.JaxRuntimeError:
        return {}
    return ONE_BY_ONE


def at_once() -> None:
    """Whoever calls a program computes it, from JAX's start on: to wake another thread for it takes as long as most of a sample.

    For the whole process, so only if JAX has not begun, and nobody has said how it should be (`JAX_CPU_ENABLE_ASYNC_DISPATCH`).
    """
    if not forks.begun() and "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def folder() -> Path:
    return cache() / "compiled"


@functools.cache
def keep() -> bool:
    """Whether programs that are compiled from now on are kept. Asked once a process."""
    wanted = os.name == "posix" and os.environ.get("EVERGRAD_COMPILED", "1") != "0"
    if not wanted or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return False
    try:
        private(cache())
        place = private(folder())
    except OSError as error:
        warnings.warn(f"what is compiled is not kept, since {error}. EVERGRAD_COMPILED=0 says nothing.", stacklevel=2)
        return False
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH)
    _prune(place)
    compilation_cache.reset_cache()  # it may have been looked for before, in vain
    return True


def _prune(place: Path) -> None:
    """Other processes may be at it too: what is gone is gone."""
    with contextlib.suppress(OSError):
        found = sorted(((path.stat(), path) for path in place.iterdir()), key=_last_used, reverse=True)
        total = 0
        for about, path in found:
            total += about.st_size
            if total > LARGEST:
                path.unlink()


def _last_used(entry: tuple[os.stat_result, Path]) -> float:
    return max(entry[0].st_atime, entry[0].st_mtime)
