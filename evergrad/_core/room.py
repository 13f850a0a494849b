"""Whether there is room for what is about to be made, asked while it is shapes and nothing has been allocated."""

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from evergrad._core.checks import InputError

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def require(needed: int, what: str, remedy: str, *, there: int | None = None) -> None:
    """Refuses what needs more bytes than there can be; where nobody knows what there is, nothing."""
    there = there_is() if there is None else there
    if there is not None and needed > there:
        raise InputError(f"{what} needs {shown(needed)} of memory, and there are {shown(there)}: {remedy}.")


def bytes_of(make: Callable[[], Any]) -> int:
    """Of all arrays that a function gives, which is not run."""
    shapes = jax.tree.leaves(eqx.filter_eval_shape(make))
    return sum(a.size * a.dtype.itemsize for a in shapes if isinstance(a, jax.ShapeDtypeStruct))


def shown(count: int) -> str:
    """Bytes for people, and exactly: 1.5 GB (1,500,000,000 bytes)."""
    power = min(max(0, (len(str(count)) - 1) // 3), len(_UNITS) - 1)
    return f"{count / 1000**power:,.3g} {_UNITS[power]} ({count:,} bytes)" if power else f"{count} bytes"


def there_is() -> int | None:
    """Bytes that the arrays of one device can take at most; None where that is not known."""
    device = jax.local_devices()[0]
    return host_memory() if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit")


def host_memory() -> int:
    """What this process can have: the machine's, or less if a control group or a limit of the shell says so."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(physical, *_control_groups(), *([] if limit == resource.RLIM_INFINITY else [limit]))


def _control_groups(mine: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """The limits of the groups that this process is in, of both versions, and of all groups around them."""
    for line in mine.read_text().splitlines() if mine.exists() else []:
        _, controllers, path = line.split(":", 2)
        root, name = (mounted / "memory", "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        if controllers and "memory" not in controllers.split(","):
            continue
        here = root / path.lstrip("/")
        for folder in (here, *(each for each in here.parents if each.is_relative_to(root))):
            yield from _limit(folder / name)


def _limit(file: Path) -> Iterator[int]:
    try:
        content = file.read_text().strip()
    except OSError:
        return
    if content.isdecimal():
        yield int(content)


def ran_out(error: BaseException) -> bool:
    """Whether this is how Python or XLA say that there was no memory left."""
    said = isinstance(error, jax.errors.JaxRuntimeError) and any(w in str(error) for w in _RAN_OUT)
    return said or isinstance(error, MemoryError)


_RAN_OUT = ("RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc")
