"""Against what people could use instead, each in an environment of its own, taking turns with ours in one run."""

import contextlib
import dataclasses
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
from evergrad.bench.settings import COPY, PTB, RATE, Setting
from evergrad.bench.timing import Case, milliseconds, training
from evergrad.export.layout import to_layout

GRU = Setting("gru", units=128, batch=16, rank=1, symbols=4, cell="GRU")
FASTER = 20.0  # times, than braintrace
OURS, THEIRS = "evergrad UORO", "braintrace UORO"
HORIZON, CHUNKS = 25, 16  # of truncated backpropagation, and of a round
NO_SLOWER = 1.2  # times, than PyTorch


@dataclasses.dataclass(frozen=True)
class Peer:
    """Somebody else's program, which trains what it is given, and the Python that has what it needs."""

    name: str
    option: str  # of the command line, that names the Python
    script: str
    python: Path


def peers(braintrace: Path, pytorch: Path, *, rounds: int, steps: int, say: Callable[[str], None]) -> Iterator[Row]:
    """All rows; the two are the Pythons of the environments that they are in."""
    for units in (PTB, COPY):
        say(f"TBPTT against PyTorch's, {units.units} units")
        yield from _tbptt(dataclasses.replace(units, cell="LSTM"), pytorch, rounds)
    say("UORO against braintrace's")
    theirs = Peer("braintrace", "--braintrace", "braintrace_run.py", braintrace)
    with turns(theirs, GRU, uoro_given(GRU, steps)) as case:
        yield against_braintrace(milliseconds({THEIRS: case, OURS: training(GRU, eg.UORO(), 16 * steps)}, rounds))
    for setting in AUTHORS:
        say(f"OK at {setting.name}")
        (ours,) = milliseconds({"OK": training(setting, setting.ok(), 2 * setting.window)}, rounds).values()
        yield from against_authors(setting, ours)


def _tbptt(setting, python, rounds):
    """Of the copy setting our RHN too, which does half of the work."""
    theirs, estimator = "PyTorch LSTM", eg.TBPTT(horizon=HORIZON)
    peer = Peer("PyTorch", "--pytorch", "pytorch_run.py", python)
    with turns(peer, setting, tbptt_given(setting)) as case:
        cases = {theirs: case, "evergrad LSTM": training(setting, estimator, HORIZON * CHUNKS)}
        if setting.units == COPY.units:
            cases["evergrad RHN"] = training(COPY, estimator, HORIZON * CHUNKS)
        yield from against_pytorch(setting, milliseconds(cases, rounds))


def against_pytorch(setting: Setting, ms: dict[str, float]) -> Iterator[Row]:
    size = f"{setting.units} units, batch {setting.batch}, TBPTT({HORIZON}, {HORIZON})"
    ours = [name for name in ms if name.startswith("evergrad")]
    for name in ours:
        yield Row("7", f"{size}: {name} / PyTorch LSTM", ms[name] / ms["PyTorch LSTM"], NO_SLOWER, milliseconds=ms)
    if "evergrad RHN" in ms:
        yield Row("7", f"{size}: evergrad RHN / evergrad LSTM", ms["evergrad RHN"] / ms["evergrad LSTM"], 1.0)


def against_braintrace(ms: dict[str, float]) -> Row:
    what = f"GRU, {GRU.units} units, batch {GRU.batch}: {THEIRS} / {OURS}"
    return Row("7", what, ms[THEIRS] / ms[OURS], FASTER, at_least=True, milliseconds=ms)


@contextlib.contextmanager
def turns(peer: Peer, setting: Setting, given: dict[str, Any]) -> Iterator[Case]:
    """A round of theirs, on the network and the data that ours starts with, in a process that waits in between."""
    refuse_unless(
        peer.python.exists(), f"{peer.option} {peer.python}: there is no such Python. `make bench-peers` makes it."
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "given.npz")
        np.savez(file, **given)
        child = subprocess.Popen(
            [peer.python, Path(__file__).with_name(peer.script), file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _check_same(peer, _answer(peer, child), setting, given)
            yield lambda: _answer(peer, child, "again\n")
        finally:
            child.kill()
            child.communicate()


def uoro_given(setting: Setting, steps: int) -> dict[str, Any]:
    """Symbols [T, B] and the weights of a GRU as they are here."""
    model = setting.learner(eg.UORO()).model
    return _given(setting, steps, {"rows": cast(Any, model.cell).weight})


def tbptt_given(setting: Setting) -> dict[str, Any]:
    """Symbols [chunks, horizon, B] and the weights of an LSTM as PyTorch has them."""
    model = setting.learner(eg.UORO()).model
    found = _given(setting, HORIZON * CHUNKS, to_layout(model.cell))
    return found | {name: found[name].reshape(CHUNKS, HORIZON, -1) for name in ("xs", "ys")}


def _given(setting, steps, weights):
    readout, (xs, ys) = setting.learner(eg.UORO()).model.readout, setting.data(steps)
    everything = {"xs": xs, "ys": ys, "rate": RATE, "readout": readout.weight, "bias": readout.bias} | weights
    return {name: np.asarray(a) for name, a in everything.items()}


def _answer(peer: Peer, child: subprocess.Popen, order: str = "") -> Any:
    to, of = not_none(child.stdin), not_none(child.stdout)
    if order:
        to.write(order)
        to.flush()
    line = of.readline()
    if not line:
        folder = peer.python.parent.parent.name
        raise InputError(
            f"{peer.name}'s process has ended, see above. `rm -r {folder}; make bench-peers` installs it anew."
        )
    return json.loads(line)


def _check_same(peer: Peer, losses: list[float], setting: Setting, given: dict[str, Any]) -> None:
    """The first loss is the same on both sides if symbols, input weights and readout are. It begins at h = 0, and so says
    nothing of the recurrent weights; their values make no difference to the time."""
    model = setting.learner(eg.UORO()).model
    xs, ys = (given[name].reshape(-1, setting.batch)[:1] for name in ("xs", "ys"))
    ours = float(model.losses(xs, ys).mean())
    if not np.isclose(losses[0], ours, rtol=1e-5):
        raise InputError(f"{peer.name}'s network is not ours: its first loss is {losses[0]:.6f}, ours {ours:.6f}.")
