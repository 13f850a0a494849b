"""Every estimator on three chaotic series, one step ahead: a tanh RNN of 64 units against published records, and unit-local cells.

    python benchmarks/chaos.py [--rows "SnAp-1;UORO"] [--systems "henon;mackey"] [--seeds 5] [--steps 15000]

8 streams, Adam at 0.001 without clipping, one update a step (TBPTT in chunks: one in 25), states and influences reset every 200
steps, float32, weights uniform within ±1/√n and biases 0. The score is the mean squared error of the last 1,000 steps (five
running means of 200), in units of the series' variance, of predictions made before the step was learned from.

Prints the table. Writes benchmarks/results/chaos.json after every run and goes on from there, so that it can be stopped; a run
that is in the file is not done again. `--rows ""` only prints the table.
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

import evergrad as eg
from evergrad._cells.base import outputs_of
from evergrad._core.checks import DivergedError
from evergrad._core.files import write_whole
from evergrad._core.names import refuse_unknown
from evergrad._tasks import Chaos

UNITS, STREAMS, RATE, SCORED, SEEDS = 64, 8, 1e-3, 1_000, 5
ROWS: dict[str, tuple[Any, eg.Estimator]] = {
    "exact RTRL": (eg.RNN, eg.RTRL(window=64)),
    "SnAp-1": (eg.RNN, eg.SnAp1()),
    "SnAp-1, window 16": (eg.RNN, eg.SnAp1(window=16)),
    "OK(8), window 16": (eg.RNN, eg.OK(rank=8, window=16)),
    "KTP(16)": (eg.RNN, eg.KTP(rank=16)),
    "KTP(16), window 16": (eg.RNN, eg.KTP(rank=16, window=16)),
    "KF": (eg.RNN, eg.KF()),
    "UORO": (eg.RNN, eg.UORO()),
    "UORO, one scale": (eg.RNN, eg.UORO(scales="one")),
    "ARTBP(16)": (eg.RNN, eg.ARTBP(mean=16, cap=256)),
    "ARTBP(16), rolling": (eg.RNN, eg.ARTBP(mean=16, cap=256, rolling=True)),
    "TBPTT-25, chunks": (eg.RNN, eg.TBPTT(horizon=25, stride=25)),
    "TBPTT-25, rolling": (eg.RNN, eg.TBPTT(horizon=25, stride=1)),
    "LRU, exact": (eg.LRU, eg.RTRL()),
    "RTU, exact": (eg.RTU, eg.RTRL()),
    "minGRU, exact": (eg.MinGRU, eg.RTRL()),
}
# The published records say that they look 17 steps back, but their code takes the 17th number from the end, which is x(t − 16):
# so there is a series of each kind.
SYSTEMS = {"henon": ("henon", 17), "mackey": ("mackey", 17), "mackey-16": ("mackey", 16), "lorenz": ("lorenz", 17)}
# mean and deviation over ten seeds (TBPTT: five) of sonaradarcn/sketched-rtrl's records, read by the same rule
PUBLISHED = {
    "exact RTRL": {"henon": (0.0052, 0.0010), "mackey": (0.0180, 0.0218), "lorenz": (0.0051, 0.0040)},
    "SnAp-1": {"henon": (0.0052, 0.0012), "mackey": (0.0050, 0.0010), "lorenz": (0.0024, 0.0008)},
    "KF": {"henon": (0.0384, 0.0709), "mackey": (0.0286, 0.0181), "lorenz": (0.0126, 0.0079)},
    "UORO, one scale": {"henon": (0.6583, 0.2966), "mackey": (0.0497, 0.0238), "lorenz": (0.0425, 0.0431)},
    "TBPTT-25, chunks": {"henon": (0.0311, 0.0030), "mackey": (0.0080, 0.0010), "lorenz": (0.0054, 0.0007)},
}


def network(kind: Any, key: jax.Array) -> eg.Model:
    one, two = jax.random.split(key)
    cell = kind(1, UNITS, key=one, initial="fan_in")
    if kind is eg.RNN:
        cell = eqx.tree_at(lambda c: c.weight, cell, cell.weight.at[-1].set(0.0))  # the biases
    return eg.Model(cell, eg.Linear(outputs_of(cell), 1, key=two, initial="fan_in"))


def score(learner: eg.Learner, system: str, seed: int, steps: int) -> float | None:
    """None where the loss became non-finite. One learner serves all seeds and systems, so that it is compiled once."""
    name, delay = SYSTEMS[system]
    model_key, state_key, task_key = jax.random.split(jax.random.key(seed), 3)
    source = Chaos(name, delay=delay, batch=STREAMS, seed=seed)
    state, position = learner.init(batch=STREAMS, key=state_key), source.start(batch=STREAMS, key=task_key)
    state = eqx.tree_at(lambda s: s.model, state, network(type(learner.model.cell), model_key))
    try:
        _, _, losses = learner.follow(state, source, position, steps)
    except DivergedError:
        return None
    return float(np.asarray(losses[-SCORED:], np.float64).mean())


def missing(options: argparse.Namespace, path: Path) -> list[tuple[str, str, int]]:
    """Where the published series is not the equation's, it is only for the rows that were published."""
    found, chosen = scores(path), itertools.product(split(options.rows), split(options.systems), range(options.seeds))
    wanted = [each for each in chosen if each[1] != "mackey-16" or each[0] in PUBLISHED]
    return [each for each in wanted if _name(*each) not in found]


