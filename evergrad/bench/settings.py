"""The two settings of the paper that speed is measured at."""

import dataclasses
from typing import Any

import jax
import optax

import evergrad as eg
from evergrad._cells.base import outputs_of
from evergrad._estimators.base import Estimator
from evergrad.bench.undeclared import Undeclared


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network that learns symbols online, with an update by Adam at every step."""

    name: str
    units: int
    batch: int
    rank: int
    symbols: int
    cell: str = "RHN"
    window: int = 16  # of OK, where it has one
    layers: int = 1
    undeclared: bool = False  # whether the cell says that it is a Kronecker cell

    @property
    def gates(self) -> int:
        return len(getattr(eg, self.cell).gates)

    def ok(self, window: int | None = None) -> eg.OK:
        """The paper's estimator at this setting; with `window=0` as the paper has it."""
        return eg.OK(rank=self.rank, window=self.window if window is None else window)

    def learner(self, estimator: Estimator) -> eg.Learner:
        cell_key, readout_key = jax.random.split(jax.random.key(0))
        cell = self._cell(cell_key)
        model = eg.Model(cell, eg.Softmax(units=outputs_of(cell), classes=self.symbols, key=readout_key))
        return eg.Learner(model, estimator, optax.adam(RATE), clip=1.0)

    def _cell(self, key: jax.Array) -> eg.Cell:
        sizes = [self.symbols] + [self.units] * (self.layers - 1)
        keys = jax.random.split(key, self.layers)
        kind = getattr(eg, self.cell)
        cells = [kind(inputs=size, units=self.units, key=k) for size, k in zip(sizes, keys, strict=True)]
        if self.layers > 1:
            return eg.Stack(*cells)
        return Undeclared(cells[0]) if self.undeclared else cells[0]

    def data(self, steps: int) -> tuple[Any, Any]:
        """Random symbols x and y: what they are makes no difference to the time."""
        keys = jax.random.split(jax.random.key(1))
        x, y = (jax.random.randint(key, (steps, self.batch), 0, self.symbols) for key in keys)
        return x, y


RATE = 10**-3.5  # of learning
COPY = Setting("copy", units=128, batch=16, rank=16, symbols=4)
PTB = Setting("ptb", units=256, batch=32, rank=8, symbols=50)
