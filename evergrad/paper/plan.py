"""What is to be run: lines of a figure, each some training runs, at one of four budgets."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergrad._core.files import write_whole
from evergrad._training.reports import rows
from evergrad._training.settings import flag
from evergrad._training.signals import Stop
from evergrad.paper.curves import Curve, of_reports

BUDGETS = {
    "quick": "minutes: networks, ranks and horizons shrunk, to see that everything works",
    "desk": "hours on two cores: the paper's networks, fewer steps and seeds",
    "long": "days on one core: the claims that cost least first, at the paper's own number of steps where that can be had",
    "full": "the paper's own size",
}
PAPERS_START = {"initial": "normal", "schedule": "constant"}  # said when a run starts, no part of what it is known by


class Stopped(Exception):
    """A signal asked to stop."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run: `evergrad train TASK` with these settings, to so many steps at least."""

    task: str
    settings: dict[str, Any]
    steps: int

    @property
    def id(self) -> str:
        """The same for the same settings, whatever the steps, so that experiments share runs and budgets go on."""
        s = self.settings
        parts = ("rank", "copies", "diagonal_rank", "horizon", "window", "mix")
        estimator = "".join(f"-{p[0]}{s[p]}" for p in parts if s.get(p) is not None)
        digest = hashlib.sha256(json.dumps([self.task, s], sort_keys=True).encode()).hexdigest()[:6]
        return f"{self.task}-n{s['units']}-b{s['batch']}-{s['estimator']}{estimator}-s{s['seed']}-{digest}"

    def arguments(self) -> list[str]:
        """Of `evergrad train`."""
        said = {name: value for name, value in (PAPERS_START | self.settings).items() if value is not None}
        words = [word for name, value in said.items() for word in (flag(name), str(value))]
        return ["train", self.task, *words, "--steps", str(self.steps)]


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a figure: the same settings with several seeds, from the `first` on.

    A `search` line only helps to choose a rate, and that of a `best` rate was so chosen. At the long budget, lines have
    their `turn`.
    """

    label: str
    task: str
    settings: dict[str, Any]
    steps: int
    seeds: int
    search: bool = False
    best: bool = False
    first: int = 0
    turn: int = 0

    def runs(self) -> list[Run]:
        seeds = range(self.first, self.first + self.seeds)
        return [Run(self.task, self.settings | {"seed": seed}, self.steps) for seed in seeds]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A budget, and where things are. In the `background`: one run at a time, on one core, at a low priority."""

    budget: str
    out: Path
    data: str | None = None
    seed_count: int | None = None
    jobs: int = 1
    stop: Stop = dataclasses.field(default_factory=Stop)
    say: Callable[[str], None] = print
    background: bool = False
    exported: Path | None = None  # a folder of `evergrad paper export`: what was begun there is gone on with

    @property
    def quick(self) -> bool:
        return self.budget == "quick"

    def seeds(self, usual: int) -> int:
        return usual if self.seed_count is None else self.seed_count

    def path(self, run: Run) -> Path:
        return self.out / "runs" / run.id

    def log(self, run: Run) -> Path:
        return self.out / "logs" / f"{run.id}.log"

    def starts(self, run: Run) -> Path:
        """With what a run was started, each time."""
        return self.out / "starts" / f"{run.id}.jsonl"

    def diverged(self, run: Run) -> Path:
        """A note of why a run ended early; taken away, the run is tried again."""
        return self.out / "runs" / f"{run.id}.diverged"

    def reached(self, run: Run) -> int:
        """Steps that have been reported."""
        return next((row["step"] for row in reversed(rows(self.path(run) / "metrics.jsonl"))), 0)

    def trained(self, run: Run) -> dict[str, Any]:
        """What tells a trained network from others, those of the same settings and another program included."""
        last = next(reversed(rows(self.path(run) / "metrics.jsonl")), {"step": 0, "loss": None})
        return {"run": run.id, "step": last["step"], "loss": last["loss"]}

    def finished(self, run: Run) -> bool:
        return self.reached(run) >= run.steps or self.diverged(run).exists()

    def curve(self, run: Run, steps: int | None = None) -> Curve:
        """What the run is about (length, bits per character), as far as it has come, or up to a step."""
        return of_reports(rows(self.path(run) / "metrics.jsonl"), run.task, run.steps if steps is None else steps)

    def measured(self, name: str, settings: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """A measurement, made unless it was made before with the same settings."""
        path = self.out / "measured" / self.budget / f"{name}.json"
        settings = json.loads(json.dumps(settings))
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            if document["settings"] == settings:
                return document["result"]
        self.check()
        self.say(f"measuring {name}")
        started = time.monotonic()
        result = measure()
        document = {"settings": settings, "seconds": round(time.monotonic() - started, 1), "result": result}
        write_whole(path, json.dumps(document, ensure_ascii=False) + "\n")
        self.say(f"measured {name} in {document['seconds']:.0f} s")
        return result

    def check(self, *_: Any) -> None:
        """Raises Stopped if a signal has come; long measurements call it now and then."""
        if self.stop.signal is not None:
            raise Stopped

    def measured_seconds(self, experiment: str) -> float:
        """What the measurements of an experiment have taken."""
        found = (self.out / "measured" / self.budget).glob(f"{experiment}-*.json")
        return sum(json.loads(path.read_text("utf-8"))["seconds"] for path in found)
