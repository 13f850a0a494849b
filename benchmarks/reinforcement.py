"""Learning from rewards at full size: the T-maze with corridors 10, 20 and 40, and trace conditioning, three seeds each.

    python benchmarks/reinforcement.py                                # all that is not written down yet, the quick learners first
    python benchmarks/reinforcement.py --only rtu,ok --corridors 10   # some of it
    python benchmarks/reinforcement.py --search                       # rate, λ and entropy, on a seed that is not reported
    python benchmarks/reinforcement.py --times                        # milliseconds a step: on quiet cores
    python benchmarks/reinforcement.py --show                         # the tables of docs/arena.md, and the picture

The learners are those of examples/reinforcement_learning.py: same size, streams, rate and steps, an update a step. A run that stands in
benchmarks/results/reinforcement.json is not done again, and one that was cut short goes on from its last twentieth.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evergrad._core.files import write_whole, written_whole
from evergrad._core.machine import machine
from evergrad._style import finished, line_style, subplots

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import reinforcement_learning as example

RESULTS = Path(__file__).parent / "results" / "reinforcement.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "rewards.png"
UNDER_WAY = Path("runs/reinforcement")
UNREPORTED = 100  # the seed on which settings were chosen
SEARCH = [
    {"rate": rate, "decay": decay, "entropy": entropy}
    for rate in (3e-4, 1e-3, 3e-3)
    for decay in (0.0, 0.9)
    for entropy in (0.01, 0.05)
]
NONE = "–"
USUAL = {"rate": example.RATE, "decay": example.LAMBDA, "entropy": example.ENTROPY}


def trainer_of(task: str, lag: int, learner: str, settings: dict[str, float]) -> example.Trainer:
    _, cell, estimator = example.LEARNERS[learner]
    return example.Trainer(example.TASKS[task](lag), lambda key: cell(lag, key), estimator, **settings)


def run(about: dict[str, Any], settings: dict[str, float], folder: Path) -> dict[str, Any]:
    """The curve of a run, which is kept in `folder` after each part of it, and its figures over the last fifth."""
    trainer = trainer_of(about["task"], about["lag"], about["learner"], settings)
    begun = trainer.start(jax.random.key(about["seed"]))
    kept = folder / f"{'-'.join(str(value) for value in (about | settings).values())}.eqx"
    curve, begun = _resumed(kept, begun)
    for state, part in example.parts(trainer, begun, about["steps"], done=len(curve)):
        curve.append(part)
        with written_whole(kept) as beside, beside.open("wb") as file:
            file.write((json.dumps(curve) + "\n").encode())
            eqx.tree_serialise_leaves(file, eqx.filter(_plain(state), eqx.is_array))
    kept.unlink(missing_ok=True)
    success, error = example.last_fifth(curve)
    return about | settings | {"success": success, "error": error, "curve": [part._asdict() for part in curve]}


def _resumed(kept: Path, begun: example.Run) -> tuple[list[example.Part], example.Run]:
    """What was kept of a run, or its beginning."""
    if not kept.exists():
        return [], begun
    with kept.open("rb") as file:
        curve = [example.Part(*part) for part in json.loads(file.readline())]
        arrays, rest = eqx.partition(_plain(begun), eqx.is_array)
        return curve, _keyed(eqx.combine(eqx.tree_deserialise_leaves(file, arrays), rest))


def _plain(state: example.Run) -> example.Run:
    """With keys as numbers."""
    return _keys(jax.random.key_data, state)


def _keyed(state: example.Run) -> example.Run:
    return _keys(jax.random.wrap_key_data, state)


def _keys(change, state):
    return eqx.tree_at(lambda run: (run.key, run.followed.keys), state, replace_fn=change)


def identity(each: dict[str, Any]) -> tuple:
    return tuple(each[name] for name in ("task", "lag", "learner", "seed", "steps", "rate", "decay", "entropy"))


def wanted(args: argparse.Namespace) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Runs and their settings; the search on one corridor."""
    lags = [int(word) for word in args.corridors.split(",")]
    seeds, choices = (range(args.seeds), [USUAL]) if not args.search else ([UNREPORTED], SEARCH)
    found = []
    for task in args.tasks.split(","):
        for learner in args.only.split(","):
            for lag in lags:
                about = {"task": task, "lag": lag, "learner": learner}
                steps = args.steps or example.STEPS[task][lag]
                fit = [how for how in choices if task == "maze" or how["entropy"] == example.ENTROPY]
                found += [(about | {"seed": seed, "steps": steps}, how) for seed in seeds for how in fit]
    return found


def run_all(document: dict[str, Any], args: argparse.Namespace) -> None:
    runs = document["search" if args.search else "runs"]
    known = {identity(each) for each in runs}
    left = [(about, how) for about, how in wanted(args) if identity(about | how) not in known]
    for at, (about, how) in enumerate(left):
        began = time.perf_counter()
        found = run(about, how, UNDER_WAY)
        runs.append(found)
        write(document)
        words = " ".join(str(value) for value in (about | how).values())
        figure = found["success"] if about["task"] == "maze" else found["error"]
        print(f"[{at + 1}/{len(left)}] {words}: {figure:.3g} ({time.perf_counter() - began:.0f} s)", flush=True)


