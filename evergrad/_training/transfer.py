"""A run without its folder: what it takes to go on elsewhere, but for the influence, as plain arrays by name.

Weights, optimiser, hidden states, random keys and the task's position are small; the influence and the window, which are large,
begin anew, as after a divergence. Taken at the last report, so that the reports before it and after it join.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import all_finite
from evergrad._training.build import Job, make_job, takes_kernels
from evergrad._training.checkpoint import CheckpointError, Checkpoints, by_name, check_form, put_back
from evergrad._training.divergence import Diverged, without_influence
from evergrad._training.folder import Folder, check_free, create, open_run
from evergrad._training.loop import Progress, form
from evergrad._training.reports import line, rows
from evergrad._training.run import load
from evergrad._training.settings import Settings


class Network(NamedTuple):
    """At a report, which is the last of `reports`; `settings` are spelt out, and `data` has the hashes of what was read."""

    settings: Settings
    data: list[str]
    arrays: dict[str, np.ndarray]
    reports: list[dict[str, Any]]
    seconds: float  # of training until then

    @property
    def step(self) -> int:
        return self.reports[-1]["step"]


def taken(path: Path) -> Network | None:
    """From the folder of a run, which may be at work; None before its first report in a checkpoint, or if it diverged."""
    folder = open_run(path)
    if not any(folder.checkpoints.glob("[0-9]*")):
        return None
    try:
        job, progress = load(folder)
    except Diverged:
        return None
    state, position = progress.back
    until = [row for row in rows(folder.metrics) if row["step"] <= int(state.time)]
    if not until or until[-1]["step"] != int(state.time):
        return None
    arrays = {name: np.asarray(array) for name, array in by_name(_tree(state, position)).items()}
    seconds = sum(row["seconds"] for row in rows(folder.speed) if row["step"] <= int(state.time))
    return Network(job.settings, hashes(job), arrays, until, seconds)


def hashes(job: Job) -> list[str]:
    """Of the texts or files of a run, wherever they lie."""
    return sorted(job.task.fingerprints.values())


def put(network: Network, path: Path, half: Path) -> None:
    """A new run's folder, from which `resume` goes on; made in `half`, on the same disk, and then moved whole."""
    check_free(path)
    job = make_job(network.settings)
    refuse_unless(hashes(job) == network.data, "its data are not those that it was trained on: give the same ones.")
    progress = _progress(job, network)
    shutil.rmtree(half, ignore_errors=True)
    folder = create(half, job.settings, job.task.fingerprints, job.task.symbols, takes_kernels(job))
    speed = {"step": network.step, "seconds": network.seconds, "steps_per_second": None, "memory_mib": None}
    folder.metrics.write_text("".join(map(line, network.reports)), encoding="utf-8")
    folder.speed.write_text(line(speed), encoding="utf-8")
    _save(folder, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    half.rename(path)


def _progress(job: Job, network: Network) -> Progress:
    like = _tree(*form(job)["back"])
    try:
        check_form(by_name(like), network.arrays, network.arrays)
    except CheckpointError as error:
        raise InputError(f"its arrays cannot be used: {error}") from None
    found = put_back(like, {name: jnp.asarray(array) for name, array in network.arrays.items()})
    refuse_unless(int(found["state"].time) == network.step, "its arrays are of another step than its reports.")
    refuse_unless(bool(all_finite(found["state"].model)), "its weights are not all finite.")
    state, position = found["state"], found["position"]
    resets = (network.reports[-1].get("influence_resets") or 0) + 1
    back = jax.tree.map(lambda a: jnp.array(a, copy=True), (state, position))
    return Progress(without_influence(job.learner, state), position, back, network.step, influence_resets=resets)


def _tree(state: Any, position: Any) -> dict[str, Any]:
    return {"state": state, "position": position}


def _save(folder: Folder, progress: Progress) -> None:
    checkpoints = Checkpoints(folder.checkpoints, owner=folder.identity)
    try:
        checkpoints.save(progress.step, progress.arrays(), progress.notes())
        checkpoints.wait()
    finally:
        checkpoints.close()