def measure(options: argparse.Namespace, path: Path) -> dict[str, float | None]:
    """The file is read again before every run and every writing, so that two of these can share the work."""
    learners: dict[str, eg.Learner] = {}
    for row, system, seed in missing(options, path):
        if _name(row, system, seed) in scores(path):
            continue
        kind, estimator = ROWS[row]
        if row not in learners:
            learners[row] = eg.Learner(network(kind, jax.random.key(0)), estimator, optax.adam(RATE))
        start = time.perf_counter()
        value = score(learners[row], system, seed, options.steps)
        seconds, left = time.perf_counter() - start, len(missing(options, path)) - 1
        print(f"{_name(row, system, seed)}: {value} ({seconds:.0f} s; {left} left)", flush=True)
        write(path, options.steps, scores(path) | {_name(row, system, seed): value})
    return scores(path)


def scores(path: Path) -> dict[str, float | None]:
    return json.loads(path.read_text())["scores"] if path.exists() else {}


def write(path: Path, steps: int, found: dict[str, float | None]) -> None:
    about = {"score": f"squared error / variance, last {SCORED} steps", "steps": steps, "units": UNITS}
    about |= {"streams": STREAMS, "optimiser": f"adam({RATE})", "rows": {row: repr(e) for row, (_, e) in ROWS.items()}}
    write_whole(path, json.dumps({**about, "scores": found}, indent=1) + "\n")


def _name(row, system, seed):
    return f"{row} | {system} | {seed}"


def table(found: dict[str, float | None]) -> str:
    """Markdown: mean ± deviation over seeds (how many, if they are few), and what was published, with the distance in its deviations."""
    lines = ["| | " + " | ".join(SYSTEMS) + " |", "|---|" + "---|" * len(SYSTEMS)]
    for row in (row for row in ROWS if any(_values(found, row, system) for system in SYSTEMS)):
        lines.append(f"| {row} | " + " | ".join(_shown(found, row, system) for system in SYSTEMS) + " |")
        if row in PUBLISHED:
            cells = (_compared(found, row, system) for system in SYSTEMS)
            lines.append("| – published | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _values(found, row, system):
    return [value for name, value in found.items() if name.startswith(f"{row} | {system} |")]


def _shown(found, row, system):
    values = _values(found, row, system)
    if not values:
        return ""
    finite = [value for value in values if value is not None]
    lost = f", {len(values) - len(finite)} of {len(values)} diverged" if len(finite) < len(values) else ""
    few = f" ({len(values)})" if len(values) < SEEDS else ""
    return (f"{np.mean(finite):.4f} ± {np.std(finite):.4f}" if finite else "–") + few + lost


def _compared(found, row, system):
    mean, deviation = PUBLISHED[row][system.removesuffix("-16")]
    values = [value for value in _values(found, row, system) if value is not None]
    apart = f" ({(np.mean(values) - mean) / deviation:+.1f} sd)" if values else ""
    return f"{mean:.4f} ± {deviation:.4f}{apart}"


def split(names: str) -> list[str]:
    """Rows have commas in their names, so they are asked for with semicolons between them."""
    return [name.strip() for name in names.split(";") if name.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=";".join(ROWS), help="names of the table, with ; between them")
    parser.add_argument("--systems", default=";".join(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "chaos.json")
    options = parser.parse_args()
    for row in split(options.rows):
        refuse_unknown("row", row, ROWS, "choose one of")
    for system in split(options.systems):
        refuse_unknown("system", system, SYSTEMS, "choose one of")
    print(table(measure(options, options.json)))


if __name__ == "__main__":
    main()
