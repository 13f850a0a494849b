"""What an estimator is."""

import abc
from typing import ClassVar

import equinox as eqx

from evergrad._cells.base import Cell
from evergrad._core.influence import Influence
from evergrad._pasts.base import Past

RANKS = tuple(2**i for i in reversed(range(10)))  # that the planner tries, the largest first
WINDOWS = (64, 32, 16, 8, 4, 0)


class Estimator(eqx.Module):
    """A way to have gradients: a past, which is remembered exactly, in front of an influence of everything older.

    A subclass has its settings for fields and says which two things they make. `recommended` is what the planner says when
    it recommends one.

    Examples:
        >>> isinstance(eg.OK(rank=4), eg.Estimator)
        True
        >>> eg.TBPTT(horizon=8).unbiased
        False
    """

    recommended: ClassVar[str] = "it fits."
    trains_cell: ClassVar[bool] = True  # False leaves the cell as it is, whatever the optimiser would do to it

    @classmethod
    def choices(cls, cell: Cell) -> "list[Estimator]":
        """What the planner chooses from where there is a budget, the most wanted first."""
        return cls.usual(cell)

    @classmethod
    def usual(cls, cell: Cell) -> "list[Estimator]":
        """The same without a budget: the first that the cell can be used with is taken."""
        return [cls()]

    @property
    @abc.abstractmethod
    def past(self) -> Past:
        """What is remembered of the newest steps, and how a gradient is carried back through it."""

    @property
    @abc.abstractmethod
    def influence(self) -> Influence:
        """The approximation of what is older."""

    @property
    def unbiased(self) -> bool:
        """Whether the gradient is right in the mean, whatever the cell; the tests hold it to this."""
        return self.past.unbiased(self.influence)

    def exact_for(self, cell: Cell) -> bool:
        """Whether the gradient is exact on this cell, whatever its weights are; the tests hold it to this too."""
        return not cell.layerwise and self.past.complete and self.influence.exact_for(cell)

    def check(self, cell: Cell) -> None:
        """Refuses a cell that this estimator cannot be used with, or a setting that is no use with that cell."""
        self.influence.check(cell, repr(self))
