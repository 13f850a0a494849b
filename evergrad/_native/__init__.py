"""Kernels for the CPU in C++, for the few things that XLA does there many times slower than the processor could.

They are built once, the first time they are needed, by whatever C++ compiler the machine has, and kept in the user's cache.
Each stands in for a pure JAX form, which is what runs on a machine without a compiler, on other devices, and with
EVERGRAD_NATIVE=0. XLA calls them through its foreign-function interface.
"""

import functools
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxlib.version

from evergrad._core.placing import compiler_cuts
from evergrad._native.library import cache, load

__all__ = ["available", "cache", "call", "either", "worth", "worth_a_call"]

SOURCE = Path(__file__).with_name("kernels.cc")  # and the headers beside it
KERNELS = ("adam", "back", "carry", "combine", "fold", "mix", "multiply", "outer", "product", "squares", "triples")
DTYPES = ("float32", "float64")
NARROW = ("fold_bfloat16", "read_bfloat16")  # of what is kept with fewer digits
RANDOM = ("bits_uint32", "fold_uint32")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared", "-w")
PATIENCE = 300.0  # seconds for the compiler
PREFIX = "evergrad_"  # of the names by which programs call them
SMALL = 1 << 15  # numbers a stream below which it does not matter
OPERATIONS = 8  # of XLA, that one call stands for


def either(kernel: Callable[..., Any], pure: Callable[..., Any], *args: Any) -> Any:
    """kernel(*args) on a CPU and pure(*args) elsewhere; to be asked where kernels are `available`."""
    return jax.lax.platform_dependent(*args, cpu=kernel, default=pure)


def call(
    name: str,
    results: Any,
    *args: Any,
    in_place: bool | dict[int, int] = False,
    mapped: bool = False,
    **attributes: Any,
) -> Any:
    """What a kernel gives; `in_place` if its first result is written over its first argument, or which arguments are written
    over by which results; `mapped` if the kernel takes any axes in front as streams. Under a `vmap` one that does not is
    called again and again.
    """
    aliases = in_place if isinstance(in_place, dict) else {0: 0} if in_place else None
    vmap_method = "broadcast_all" if mapped else "sequential"
    target = f"{PREFIX}{name}_{args[0].dtype}"
    return jax.ffi.ffi_call(target, results, input_output_aliases=aliases, vmap_method=vmap_method)(*args, **attributes)


def worth(one: jax.Array | jax.ShapeDtypeStruct) -> bool:
    """Whether kernels can be had, and save more than they cost, for arrays that for one stream are like this.

    Where the compiler cuts arrays there are none: it would put them together again for a kernel, which it cannot look into.
    """
    return math.prod(one.shape) >= SMALL and one.dtype.name in DTYPES and not compiler_cuts() and available()


def worth_a_call(tree: Any) -> bool:
    """Whether kernels can be had, and save more than they cost, for what is done once a step with each of these numbers, for
    which XLA takes many small operations: then networks of a few thousand are large enough. All must be of one kind.
    """
    leaves = jax.tree.leaves(tree)
    kinds = {a.dtype for a in leaves}
    return len(kinds) == 1 and worth(jax.ShapeDtypeStruct((OPERATIONS, sum(a.size for a in leaves)), kinds.pop()))


@functools.cache
def available() -> bool:
    """Whether the kernels can be called; builds and loads them the first time."""
    wanted = os.name == "posix" and os.environ.get("EVERGRAD_NATIVE", "1") != "0"
    if not wanted or not (compiler := _compiler()):
        return False
    try:
        library = load(_name(compiler), functools.partial(_build, compiler))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        reason = said.strip().splitlines()[0] if said.strip() else type(error).__name__
        warnings.warn(
            f"evergrad: the native kernels could not be built by {' '.join(compiler)} and loaded ({reason}); slower forms "
            "are used. EVERGRAD_NATIVE=0 stops this message, CXX names another compiler.",
            stacklevel=2,
        )
        return False
    for name in (*(f"{kernel}_{dtype}" for kernel in KERNELS for dtype in DTYPES), *NARROW, *RANDOM):
        jax.ffi.register_ffi_target(f"{PREFIX}{name}", jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True


def _compiler() -> list[str]:
    """The words of the command that compiles; none if there is none."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        warnings.warn(
            f"evergrad: CXX={os.environ['CXX']} is no command ({error}); slower forms are used.", stacklevel=3
        )
        return []
    if named and shutil.which(named[0]) is None:
        warnings.warn(f"evergrad: there is no {named[0]}, which CXX names; slower forms are used.", stacklevel=3)
        return []
    return named or [name for name in ("c++", "g++", "clang++") if shutil.which(name)][:1]


def _name(compiler: list[str]) -> str:
    """Of the library for this source, compiler, jaxlib and processor."""
    parts = (
        *(path.read_text("utf-8") for path in sorted(SOURCE.parent.glob("*.h"))),
        SOURCE.read_text("utf-8"),
        shutil.which(compiler[0]),
        compiler,
        *FLAGS,
        jaxlib.version.__version__,
        platform.machine(),
        _processor_flags(),
    )
    return f"kernels-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.so"


def _build(compiler: list[str], path: Path) -> None:
    print("evergrad: building native kernels for this processor, once (about ten seconds)", file=sys.stderr)
    command = [*compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)


def _processor_flags() -> str:
    """What the processor can do: a cache may be shared by different ones."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
