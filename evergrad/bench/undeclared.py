"""The general form against the fast one."""

import equinox as eqx

from evergrad._cells.base import Cell, KroneckerCell


class Undeclared(Cell):
    """A Kronecker cell that does not say that it is one: its linear map is found, and its derivatives are taken as any cell's."""

    inner: KroneckerCell
    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)

    def __init__(self, inner: KroneckerCell):
        self.inner, self.inputs, self.units = inner, inner.inputs, inner.units

    def initial(self):
        return self.inner.initial()

    def step(self, state, x):
        return self.inner.step(state, x)

    def output(self, state):
        return self.inner.output(state)
