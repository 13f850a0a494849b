"""The built kernels on disk: in a folder that nobody else can write to, and loaded from the very file that was checked."""

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_MARK = b"evergrad-sha256:"  # what follows the library in its file, before the checksum; a loader does not look there
_BUILDING = ".building-"
_LEFT = 3600.0  # seconds after which a build must have been killed
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache() -> Path:
    """Where built kernels are kept. A relative XDG_CACHE_HOME is ignored, as its specification says."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "evergrad"


def load(name: str, build: Callable[[Path], None]) -> ctypes.CDLL:
    """The library of that name in the cache; `build(path)` makes it where there is none, or none that is whole.

    OSError if somebody else could have written it.
    """
    folder = private(cache())
    file = _opened(folder / name)
    if file is None:
        _keep(folder, name, build)
        file = _opened(folder / name)
    if file is None:
        raise OSError(f"{folder / name} was damaged as soon as it was written")
    return _loaded(file)


def private(folder: Path) -> Path:
    """The folder, made if need be, with no link left in its path; refused if others could put files there."""
    folder = Path(os.path.realpath(folder))
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
        _check_folder(each, own=each == folder)
    return folder


def _check_folder(folder: Path, *, own: bool) -> None:
    """A folder of ours must be ours alone. In one above it others must not be able to rename what is in it: it belongs to us or
    to root, and whoever else may write to it (as all may to /tmp) is kept by its sticky bit from touching our files."""
    found = folder.lstat()
    trusted = {os.getuid()} if own else {os.getuid(), 0}
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(f"{folder} is not a folder")
    if found.st_uid not in trusted:
        raise OSError(f"{folder} belongs to somebody else: set XDG_CACHE_HOME to a folder of your own")
    if found.st_mode & _OTHERS and (own or not found.st_mode & stat.S_ISVTX):
        raise OSError(
            f"others can write to {folder}: chmod go-w {folder}, or set XDG_CACHE_HOME to a folder of your own"
        )


def _opened(path: Path) -> int | None:
    """The open file of a library that is whole, None if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        whole = _is_ours_and_whole(file, path)
    except BaseException:
        os.close(file)
        raise
    if not whole:
        os.close(file)
    return file if whole else None


def _is_ours_and_whole(file: int, path: Path) -> bool:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS:
        raise OSError(f"{path} could have been written by somebody else: remove it")
    library, mark, digest = _content(file).rpartition(_MARK)
    return bool(mark) and digest == hashlib.sha256(library).digest()


def _content(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        return reader.read()


def _keep(folder: Path, name: str, build: Callable[[Path], None]) -> None:
    """Builds in a folder of a name that nobody else has, in any container; the library is on the disk before it has its name."""
    _remove_left(folder)
    with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=folder) as apart:
        built, beside = Path(apart, "built"), Path(apart, name)
        build(built)
        library = built.read_bytes()
        with beside.open("wb") as file:
            file.write(library + _MARK + hashlib.sha256(library).digest())
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o700)
        os.replace(beside, folder / name)


def _remove_left(folder: Path) -> None:
    """What builds that were killed have left behind."""
    for each in folder.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):
            if each.lstat().st_mtime < time.time() - _LEFT:
                shutil.rmtree(each)


def _loaded(file: int) -> ctypes.CDLL:
    """From an open file that was checked. It stays open: the loader knows libraries by the paths they had, and no other
    file may get this one's."""
    if sys.platform == "linux" and Path(f"/proc/self/fd/{file}").exists():
        return ctypes.CDLL(f"/proc/self/fd/{file}")
    with tempfile.TemporaryDirectory(prefix="evergrad-") as apart, contextlib.closing(os.fdopen(file, "rb")):
        copy = Path(apart, "kernels.so")
        copy.write_bytes(_content(file).rpartition(_MARK)[0])
        return ctypes.CDLL(str(copy))
