"""The tasks: each is made for a lag, and its best possible loss is known."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax

import evergrad as eg
from evergrad._cells.base import outputs_of
from evergrad._core.sources import Source
from evergrad._registry import CELLS
from evergrad._tasks.add import Add
from evergrad._tasks.chain import Chain
from evergrad._tasks.cue import CUES, INPUTS, Cue, CuePosition
from evergrad._tasks.repeat import Repeat
from evergrad._tasks.rotation import Rotation
from evergrad._tasks.trace import Trace
from evergrad.lab.balance import Balance, BalanceCell, Itself

BALANCE = "balance"  # the cell of influence balancing, which is a part of the task


@dataclasses.dataclass(frozen=True)
class Made:
    """A task at one lag. `longest` is the longest time that anything has to be held, by which weights start."""

    source: Any
    longest: int
    inputs: int
    classes: int  # 0: `outputs` numbers are predicted
    outputs: int
    optimum: float
    ignorance: float

    def excess(self, loss: float) -> float:
        """How far a loss per scored step is above the optimum, in units of how far that of knowing nothing is."""
        return (loss - self.optimum) / (self.ignorance - self.optimum)

    def model(self, cell: str, units: int, key: jax.Array) -> eg.Model:
        """The same weights for the same key, whatever estimator trains them."""
        if cell == BALANCE:
            return eg.Model(BalanceCell(self.longest, self.longest + 3), Itself())
        cell_key, readout_key = jax.random.split(key)
        made = CELLS[cell].load()(self.inputs, units, key=cell_key, initial=self.initial(cell))
        seen = outputs_of(made)
        if self.classes:
            return eg.Model(made, eg.Softmax(seen, self.classes, key=readout_key, initial="fan_in"))
        return eg.Model(made, eg.Linear(seen, self.outputs, key=readout_key, initial="fan_in"))

    def initial(self, cell: str) -> str:
        """How the cell's weights start: with memories of up to the longest lag, or where nothing is gated, of norm 1."""
        return "orthogonal:1" if "ungated" in CELLS[cell].tags else f"chrono:{max(3, self.longest)}"


@dataclasses.dataclass(frozen=True)
class Challenge:
    """`holds` says what has to be held, which tells tasks that turn the lag alone from those that ask for more."""

    about: str
    holds: str
    make: Callable[[int], tuple[Any, int]]  # the source of a lag, and its longest lag
    cells: tuple[str, ...] | None = None  # that it can be tried with, where not all

    def at(self, lag: int) -> Made:
        source, longest = self.make(lag)
        if isinstance(source, Cue):
            return Made(source, longest, INPUTS, CUES, 0, 0.0, math.log(CUES))
        sizes = source.inputs, source.classes, source.outputs
        return Made(source, longest, *sizes, source.optimum(), source.ignorance())


def scored(position: Any) -> int:
    """Steps of all streams that have had a target so far."""
    return int(position.asked if isinstance(position, CuePosition) else position.scored)


def _cue(lag: int) -> tuple[Source, int]:
    return Cue(gap=lag, gap_to=lag * 3 // 2), lag * 3 // 2


def _chain(lag):
    return Chain(lag), lag


def _copy(lag):
    return Repeat(length=lag), lag


def _gap(lag):
    length = min(4, lag)
    return Repeat(length=length, gap=lag - length), lag


def _add(lag):
    return Add(t1=max(1, lag // 2), t2=max(2, lag)), lag


def _trace(lag):
    """Discounted so slowly that a reward is worth something from the pattern on."""
    longest = lag * 5 // 4
    return Trace(isi=lag, isi_to=longest, iti=10, iti_to=20, discount=1 - 1 / longest), longest


def _rotation(lag):
    return Rotation(dimensions=4, episode=lag), lag


def _balance(lag):
    """So many units are driven up, and three more down behind them."""
    return Balance(), lag


CHALLENGES = {
    "cue": Challenge("a cue, distractors, and the question which it was", "one bit", _cue),
    "chain": Challenge("MemoryChain: a bit, and the question which it was", "one bit", _chain),
    "gap": Challenge("copy with a gap: four bits, said again in order", "four bits and their order", _gap),
    "copy": Challenge("copy without a gap: as many bits as the lag is long", "as many bits as the lag", _copy),
    "add": Challenge("Add(t1, t2): a coin that depends on two inputs of long ago", "as many bits as the lag", _add),
    "trace": Challenge("trace patterning: is this pattern followed by a reward?", "one bit and the time", _trace),
    "rotation": Challenge("rotation memory: a vector, turned at every step", "four numbers", _rotation),
    "balance": Challenge(
        "influence balancing: near and far effect have opposite signs", "nothing", _balance, (BALANCE,)
    ),
}
