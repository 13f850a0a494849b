"""A target that stands still for a while says little of what it will do, and nothing is unlearned for good."""

import numpy as np
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNRegressor

MOVES = 400


def series(before, still):
    """Changes that swing back, of which four fifths can be foretold: moving, standing still, and moving again."""
    noise = np.random.default_rng(0).normal(size=before + MOVES)
    changes = np.zeros(before + MOVES)
    for t in range(1, len(changes)):
        changes[t] = -0.8 * changes[t - 1] + 0.3 * noise[t]
    return np.cumsum(np.concatenate([changes[:before], np.zeros(still), changes[before:]])) + 5


def against_persistence(y):
    """The mean absolute error of the last 300 samples, 100 after it moves again, over that of persistence."""
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.RTRL())
    predictions = model.run(y[:-1, None], y[1:])
    ours, persistence = np.abs(y[1:] - predictions), np.abs(np.diff(y))
    return ours[-(MOVES - 100) :].mean() / persistence[-(MOVES - 100) :].mean()


@pytest.mark.parametrize(("before", "still"), [(0, 9), (0, 12), (0, 100), (300, 3000), (300, 30_000)])
def test_it_learns_on_within_100_samples(before, still):
    """Eleven equal targets at the start were once enough to stay persistence for good: 1.000 here."""
    assert against_persistence(series(before, still)) < 0.8
