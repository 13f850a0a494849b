"""How long a program takes from its learner to its first result, the first time and when XLA's work is found on disk.

`python -m evergrad.bench.starts` says so of one start, in seconds; imports are not in it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 64


def starts() -> dict[str, float]:
    """Seconds of a start with an empty cache, and of the next one, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: _started(Path(folder)) for name in ("cold", "second")}


def _started(folder: Path) -> float:
    kept = {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-m", "evergrad.bench.starts"]
    found = subprocess.run(command, env=os.environ | kept, check=True, capture_output=True, text=True)
    return float(found.stdout)


def main() -> None:
    import jax

    from evergrad import _native
    from evergrad.bench.settings import COPY

    _native.available()  # built once a machine
    start = time.perf_counter()
    learner = COPY.learner(COPY.ok())
    state = learner.init(batch=COPY.batch, key=jax.random.key(2))
    _, out = learner.run(state, *COPY.data(STEPS))
    jax.block_until_ready(out.losses)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
