"""Looking at a run under way: how far back its gradient looks now, a line of reach.jsonl each time."""

from typing import Any

import jax

from evergrad._core.files import write_whole
from evergrad._training.build import Job
from evergrad._training.folder import Folder
from evergrad._training.reports import line, rows
from evergrad.lab import subject
from evergrad.lab.lags import reach

STEPS, STREAMS, SAMPLES = 400, 4, 16


def watch_reach(folder: Folder) -> Any:
    """Who looks, for the loop to call: measures on a stretch of the task's streams, writes a line, gives back the sentence."""

    def watch(job: Job, progress: Any) -> str:
        steps = STEPS if job.task.steps is None else min(STEPS, job.task.steps)
        chosen = subject.under_way(job.settings, progress.state.model, progress.position, steps=steps, batch=STREAMS)
        data, key = chosen.data, jax.random.key(job.settings.seed)
        found = reach(chosen.model, data.x, data.y, data.reset, weights=data.weight, samples=SAMPLES, key=key)
        kept = [row for row in rows(folder.reach) if row["step"] < progress.step]  # after a resume some come again
        about = {"step": progress.step, "horizon_99": found.horizon(), "horizon_50": found.horizon(0.5)}
        _write(folder, [*kept, about | {"most": found.most}])
        return str(found)

    return watch


def _write(folder: Folder, found: list[dict[str, Any]]) -> None:
    write_whole(folder.reach, "".join(line(row) for row in found))
