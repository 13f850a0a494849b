"""Networks of exported runs: arrays and a record, from which a run goes on in a new folder with an empty influence.

`networks/ID.npz` has the arrays, `networks/ID.json` all else but the curve, with checksums of both and of the curve's file.
"""

import dataclasses
import hashlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import read_checked, read_regular, write_checked, write_whole, written_whole
from evergrad._training import transfer
from evergrad._training.build import make_job
from evergrad._training.resolve import resolve
from evergrad._training.settings import Settings
from evergrad._training.transfer import Network
from evergrad.paper import curves
from evergrad.paper.curves import FIGURE, Curve
from evergrad.paper.plan import PAPERS_START, Plan, Run

FORMAT = 1
# of a run's settings, those that tell nothing about its numbers, or are told elsewhere
_LEFT_OUT = ("checkpoint_every", "checkpoint_seconds", "keep", "steps", "tensorboard", "on_divergence", "report")


def told(settings: Settings) -> dict[str, Any]:
    """What of the settings makes a run, wherever its data lie; the task is told beside them."""
    said = {name: value for name, value in dataclasses.asdict(settings).items() if value is not None}
    kept = {name: value for name, value in said.items() if name not in (*_LEFT_OUT, "task")}
    return kept | ({"data": Path(kept["data"]).name} if "data" in kept else {})


def leave(network: Network, name: str, to: Path, starts: list[dict[str, Any]]) -> None:
    """Beside the curve of that name, which is there already."""
    record, arrays, curve = _places(to, name)
    with written_whole(arrays) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **network.arrays)
    document = {
        "format": FORMAT,
        "task": network.settings.task,
        "settings": told(network.settings),
        "data": network.data,
        "step": network.step,
        "report": network.reports[-1],
        "seconds": round(network.seconds, 1),
        "starts": starts,
        "sha256": {"arrays": _sha256(arrays), "curve": _sha256(curve)},
    }
    write_checked(record, document)


def _places(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Of the record, the arrays and the curve."""
    networks = folder / "networks"
    return networks / f"{name}.json", networks / f"{name}.npz", folder / "curves" / f"{name}.csv"


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_regular(path)).hexdigest()


class Exported(NamedTuple):
    """A network that was found, and what its run was made with so far."""

    network: Network
    starts: list[dict[str, Any]]


def found(folder: Path, run: Run) -> Exported | None:
    """The network of this run in an exported folder; None if there is none. One that is damaged is refused."""
    documents = {path.stem: _read(path) for path in sorted((folder / "networks").glob("*.json"))}
    seed = run.settings["seed"]
    near = {n: d for n, d in documents.items() if d["task"] == run.task and d["settings"].get("seed") == seed}
    if not near:
        return None
    settings = make_job(resolve(run.task, PAPERS_START | run.settings | {"steps": run.steps})).settings
    now = told(settings)
    fitting = [name for name, document in near.items() if _fits(document["settings"], now)]
    if not fitting:
        return None
    name = max(fitting, key=lambda each: near[each]["step"])
    settings = dataclasses.replace(settings, steps=max(run.steps, near[name]["step"]))
    return Exported(_network(folder, name, near[name], settings), near[name]["starts"])


def _fits(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether all that was said then is so now; options that came later are as they always were."""
    return all(now.get(name) == value for name, value in then.items())


def _read(path: Path) -> dict[str, Any]:
    document = read_checked(path)
    refuse_unless(document["format"] <= FORMAT, f"{path} has format {document['format']}: install a newer evergrad.")
    return document


def _network(folder: Path, name: str, document: dict[str, Any], settings: Settings) -> Network:
    _, arrays, curve = _places(folder, name)
    for part, path in (("arrays", arrays), ("curve", curve)):
        whole = path.is_file() and _sha256(path) == document["sha256"][part]
        refuse_unless(whole, f"{path} is missing, damaged or of another export: export the run again.")
    with np.load(io.BytesIO(read_regular(arrays)), allow_pickle=False) as file:
        loaded = {each: file[each] for each in file.files}
    reports = [*_reports(curves.read(curve), settings.task, document["step"]), document["report"]]
    return Network(settings, document["data"], loaded, reports, document["seconds"])


def _reports(curve: Curve, task: str, step: int) -> list[dict[str, Any]]:
    """Those before a step, as far as a curve tells them."""
    points = zip(*(each.tolist() for each in curve), strict=True)
    return [{"step": at, "loss": loss, FIGURE[task]: value} for at, value, loss in points if at < step]


def take_up(plan: Plan, run: Run) -> int | None:
    """A folder for a run that has none yet, from its exported network, if there is one: the step it goes on from.

    What it was made with before is written down before the new start is.
    """
    exported = None if plan.exported is None or plan.path(run).exists() else found(plan.exported, run)
    if exported is None:
        return None
    try:
        transfer.put(exported.network, plan.path(run), plan.out / "half" / run.id)
    except InputError as error:
        raise InputError(f"{plan.exported}: the network of {run.id} cannot be gone on with: {error}") from None
    lines = "".join(json.dumps(start) + "\n" for start in exported.starts)
    write_whole(plan.starts(run), lines)
    return exported.network.step
