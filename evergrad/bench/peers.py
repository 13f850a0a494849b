"""Against what people could use instead, each in an environment of its own, taking turns with ours in one run."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.not_none import not_none
from evergrad.bench.authors import AUTHORS, against_authors
from evergrad.bench.row import Row
from evergrad.bench.settings import RATE, Setting
from evergrad.bench.timing import Case, milliseconds, training

GRU = Setting("gru", units=128, batch=16, rank=1, symbols=4, cell="GRU")
FASTER = 20.0  # times, than braintrace
OURS, THEIRS = "evergrad UORO", "braintrace UORO"


def peers(python: Path, *, rounds: int, steps: int, say: Callable[[str], None]) -> Iterator[Row]:
    """All rows; `python` is that of the environment that braintrace is in."""
    say("UORO against braintrace's")
    with braintrace(python, GRU, steps) as theirs:
        yield against_braintrace(milliseconds({THEIRS: theirs, OURS: training(GRU, eg.UORO(), 16 * steps)}, rounds))
    for setting in AUTHORS:
        say(f"OK at {setting.name}")
        (ours,) = milliseconds({"OK": training(setting, setting.ok(), 2 * setting.window)}, rounds).values()
        yield from against_authors(setting, ours)


def against_braintrace(ms: dict[str, float]) -> Row:
    what = f"GRU, {GRU.units} units, batch {GRU.batch}: {THEIRS} / {OURS}"
    return Row("7", what, ms[THEIRS] / ms[OURS], FASTER, at_least=True, milliseconds=ms)


@contextlib.contextmanager
def braintrace(python: Path, setting: Setting, steps: int) -> Iterator[Case]:
    """A round of braintrace's UORO, on the network and the data that ours starts with, in a process that waits in between."""
    refuse_unless(python.exists(), f"--braintrace {python}: there is no such Python. `make bench-peers` makes it.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "given.npz")
        np.savez(file, **given(setting, steps))
        child = subprocess.Popen(
            [python, Path(__file__).with_name("braintrace_run.py"), file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _check_same(_answer(child), setting, steps)
            yield lambda: _answer(child, "again\n")
        finally:
            child.kill()
            child.communicate()


def given(setting: Setting, steps: int) -> dict[str, Any]:
    model, (xs, ys) = setting.learner(eg.UORO()).model, setting.data(steps)
    weights = {"rows": cast(Any, model.cell).weight, "readout": model.readout.weight, "bias": model.readout.bias}
    return {name: np.asarray(a) for name, a in ({"xs": xs, "ys": ys, "rate": RATE} | weights).items()}


def _answer(child: subprocess.Popen, order: str = "") -> Any:
    to, of = not_none(child.stdin), not_none(child.stdout)
    if order:
        to.write(order)
        to.flush()
    line = of.readline()
    if not line:
        raise InputError(
            "braintrace's process has ended, see above. `rm -r .venv-braintrace; make bench-peers` installs it anew."
        )
    return json.loads(line)


def _check_same(losses: list[float], setting: Setting, steps: int) -> None:
    """The first loss is the same on both sides if symbols, input weights and readout are. It begins at h = 0, and so says
    nothing of the recurrent weights; their values make no difference to the time."""
    model, (xs, ys) = setting.learner(eg.UORO()).model, setting.data(steps)
    ours = float(model.losses(xs[:1], ys[:1]).mean())
    if not np.isclose(losses[0], ours, rtol=1e-5):
        raise InputError(f"braintrace's network is not ours: its first loss is {losses[0]:.6f}, ours {ours:.6f}.")
