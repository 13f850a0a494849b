from typing import ClassVar

from evergrad._estimators.base import Estimator
from evergrad._estimators.nothing import Nothing
from evergrad._pasts.window import Window


class Fixed(Estimator):
    """No gradient for the cell at all, which stays as it was drawn: a reservoir. Only the readout learns.

    With `eg.RLS` it is an echo state network, the baseline that people with streams have. Reference: Jaeger 2001.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=3, units=8, key=key, initial="orthogonal:0.9"), eg.RLS(8, 1))
        >>> learner = eg.Learner(model, eg.Fixed(), optax.sgd(0.0))
    """

    recommended: ClassVar[str] = "nothing that trains the cell fits."
    trains_cell: ClassVar[bool] = False

    @property
    def past(self):
        return Window(0)

    @property
    def influence(self):
        return Nothing()
