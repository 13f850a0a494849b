from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

from evergrad._core.checks import refuse_unless
from evergrad.river import bands
from evergrad.river.regressor import OnlineRNNRegressor


class AnomalyDetector(base.SupervisedAnomalyDetector):
    """Scores a target by how far out it is in the distribution that a regressor expects.

    The score is the coverage of the interval that just holds the target: 0 in the middle, 0.9 where nine in ten are nearer,
    towards 1 for what was never seen. On any stream about a tenth of the scores are above 0.9, since intervals are calibrated
    online.

    Parameters
    ----------
    regressor
        That predicts the target; None is `OnlineRNNRegressor()`.

    Examples
    --------
    >>> from evergrad.river import AnomalyDetector, OnlineRNNRegressor
    >>> detector = AnomalyDetector(OnlineRNNRegressor(units=4, seed=0))
    >>> for now in range(20):
    ...     detector.learn_one({"reading": now % 4}, (now + 1) % 4)
    >>> 0 <= detector.score_one({"reading": 0}, 100.0) <= 1
    True
    """

    def __init__(self, regressor: OnlineRNNRegressor | None = None):
        refuse_unless(
            regressor is None or isinstance(regressor, OnlineRNNRegressor),
            f"AnomalyDetector(regressor={regressor!r}) needs an OnlineRNNRegressor, or None for one with its defaults.",
        )
        self.regressor = OnlineRNNRegressor() if regressor is None else regressor

    def learn_one(self, x: dict[Hashable, Any], y: float) -> None:
        self.regressor.learn_one(x, y)

    def score_one(self, x: dict[Hashable, Any], y: float) -> float:
        """Shows the sample to the regressor, as its `predict_one` does. 0 as long as it knows no spread."""
        levels = np.array(list(self.regressor.predict_quantiles_one(x, bands.LEVELS).values()))
        if not levels[-1] > levels[0]:
            return 0.0
        level = float(bands.level_of(np.array(float(y)), levels))
        return abs(2 * level - 1)
