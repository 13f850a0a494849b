"""What an experiment is: what to train, what to measure, and what to say about it."""

import abc
import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from evergrad.paper.claims import Claim
from evergrad.paper.plan import Line, Plan
from evergrad.paper.results import Result


@dataclasses.dataclass(frozen=True)
class Picture:
    """A Matplotlib figure, to be saved as `name`.png."""

    name: str
    figure: Any
    caption: str


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table of the page."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Section:
    """An experiment's part of the page."""

    pictures: list[Picture] = dataclasses.field(default_factory=list)
    claims: list[Claim] = dataclasses.field(default_factory=list)
    grids: list[Grid] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)


class Experiment(abc.ABC):
    """One file of evergrad/experiments; settings stand on top of it."""

    name: ClassVar[str]
    title: ClassVar[str]
    released: ClassVar[str | None] = None  # the name of the authors' curves in a --reference folder
    shrinks: ClassVar[bool] = True  # at the quick budget, where nothing is then judged

    def lines(self, plan: Plan) -> list[Line]:
        """What to train. Asked again when all of it is done: a choice may depend on the results."""
        return []

    def measure(self, plan: Plan) -> dict[str, Any]:
        """What to measure when the training is done; every part by `plan.measured`, so that it is made once."""
        return {}

    @abc.abstractmethod
    def section(self, result: Result, reference: Path | None) -> Section:
        """Figures, tables and verdicts, from the results alone."""
