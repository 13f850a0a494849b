"""The command line, called here or as real processes, and what it leaves behind."""

import contextlib
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from evergrad._cli import app
from evergrad._core.files import read_checked, write_checked
from evergrad._training.folder import open_run
from evergrad._training.reports import rows
from evergrad._training.run import load

ROOT = Path(__file__).resolve().parent.parent
TINY = ("--units", "6", "--batch", "2")
COPY_OK = ("copy", *TINY, "--estimator", "ok", "--rank", "2", "--window", "3")
TEXT_KTP = ("text", *TINY, "--estimator", "ktp", "--rank", "2")
SERIES_TBPTT = ("series", *TINY, "--estimator", "tbptt", "--horizon", "4", "--ahead", "2")


@contextlib.contextmanager
def command_line_config():
    """Single precision, and dtypes promoted as Optax's Adam needs it; what other tests have set comes back after."""
    names = ("jax_enable_x64", "jax_numpy_dtype_promotion")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (False, "standard"), strict=True):
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


@pytest.fixture(autouse=True)
def as_on_the_command_line():
    with command_line_config():
        yield


def environment(*, cached: bool = True) -> dict[str, str]:
    cache = {
        "JAX_COMPILATION_CACHE_DIR": os.environ["EVERGRAD_TEST_CACHE"],  # of tests/conftest.py
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    inherited = {name: value for name, value in os.environ.items() if name not in cache}
    # to the bit what the command does in this process, and the same programs
    same = {"JAX_DISABLE_MOST_OPTIMIZATIONS": str(jax.config.read("jax_disable_most_optimizations"))}
    return inherited | (cache if cached else {}) | same | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def command(*arguments) -> list[str]:
    return [sys.executable, "-W", "error::UserWarning", "-m", "evergrad", *map(str, arguments)]


def evergrad(*arguments, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Runs the command to its end, in this process, which has imported and compiled much already."""
    with command_line_config(), contextlib.chdir(cwd or Path.cwd()):
        done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def process(*arguments, cwd: Path | None = None, after: str | None = None) -> subprocess.CompletedProcess:
    """The same as a process of its own; `after` is Python that it runs before it becomes the command."""
    line, cached = command(*arguments), after is None  # what the process is denied would spoil the cache too
    if after is not None:
        line = [sys.executable, "-c", f"import os, sys\n{after}\nos.execv(sys.argv[1], sys.argv[1:])", *line]
    return subprocess.run(line, cwd=cwd, env=environment(cached=cached), capture_output=True, text=True, timeout=300)


def start(*arguments) -> subprocess.Popen:
    return subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def free_address() -> str:
    """Of a port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def garbage(where: str) -> Iterator[None]:
    """Somebody sends nonsense to an address, opens lines and says nothing, and one byte after the other."""
    host, port = where.split(":")
    chance, over, lines = np.random.default_rng(0), threading.Event(), []
    http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    nonsense = [b'{"kind":"hello"}\n', b'{"kind":"hello","id":99,"size":2}\n', b"[" * 200_000 + b"\n", b""]
    nonsense += [chance.bytes(100_000), http2 + chance.bytes(5000), http2 + b"\x7f\xff\xff\x04" + bytes(5)]

    def drip(line):
        with contextlib.suppress(OSError):
            while not over.wait(0.5):
                line.sendall(b"P")

    for data in (*nonsense, *[b""] * 20):
        lines.append(socket.create_connection((host, int(port)), timeout=5))
        with contextlib.suppress(OSError):  # hung up on
            lines[-1].sendall(data)
    dripping = threading.Thread(target=drip, args=(lines[-1],))
    dripping.start()
    yield
    over.set()
    dripping.join()
    for line in lines:
        line.close()


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports at which a process listens."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(each))
    rows = [r.split() for f in ("tcp", "tcp6") for r in Path(f"/proc/net/{f}").read_text().splitlines()[1:]]
    places = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    return {(_readable(host), int(port, 16)) for host, port in places}


def _readable(host: str) -> str:
    words = [int(host[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(host), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return str(getattr(found, "ipv4_mapped", None) or found)


def start_team(size: int, *arguments, ids=None) -> list[subprocess.Popen]:
    """The processes of one run."""
    address = free_address()
    together = ("--coordinator", address, "--processes", size)
    return [start(*arguments, *together, "--process-id", i) for i in (range(size) if ids is None else ids)]


def finish(processes) -> list[str]:
    """What every process wrote, when all have ended."""
    try:
        return [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def succeed_together(size: int, *arguments) -> list[str]:
    processes = start_team(size, *arguments)
    outputs = finish(processes)
    assert [process.returncode for process in processes] == [0] * size, "\n".join(outputs)
    return outputs


def succeed(*arguments, cwd: Path | None = None) -> str:
    done = evergrad(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def change_settings(run: Path, change: Callable[[dict], None]) -> None:
    """Other settings, as if evergrad had written them."""
    document = read_checked(run / "settings.json")
    change(document)
    write_checked(run / "settings.json", document)


def as_older_versions_did(run: Path) -> None:
    """Takes all out that was not there when settings had format 1 and checkpoints format 3."""
    without(run / "settings.json", {"format": 1}, "checksum", "identity", "kernels")
    for path in run.glob("checkpoints/*/notes/metadata"):
        without(path, {"format": 3}, "checksum", "owner")
    for name in ("metrics.jsonl", "speed.jsonl"):
        (run / name).write_text(re.sub(', "checksum": "[^"]*"', "", (run / name).read_text()))


def without(path: Path, changes: dict, *names: str) -> None:
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in document.items() if name not in names}))


def reports(run: Path) -> list[dict]:
    return rows(run / "metrics.jsonl", pytest.fail)


def durable_state(run: Path) -> dict[str, np.ndarray]:
    """All arrays of the last checkpoint, by name."""
    _, progress = load(open_run(run))
    leaves, _ = jax.tree_util.tree_flatten_with_path(progress.arrays())

    def plain(a):
        return jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a

    return {jax.tree_util.keystr(path): np.asarray(plain(leaf)) for path, leaf in leaves if hasattr(leaf, "dtype")}


def assert_same_result(run: Path, reference: Path) -> None:
    """Bit for bit: the reports, and all that the last checkpoint holds."""
    assert (run / "metrics.jsonl").read_bytes() == (reference / "metrics.jsonl").read_bytes()
    ours, theirs = durable_state(run), durable_state(reference)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.tobytes() == theirs[name].tobytes(), name


def write_series(path: Path, rows: int = 600, columns: int = 2, seed: int = 0) -> Path:
    """A noisy wave with a period of 12 rows, as CSV with time stamps."""
    noise = np.random.default_rng(seed).normal(size=(rows, columns))
    wave = np.sin(2 * np.pi * np.arange(rows) / 12)[:, None] * np.arange(1, columns + 1)[None]
    values = 3 * wave + 0.3 * noise + 50
    lines = ["time," + ",".join(f"c{i}" for i in range(columns))]
    lines += [f"{t}," + ",".join(f"{v:.6f}" for v in row) for t, row in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return path
