"""A goal beside what was measured."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """A goal and what was measured: `measured` is at most, or at least, `bound`."""

    number: str  # the part of the goal's name that groups rows
    what: str
    measured: float
    bound: float | None  # None: reported, without a goal
    at_least: bool = False
    unit: str = "×"
    milliseconds: dict[str, float] = dataclasses.field(default_factory=dict)  # a step of what was compared

    @property
    def passed(self) -> bool | None:
        if self.bound is None:
            return None
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound
