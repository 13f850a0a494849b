"""Training folders as small files that can be committed: a curve, a record and a network for each run, and back again."""

import json
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import write_whole
from evergrad._training.folder import open_run
from evergrad._training.reports import rows
from evergrad._training.transfer import taken
from evergrad.paper import curves
from evergrad.paper.networks import leave, told
from evergrad.paper.record import made_with, now, starts


def export(out: Path, to: Path, *, commit: str | None) -> list[dict[str, Any]]:
    """Of every run in `out`, finished or not, a CSV and a record in `to`/curves, and in `to`/networks what it takes to go on;
    what is there of a longer run is left.

    `commit` is for runs that were started by other means than `evergrad paper run`, which writes it down.
    """
    folders = sorted(path.parent for path in (out / "runs").glob("*/settings.json"))
    refuse_unless(bool(folders), f"{out} has no runs: give the --out of `evergrad paper run`.")
    made = [_exported(folder, out, to, commit) for folder in folders]
    for path in sorted((out / "results").glob("*/*/result.json")):
        _measured(json.loads(path.read_text("utf-8")), to / "measured")
    return [record for record in made if record is not None]


def _exported(path: Path, out: Path, to: Path, commit: str | None) -> dict[str, Any] | None:
    folder = open_run(path)
    task, settings = folder.settings.task, told(folder.settings)
    found = rows(folder.metrics)
    before = to / "curves" / f"{path.name}.json"
    if not found or (before.exists() and json.loads(before.read_text("utf-8"))["steps"] > found[-1]["step"]):
        return None
    noted = out / "runs" / f"{path.name}.diverged"
    record = {
        "id": path.name,
        "task": task,
        "settings": settings,
        "seed": settings["seed"],
        "steps": found[-1]["step"],
        "seconds": round(sum(row["seconds"] for row in rows(folder.speed)), 1),
        "diverged": noted.read_text().strip() if noted.exists() else None,
        "asked_for": folder.settings.steps,
        "starts": starts(out / "starts" / f"{path.name}.jsonl") or [_told(commit)],
        "exported": now(),
        "held_out": _held_out(path) if task == "text" else None,
    }
    curve = curves.thinned(curves.of_reports(found, task, record["steps"]))
    curves.write(to / "curves" / f"{path.name}.csv", curve, task)
    write_whole(before, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    network = taken(path)
    if network is not None:
        leave(network, path.name, to, record["starts"])
    return record | {"network": network and network.step}


def _told(commit: str | None) -> dict[str, Any]:
    """Of a run without a record of its starts: what the exporter knows, which says that it is so."""
    return made_with() | {"from": 0, "at": None, "commit": commit, "told": "at the export, on the same machine"}


def _held_out(path: Path) -> dict[str, Any] | None:
    from evergrad.paper.heldout import held_out

    return held_out(path)


def _measured(document: dict[str, Any], to: Path) -> None:
    """What was measured of these runs, and with what."""
    if document["measured"]:
        kept = {"written": document["written"], "machine": document["machine"], "measured": document["measured"]}
        write_whole(to / f"{document['experiment']}.json", json.dumps(kept, ensure_ascii=False) + "\n")


def measured(folder: Path | None, name: str) -> dict[str, Any]:
    """Of an experiment, by key; it stands in the place of what was measured of younger networks."""
    path = None if folder is None else folder / "measured" / f"{name}.json"
    return {} if path is None or not path.exists() else json.loads(path.read_text("utf-8"))["measured"]


def records(folder: Path | None) -> list[dict[str, Any]]:
    """All that were exported, each with the `path` of its curve."""
    if folder is None:
        return []
    found = sorted((folder / "curves").glob("*.json"))
    refuse_unless(bool(found), f"--long {folder} has no curves/*.json: make them by `evergrad paper export`.")
    try:
        return [json.loads(p.read_text("utf-8")) | {"path": p.with_suffix(".csv")} for p in found]
    except json.JSONDecodeError as error:
        raise InputError(f"{folder}/curves has a record that is no JSON ({error}): export it again.") from None
