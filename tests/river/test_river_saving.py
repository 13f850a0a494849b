"""Stop and go on exactly: save and load, deepcopy, pickle; clone starts anew. Files that cannot be read say why."""

import copy
import json
import math
import os
import pickle
import stat

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import evergrad as eg
from evergrad.river import OnlineRNNClassifier, OnlineRNNForecaster, OnlineRNNRegressor

KINDS = [OnlineRNNRegressor, OnlineRNNClassifier, OnlineRNNForecaster]


def teach(model, first, last):
    """What it predicts on the way."""
    said = []
    for t in range(first, last):
        x, y = {"a": math.sin(t / 3), "c": "xy"[t % 2], 7: float(t)}, math.cos(t / 4)
        if isinstance(model, OnlineRNNForecaster):
            said.append(model.forecast(2, [x, x]))
            model.learn_one(y, x)
        else:
            said.append(model.predict_proba_one(x) if isinstance(model, OnlineRNNClassifier) else model.predict_one(x))
            model.learn_one(x, y > 0 if isinstance(model, OnlineRNNClassifier) else y)
    return said


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def model(request):
    random, windowed = eg.UORO(), eg.OK(rank=2, window=3)
    model = request.param(units=3, seed=1, estimator=windowed if request.param is OnlineRNNRegressor else random)
    teach(model, 0, 30)
    if not isinstance(model, OnlineRNNForecaster):
        model.predict_one({"a": 0.5})  # waits for its target
    return model


def test_every_copy_goes_on_exactly(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    copies = [
        type(model).load(tmp_path / "model.safetensors"),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        model.clone(include_attributes=True),
    ]
    expected = teach(model, 30, 60)
    for other in copies:
        assert repr(other) == repr(model)
        assert teach(other, 30, 60) == expected


def test_a_copy_goes_its_own_way(model):
    other, untouched = copy.deepcopy(model), copy.deepcopy(model)
    teach(other, 30, 40)
    assert teach(model, 30, 40) == teach(untouched, 30, 40)


def test_a_clone_knows_nothing(model):
    fresh = model.clone()
    assert fresh._session is None
    assert repr(fresh) == repr(model)


def test_there_is_no_pickle_in_the_file(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        json.loads(file.metadata()["content"])
    assert all(isinstance(a, np.ndarray) for a in load_file(tmp_path / "model.safetensors").values())


def test_files_that_cannot_be_read_say_why(model, tmp_path):
    path, kind = tmp_path / "model.safetensors", type(model)
    model.save(path)
    whole = path.read_bytes()
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)

    def refused(message):
        with pytest.raises(eg.InputError, match=message):
            kind.load(path)

    path.write_bytes(whole[: len(whole) // 2])
    refused("cut short")
    path.write_bytes(b"")
    refused("cut short")
    save_file(tensors, path, {**metadata, "version": "99"})
    refused("is of version 99 and this evergrad reads version 5")
    save_file(tensors, path)
    refused("it was not written by its save")
    save_file(tensors, path, {**metadata, "content": json.dumps({"class": "Other", "state": {}})})
    refused("its checksum is wrong")
    save_file(dict(list(tensors.items())[1:]), path, metadata)
    refused("its checksum is wrong")
    old = {name: text for name, text in metadata.items() if name != "sha256"}
    save_file(tensors, path, {**old, "content": json.dumps({"class": "Other", "state": {}})})
    refused("holds an Other")
    save_file(dict(list(tensors.items())[1:]), path, old)
    refused("is damaged")
    path.unlink()
    refused("is not a file")


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    model = OnlineRNNRegressor(units=np.int64(3), seed=np.int64(1), estimator=eg.UORO())
    x = {np.int64(3): 1.0, np.str_("a"): np.float32(2)}
    model.learn_one(x, 1.0)
    model.predict_one(x)
    model.save(tmp_path / "m.safetensors")
    other = OnlineRNNRegressor.load(tmp_path / "m.safetensors")
    for t in range(3):
        for one in (model, other):
            one.learn_one(x, float(t))
        assert other.predict_one({3: 0.5}) == model.predict_one({3: 0.5})


def test_an_estimator_that_load_does_not_know_is_refused_by_save(tmp_path):
    class Mine(eg.UORO):
        pass

    model = OnlineRNNRegressor(units=3, seed=0, estimator=Mine())
    model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(eg.InputError, match="with the estimator Mine cannot be saved"):
        model.save(tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_file_may_be_read_by_whom_the_umask_lets(tmp_path):
    before = os.umask(0o027)
    try:
        OnlineRNNRegressor(units=3, seed=0).save(tmp_path / "m.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.safetensors").stat().st_mode) == 0o640


def test_a_failed_save_leaves_the_old_file(tmp_path):
    model = OnlineRNNRegressor(units=3, seed=0, estimator=eg.UORO())
    model.learn_one({"a": 1.0}, 1.0)
    model.save(tmp_path / "m.safetensors")
    before = (tmp_path / "m.safetensors").read_bytes()
    model.learn_one({object(): 1.0}, 1.0)
    with pytest.raises(eg.InputError, match="cannot be saved: name features with strings or numbers"):
        model.save(tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
