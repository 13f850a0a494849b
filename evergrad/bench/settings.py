"""The two settings of the paper that speed is measured at."""

import dataclasses
from typing import Any

import jax
import optax

import evergrad as eg
from evergrad.estimators.base import Estimator


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

    def ok(self, window: int | None = None) -> eg.OK:
        """The paper's estimator at this setting; with `window=0` as the paper has it."""
        return eg.OK(rank=self.rank, window=self.window if window is None else window)

    def learner(self, estimator: Estimator) -> eg.Learner:
        cell_key, readout_key = jax.random.split(jax.random.key(0))
        cell = getattr(eg, self.cell)(inputs=self.symbols, units=self.units, key=cell_key)
        model = eg.Model(cell, eg.Softmax(units=self.units, classes=self.symbols, key=readout_key))
        return eg.Learner(model, estimator, optax.adam(RATE), clip=1.0)

    def data(self, steps: int) -> tuple[Any, Any]:
        """Random symbols x and y: what they are makes no difference to the time."""
        keys = jax.random.split(jax.random.key(1))
        return tuple(jax.random.randint(key, (steps, self.batch), 0, self.symbols) for key in keys)


RATE = 10**-3.5  # of learning
COPY = Setting("copy", units=128, batch=16, rank=16, symbols=4)
PTB = Setting("ptb", units=256, batch=32, rank=8, symbols=50)
