from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

import evergrad as eg
from evergrad._core.checks import refuse_unless
from evergrad.river import arrays, history, whole
from evergrad.river.base import StreamLearner
from evergrad.river.change import ChangeLearner, check_number


class OnlineRNNMultiTargetRegressor(ChangeLearner, base.MultiTargetRegressor):
    """Recurrent network that learns several numeric targets at once from every sample as it comes.

    Each target is predicted as `OnlineRNNRegressor` does it, with a linear part, a mixture and scales of its own, by one network for
    all of them; the newest change of every target is a feature for all. A target that is missing from y, None or NaN is not learned
    from. The targets are those of the first y.

    Parameters
    ----------
    units
        Size of the hidden state, of each target.
    cell, estimator, optimiser, learning_rate, clip, seed, layers, restart
        As for `OnlineRNNRegressor`.

    Examples
    --------
    >>> from evergrad.river import OnlineRNNMultiTargetRegressor
    >>> model = OnlineRNNMultiTargetRegressor(units=4, seed=0)
    >>> for now in range(10):
    ...     model.learn_one({"reading": now % 4}, {"next": (now + 1) % 4, "same": now % 4})
    >>> sorted(model.predict_one({"reading": 0}))
    ['next', 'same']
    """

    def __init__(
        self,
        units: int = 48,
        cell: str | None = None,
        estimator: eg.Estimator | None = None,
        optimiser: str = "adam",
        learning_rate: float | None = None,
        clip: float = 1.0,
        seed: int | None = None,
        layers: int = 1,
        restart: bool = False,
    ):
        rest = optimiser, learning_rate, clip, seed, layers
        StreamLearner.__init__(self, units, cell, estimator, *rest, restart=restart)

    def _begin(self) -> None:
        ChangeLearner._begin(self)
        self._names: list[Hashable] = []

    @whole.changes
    def learn_one(self, x: dict[Hashable, Any], y: dict[Hashable, float]) -> None:
        refuse_unless(isinstance(y, dict) and bool(y or self._names), f"y is {y!r}: pass a dict of targets.")
        names = self._names or list(y)
        unknown = [name for name in y if name not in names]
        refuse_unless(
            not unknown, f"y has the targets {unknown}, and at first there were {names}: use a clone() for others."
        )
        targets = np.array([self._target(y.get(name)) for name in names])
        self._names, self.lanes = names, len(names)
        self._learn_rows(self._columns(x), targets)

    @whole.changes
    def predict_one(self, x: dict[Hashable, Any]) -> dict[Hashable, float]:
        """Nothing before the first targets."""
        found = self._columns(x)
        if not self._names:
            return {}
        return dict(zip(self._names, self._predict_rows(found, len(self._names)).tolist(), strict=True))

    def _target(self, value):
        return np.nan if arrays.is_missing(value) else check_number(value, self._without_target)

    def _columns(self, x):
        """The same of every target, [1, targets]: the features, and the newest change of each target."""
        found, targets = self._slots.check(x), len(self._names)
        known = self._targets_known(targets)
        changes = dict(
            zip(((history.OWN, f"change of {name}") for name in self._names), known[:, -1] - known[:, -2], strict=True)
        )
        return {
            name: np.full((1, targets), value, object if isinstance(value, str) else float)
            for name, value in {**found, **changes}.items()
        }
