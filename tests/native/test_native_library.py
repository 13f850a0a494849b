"""Where kernels are kept: nothing that others could have written is loaded, and nothing that is not whole."""

import ctypes
import os
import subprocess
import time

import pytest

from evergrad import _native as native
from evergrad._native import library

pytestmark = pytest.mark.skipif(not native._compiler(), reason="no C++ compiler here")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Two that give different answers."""
    folder = tmp_path_factory.mktemp("libraries")
    for number in (1, 2):
        source = folder / f"{number}.cc"
        source.write_text(f'extern "C" int answer() {{ return {number}; }}\n')
        subprocess.run([*native._compiler(), "-shared", "-fPIC", source, "-o", folder / f"{number}.so"], check=True)
    return {number: (folder / f"{number}.so").read_bytes() for number in (1, 2)}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of our own, below a folder that is."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Builder:
    """A compiler that knows one program."""

    def __init__(self, content):
        self.content, self.times = content, 0

    def __call__(self, path):
        self.times += 1
        path.write_bytes(self.content)


def answer(build, name="tiny.so"):
    return library.load(name, build).answer()


def test_it_is_built_once_and_leaves_nothing_else(home, libraries):
    build = Builder(libraries[1])
    before = os.umask(0o002)
    try:
        assert [answer(build), answer(build)] == [1, 1]
    finally:
        os.umask(before)
    assert build.times == 1
    assert [each.name for each in library.cache().iterdir()] == ["tiny.so"]
    assert [oct(each.stat().st_mode & 0o777) for each in (home, home / "evergrad")] == ["0o700", "0o700"]


@pytest.mark.parametrize("what", ["evergrad", "."])
def test_a_folder_that_others_can_write_to_is_refused(what, home, libraries):
    """The folder itself, and the one above it, whose owner could put another one in its place."""
    assert answer(Builder(libraries[1])) == 1
    (home / what).chmod(0o770)
    with pytest.raises(OSError, match=r"others can write to .*chmod go-w"):
        answer(Builder(libraries[1]))


def test_a_sticky_folder_above_is_fine_and_a_sticky_cache_is_not(home, libraries):
    assert answer(Builder(libraries[1])) == 1
    home.chmod(0o1777)
    assert answer(Builder(libraries[1])) == 1
    (home / "evergrad").chmod(0o1777)
    with pytest.raises(OSError, match="others can write to"):
        answer(Builder(libraries[1]))


def test_a_folder_of_somebody_else_is_refused(home, libraries, monkeypatch):
    assert answer(Builder(libraries[1])) == 1
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(OSError, match="belongs to somebody else"):
        answer(Builder(libraries[1]))


def test_a_link_is_not_a_library(home, libraries, tmp_path):
    answer(Builder(libraries[1]))
    kept = library.cache() / "tiny.so"
    kept.rename(tmp_path / "elsewhere.so")
    kept.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(OSError, match="symbolic links"):
        answer(Builder(libraries[1]))


def test_a_library_that_others_can_write_is_refused(home, libraries):
    answer(Builder(libraries[1]))
    (library.cache() / "tiny.so").chmod(0o770)
    with pytest.raises(OSError, match="somebody else"):
        answer(Builder(libraries[1]))


@pytest.mark.parametrize("length", [0, 1, 64, 4096, -1])
def test_what_is_cut_off_is_built_again(length, home, libraries):
    answer(Builder(libraries[1]))
    kept = library.cache() / "tiny.so"
    kept.write_bytes(kept.read_bytes()[:length])
    again = Builder(libraries[1])
    assert (answer(again), again.times) == (1, 1)


def test_what_has_a_flipped_bit_is_built_again(home, libraries):
    answer(Builder(libraries[1]))
    kept = library.cache() / "tiny.so"
    content = bytearray(kept.read_bytes())
    for place in range(0, len(content), len(content) // 8):
        content[place] ^= 4
        kept.write_bytes(content)
        again = Builder(libraries[1])
        assert (answer(again), again.times) == (1, 1)


@pytest.mark.parametrize("proc", [True, False])
def test_what_was_checked_is_what_is_loaded(proc, home, libraries, monkeypatch):
    """Whatever is put in its place meanwhile, with /proc and without."""
    answer(Builder(libraries[1]), "other.so")
    checked = library._is_ours_and_whole

    def then_swapped(file, path):
        found = checked(file, path)
        path.unlink()
        path.write_bytes(libraries[2])
        return found

    monkeypatch.setattr(library, "_is_ours_and_whole", then_swapped)
    monkeypatch.setattr(library.sys, "platform", "linux" if proc else "darwin")
    assert answer(Builder(libraries[1]), "other.so") == 1


def test_two_builds_at_once_by_processes_of_one_number_do_not_meet(home, libraries):
    """As in two containers that share a cache."""
    inner = Builder(libraries[1])

    def outer(path):
        path.write_bytes(libraries[1][:100])
        assert answer(inner) == 1
        path.write_bytes(path.read_bytes() + libraries[1][100:])

    assert answer(outer) == 1
    assert inner.times == 1


def test_what_a_killed_build_left_is_removed_by_the_next(home, libraries):
    answer(Builder(libraries[1]), "first.so")
    left, running = library.cache() / ".building-left", library.cache() / ".building-running"
    for each in (left, running):
        each.mkdir()
        (each / "built").touch()
    os.utime(left, (time.time() - 7200,) * 2)
    answer(Builder(libraries[1]), "second.so")
    assert (left.exists(), running.exists()) == (False, True)


def test_a_relative_cache_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative", "./here", "~/.cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert library.cache() == tmp_path / ".cache" / "evergrad"


def test_a_refused_folder_is_one_warning_and_no_kernels(home, monkeypatch):
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setattr(ctypes, "CDLL", None)
    with pytest.warns(UserWarning, match=r"others can write to .*slower forms are used") as said:
        assert not native.available.__wrapped__()
    assert len(said) == 1
    assert not list(home.iterdir())
