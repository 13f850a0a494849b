"""Several targets at once, as river's multi-target regressors have them."""

import copy
import math

import numpy as np
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNMultiTargetRegressor

SETTINGS = {"units": 3, "seed": 0}


def sample(t):
    """One target swings, the other follows it a step later, which only the first one's past foretells."""
    swing = math.sin(t / 2) + math.sin(t / 0.7)
    return {"v": math.cos(t / 2)}, {"a": swing, "b": 10 * (math.sin((t - 1) / 2) + math.sin((t - 1) / 0.7))}


def test_each_target_is_learned_in_its_own_unit():
    model, missed, still = OnlineRNNMultiTargetRegressor(**SETTINGS), [], []
    assert model.predict_one({"v": 1.0}) == {}
    last = None
    for t in range(200):
        x, y = sample(t)
        said = model.predict_one(x)
        if t > 60:
            missed.append([abs(said[name] - y[name]) for name in y])
            still.append([abs(last[name] - y[name]) for name in y])
        model.learn_one(x, y)
        last = y
    assert (np.mean(missed, 0) < 0.8 * np.mean(still, 0)).all()


def test_missing_targets_files_and_what_is_refused(tmp_path):
    model = OnlineRNNMultiTargetRegressor(**SETTINGS)
    for t in range(10):
        x, y = sample(t)
        model.learn_one(x, {"a": y["a"], "b": None if t % 3 else y["b"]} if t else y)
    model.save(tmp_path / "model.safetensors")
    said = model.predict_one({"v": 0.5})
    assert OnlineRNNMultiTargetRegressor.load(tmp_path / "model.safetensors").predict_one({"v": 0.5}) == said
    assert copy.deepcopy(model).predict_one({"v": 0.5}) == said
    with pytest.raises(eg.InputError, match="at first there were"):
        model.learn_one({"v": 0.5}, {"c": 1.0})
    with pytest.raises(eg.InputError, match="a dict of targets"):
        model.learn_one({"v": 0.5}, 1.0)
