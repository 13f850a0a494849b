"""Every step ahead forecast directly, with what the series did a season before."""

import copy

import numpy as np
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNForecaster, seasons

SETTINGS = {"units": 3, "seed": 0}


def test_what_was_a_season_before_each_step():
    values = np.arange(10.0, 20.0)  # the newest, 19, is at time 9
    found = seasons.columns(values, 9, (4,), 5)
    before = found[("evergrad", "season 4")][0] + 19
    assert before.tolist() == [16, 17, 18, 19, 16], "the fifth step is a season and one ahead: two seasons back"
    sine = found[("evergrad", "sine 1 of 4")][0]
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * np.arange(10, 15) / 4), atol=1e-12)
    assert np.isnan(seasons.columns(values[-2:], 9, (4,), 5)[("evergrad", "season 4")][0, 0]), "not known yet"


def test_a_season_is_learned_that_persistence_misses():
    rng = np.random.default_rng(0)
    pattern = rng.normal(size=6)
    series = np.tile(pattern, 60) + 0.1 * rng.normal(size=360)
    model, missed, naive = OnlineRNNForecaster(**SETTINGS, season=(6,), horizon=4), [], []
    for t, y in enumerate(series[:-4]):
        model.learn_one(y)
        if t >= 150:
            said = model.forecast(4)
            missed.append(np.abs(np.array(said) - series[t + 1 : t + 5]).mean())
            naive.append(np.abs(series[t - 5 : t - 1] - series[t + 1 : t + 5]).mean())
    assert np.mean(missed) < np.mean(naive)


def test_nothing_of_the_future_is_used_and_copies_go_on(tmp_path):
    series = np.sin(np.arange(40) / 2).tolist()
    model = OnlineRNNForecaster(**SETTINGS, season=[5, 3], horizon=3)
    assert model.forecast(3) == [0, 0, 0]
    for y in series[:20]:
        model.learn_one(y, {"kind": "a", "v": 2 * y})
    model.save(tmp_path / "model.safetensors")
    copies = copy.deepcopy(model), OnlineRNNForecaster.load(tmp_path / "model.safetensors")
    said = model.forecast(3)
    for each in (model, *copies):
        assert each.forecast(3) == said
        for y in series[20:]:
            each.learn_one(y, {"kind": "b", "v": 2 * y})
    assert copies[0].forecast(2) == copies[1].forecast(2) == model.forecast(2)
    assert model.clone().season == (3, 5)


def test_what_cannot_be_is_refused():
    with pytest.raises(eg.InputError, match="no more than 64 steps"):
        OnlineRNNForecaster(horizon=65)
    with pytest.raises(eg.InputError, match="season"):
        OnlineRNNForecaster(season=(1,))
    with pytest.raises(eg.InputError, match="larger horizon"):
        OnlineRNNForecaster(season=(4,)).forecast(5)
