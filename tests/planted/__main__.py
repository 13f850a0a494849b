"""Plants every error in a copy of the package and sees whether its test fails: `python -m tests.planted [WORD ...] [--jobs N]`.

WORDs choose those errors whose oracle, test or file has one of them in it. First all tests are run without an error, and must pass. Exit code 1
if an error is not caught. What was seen goes into docs/oracles.md.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted import page
from tests.planted.errors import ERRORS, Planted

COPIED, LINKED = ("evergrad", "tests", "examples"), ("docs", "experiments", "benchmarks", "scripts", "pyproject.toml")
# a test that fails for another reason than what it asserts says nothing of its oracle
ASSERTED = re.compile(r"^FAILED .* - (AssertionError|assert |Failed: DID NOT RAISE)", re.MULTILINE)


def copied(folder: Path) -> None:
    """The repository as far as tests look at it, with a package that may be changed."""
    for name in COPIED:
        shutil.copytree(page.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINKED:
        (folder / name).symlink_to(page.ROOT / name)


def tested(folder: Path, *tests: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        "-m",
        "pytest",
        *tests,
        "-q",
        "-m",
        "slow or not slow",
        "-p",
        "no:cacheprovider",
        "--tb=no",
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )


def caught(error: Planted) -> str:
    """ "yes", or what happened instead."""
    with tempfile.TemporaryDirectory(prefix="evergrad-planted-") as name:
        copied(folder := Path(name))
        source = folder / error.path
        text = source.read_text()
        if text.count(error.right) != 1:
            return "the text to be replaced is not there once"
        source.write_text(text.replace(error.right, error.wrong))
        done = tested(folder, error.test)
    if done.returncode == 0:
        return "the test passes"
    return "yes" if ASSERTED.search(done.stdout) else f"it failed otherwise: {done.stdout[-500:]}"


def sound(errors: list[Planted]) -> bool:
    """Whether all tests pass where nothing is planted."""
    with tempfile.TemporaryDirectory(prefix="evergrad-planted-") as name:
        copied(folder := Path(name))
        done = tested(folder, *dict.fromkeys(error.test for error in errors))
    print(done.stdout.strip().splitlines()[-1] if done.returncode == 0 else done.stdout + done.stderr, flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only errors with one of these in them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    given = parser.parse_args()
    chosen = [e for e in ERRORS if not given.words or any(word in e.oracle + e.test + e.file for word in given.words)]
    print(f"{len(chosen)} errors; first their tests without one", flush=True)
    if not chosen or not sound(chosen):
        return 1
    words, start = page.known(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for number, (error, word) in enumerate(zip(chosen, pool.map(caught, chosen), strict=True), 1):
            words[error] = "yes" if word == "yes" else "**no**"
            shown = "caught" if word == "yes" else f"NOT CAUGHT: {word}"
            print(
                f"{number}/{len(chosen)} {time.monotonic() - start:.0f} s, {error.test}, {error.what}: {shown}",
                flush=True,
            )
    page.write(words)
    missed = sum(words[error] != "yes" for error in chosen)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