def time_all(document: dict[str, Any], args: argparse.Namespace, steps: int = 200, rounds: int = 5) -> None:
    """Everyone in turn, the median of the rounds; the first one compiles."""
    streams = {}
    for learner in args.only.split(","):
        trainer = trainer_of("maze", 20, learner, USUAL)
        count = rounds + 1
        streams[learner] = example.parts(trainer, trainer.start(jax.random.key(0)), count * steps, count)
    spent: dict[str, list[float]] = {learner: [] for learner in streams}
    for _ in range(rounds + 1):
        for learner, stream in streams.items():
            began = time.perf_counter()
            next(stream)
            spent[learner].append(1000 * (time.perf_counter() - began) / steps)
    document["milliseconds_a_step"] |= {name: float(np.median(times[1:])) for name, times in spent.items()}
    document["machine"] = machine()
    write(document)
    print(json.dumps(document["milliseconds_a_step"], indent=1))


def write(document: dict[str, Any]) -> None:
    write_whole(RESULTS, json.dumps(document) + "\n")


def opened() -> dict[str, Any]:
    empty = {"product": "evergrad", "units": example.UNITS, "streams": example.BATCH, "discount": example.DISCOUNT}
    empty |= {"updates_per_sample": 1, "search": [], "runs": [], "milliseconds_a_step": {}}
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else empty


def show(document: dict[str, Any]) -> None:
    """The tables, in Markdown: runs of the example's length, and shorter ones."""
    runs = [each for each in document["runs"] if identity(each)[-3:] == tuple(USUAL.values())]
    for task, figure in (("maze", "success"), ("trace", "error")):
        columns = sorted({(each["lag"], each["steps"]) for each in runs if each["task"] == task})
        whole = [column for column in columns if column in example.STEPS[task].items()]
        for some in (whole, [column for column in columns if column not in whole]):
            _table(document, runs, task, figure, some)


def _table(document, runs, task, figure, columns):
    """Of those who have a figure in it."""
    cells = {name: [_figures(runs, task, *column, name, figure) for column in columns] for name in example.LEARNERS}
    cells = {name: row for name, row in cells.items() if any(cell != NONE for cell in row)}
    if not cells:
        return
    print("\n| | horizon, stride | ms a step |", " | ".join(f"{lag} ({steps:,} steps)" for lag, steps in columns), "|")
    print("|---|---|---|", "---|" * len(columns), sep="")
    for learner, row in cells.items():
        words, _, estimator = example.LEARNERS[learner]
        horizon = getattr(estimator, "horizon", None) or "to the beginning"
        spent = document["milliseconds_a_step"].get(learner)
        print(f"| {words} | {horizon}, 1 | {NONE if spent is None else f'{spent:.2f}'} |", " | ".join(row), "|")


def _figures(runs, task, lag, steps, learner, figure):
    """One a seed; the critic's error in units of that of saying nothing."""
    names, wanted = ("task", "lag", "steps", "learner"), (task, lag, steps, learner)
    found = [each for each in runs if tuple(each[name] for name in names) == wanted]
    found.sort(key=lambda each: each["seed"])
    unit = 1.0 if figure == "success" else example.TASKS[task](lag).nothing()
    return " ".join(f"{each[figure] / unit:.2f}" for each in found) or NONE


def draw(document: dict[str, Any]) -> None:
    """Success over the steps, a panel a corridor, a line a seed, of runs of full length."""
    runs = [each for each in document["runs"] if each["task"] == "maze"]
    runs = [each for each in runs if each["steps"] == example.STEPS["maze"][each["lag"]]]
    lags = sorted({each["lag"] for each in runs})
    figure, axes = subplots(1, len(lags), figsize=(10, 3.4), squeeze=False, sharey=True)
    for place, lag in zip(axes.flat, lags, strict=True):
        for at, learner in enumerate(example.LEARNERS):
            for nth, each in enumerate(e for e in runs if (e["lag"], e["learner"]) == (lag, learner)):
                shares = [part["successes"] / max(1, part["episodes"]) for part in each["curve"]]
                label = {"label": example.LEARNERS[learner][0]} if nth == 0 else {}
                place.plot([part["step"] / 1000 for part in each["curve"]], shares, lw=1.2, **line_style(at), **label)
        place.axhline(0.5, color="grey", lw=0.8)
        place.set(title=f"corridor {lag}", xlabel="thousand steps", ylim=(0, 1.02))
    axes[0, 0].set_ylabel("share of episodes with the right turn")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    finished(figure).savefig(PICTURE, dpi=110)


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--tasks", default="maze,trace")
    said.add_argument("--corridors", default="10,20,40")
    said.add_argument("--only", default=",".join(example.LEARNERS), help="learners, a,b,c")
    said.add_argument("--steps", type=int, help="of 16 streams, rather than those of the example")
    said.add_argument("--seeds", type=int, default=3)
    said.add_argument("--search", action="store_true")
    said.add_argument("--times", action="store_true")
    said.add_argument("--show", action="store_true")
    args = said.parse_args()
    document = opened()
    if args.times:
        time_all(document, args)
    elif not args.show:
        run_all(document, args)
    if document["runs"] and (args.show or args.times):
        show(document)
        draw(document)


if __name__ == "__main__":
    main()
