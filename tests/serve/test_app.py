"""The doors of the service."""

import os
import shutil
import signal
import subprocess
import sys
import time

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from evergrad._cli import app as commands
from evergrad.river import OnlineRNNClassifier, OnlineRNNPool, OnlineRNNRegressor
from evergrad.serve import Engine, Keeper, Limits, make_app
from evergrad.serve.actions import predict_and_learn

SMALL = {"units": 4, "seed": 1}


def served(folder, model=None, **options):
    keeper = Keeper(folder, first=lambda: OnlineRNNRegressor(**SMALL) if model is None else model, say=lambda _: None)
    return TestClient(make_app(Engine(keeper), **options))


def samples(count):
    return [({"a": float(i % 7), "b": "x" if i % 2 else "y"}, 0.5 * (i % 7)) for i in range(count)]


def test_the_service_says_what_the_model_says_and_goes_on_where_it_was(tmp_path):
    model, found = OnlineRNNRegressor(**SMALL), []
    expected = [predict_and_learn(model, x, y) for x, y in samples(30)]
    for part in (samples(30)[:18], samples(30)[18:]):
        with served(tmp_path / "s") as client:
            for x, y in part:
                found.append(client.post("/predict_and_learn", json={"x": x, "y": y}).json()["prediction"])
    assert found == expected


def test_many_samples_in_one_request_are_one_after_the_other(tmp_path):
    model = OnlineRNNRegressor(**SMALL)
    expected = [predict_and_learn(model, x, y) for x, y in samples(12)]
    with served(tmp_path / "s") as client:
        done = client.post("/predict_and_learn", json={"samples": [{"x": x, "y": y} for x, y in samples(12)]})
        assert done.json() == {"predictions": expected}
        assert client.post("/predict", json={"x": samples(1)[0][0]}).json().keys() == {"prediction"}
        assert client.get("/report").json()["service"]["samples"]["predict_and_learn"] == 12


def test_chances_of_classes(tmp_path):
    with served(tmp_path / "s", OnlineRNNClassifier(units=4)) as client:
        for x, y in samples(4):
            assert client.post("/learn", json={"x": x, "y": y > 1}).status_code == 200
        found = client.post("/predict", json={"x": {"a": 1.0}}).json()["prediction"]
    assert sum(found.values()) == pytest.approx(1)
    assert found.keys() == {"True", "False"}


def keyed(count):
    return [{"x": x, "y": y, "key": "north" if i % 3 else 7} for i, (x, y) in enumerate(samples(count))]


def test_a_pool_is_asked_by_keys_and_goes_on_exactly_after_a_kill(tmp_path):
    model = OnlineRNNPool(**SMALL)
    expected = [predict_and_learn(model, **each) for each in keyed(30)]
    with served(tmp_path / "s", OnlineRNNPool(**SMALL)) as client:
        found = [client.post("/predict_and_learn", json=each).json()["prediction"] for each in keyed(30)[:10]]
        found += client.post("/predict_and_learn", json={"samples": keyed(30)[10:20]}).json()["predictions"]
        shutil.copytree(tmp_path / "s", tmp_path / "killed")  # no checkpoint yet but the first: all is in the journal
        assert client.post("/learn", json=keyed(1)[0]).status_code == 200
    with served(tmp_path / "killed") as client:
        found += client.post("/predict_and_learn", json={"samples": keyed(30)[20:]}).json()["predictions"]
        assert found == expected
        asked = {"x": samples(1)[0][0], "key": 7}
        assert client.post("/predict", json=asked).json()["prediction"] == model.predict_one(asked["x"], key=7)
        assert client.get("/report").json()["model"]["keys"] == 2


def test_a_key_is_refused_by_who_has_none_and_asked_for_by_a_pool(tmp_path):
    sample = {"x": {"a": 1.0}, "y": 1.0}
    with served(tmp_path / "one") as client:
        done = client.post("/learn", json={**sample, "key": "north"})
        assert done.status_code == 422
        assert "one series without keys" in done.json()["error"]
    with served(tmp_path / "many", OnlineRNNPool(**SMALL)) as client:
        for action in ("learn", "predict_and_learn"):
            done = client.post(f"/{action}", json=sample)
            assert done.status_code == 422
            assert "whose sample it is" in done.json()["error"]
        assert client.post("/predict", json={"x": {"a": 1.0}}).status_code == 422
        assert client.get("/report").json()["service"]["changes"] == 0


WRONG = {
    "no x": ({"y": 1}, 422),
    "no y": ({"x": {"a": 1}}, 422),
    "a list": ([1, 2], 422),
    "nested": ({"x": {"a": {"b": 1}}, "y": 1}, 422),
    "unknown field": ({"x": {"a": 1}, "y": 1, "key": 7}, 422),
    "a word for a number": ({"x": {"a": 1}, "y": "no number"}, 422),
    "no samples": ({"samples": []}, 422),
    "too many": ({"samples": [{"x": {"a": 1}, "y": 1}] * 4}, 413),
    "too large": ({"x": {"a": "x" * 3000}, "y": 1}, 413),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    with served(folder / "s", token="secret", limits=Limits(body=2000, samples=3)) as client:
        yield client


@pytest.mark.parametrize("wrong", WRONG)
def test_bad_requests_are_refused_and_change_nothing(guarded, wrong):
    body, code = WRONG[wrong]
    said = {"Authorization": "Bearer secret"}
    before = guarded.get("/report", headers=said).json()["service"]["changes"]
    assert guarded.post("/learn", json=body, headers=said).status_code == code
    assert guarded.get("/report", headers=said).json()["service"]["changes"] == before


def test_a_body_that_does_not_say_its_size_is_bounded_too(guarded):
    def parts():
        for _ in range(100):
            yield b"x" * 100

    done = guarded.post("/learn", content=parts(), headers={"Authorization": "Bearer secret"})
    assert done.status_code == 413


def test_without_the_token_nothing_is_told(guarded):
    for said in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        for get in ("/report", "/metrics"):
            assert guarded.get(get, headers=said).status_code == 401
        for post in ("/predict", "/learn", "/predict_and_learn"):
            assert guarded.post(post, json={"x": {"a": 1}, "y": 1}, headers=said).status_code == 401
    assert guarded.get("/healthz").json() == {"well": True}
    assert "evergrad" in guarded.get("/").text


def test_prometheus_can_read_the_metrics(guarded):
    text = guarded.get("/metrics", headers={"Authorization": "Bearer secret"}).text
    values = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in values)
    assert 'evergrad_samples_total{action="learn"} 0' in values


def test_features_made_by_the_model_have_names_that_can_be_read(tmp_path):
    with served(tmp_path / "s") as client:
        for x, y in samples(3):
            client.post("/learn", json={"x": x, "y": y})
        assert {"a", "evergrad: last target"} <= {*client.get("/report").json()["model"]["scales"]}


def test_if_the_disk_is_full_nobody_is_told_that_it_was_kept(tmp_path, monkeypatch):
    with served(tmp_path / "s") as client:
        monkeypatch.setattr("evergrad.serve.journal.os.fdatasync", lambda _: (_ for _ in ()).throw(OSError("no space")))
        done = client.post("/learn", json={"x": {"a": 1.0}, "y": 1.0})
        assert done.status_code == 422
        assert "no space" in done.json()["error"]
        assert client.get("/healthz").status_code == 503
        monkeypatch.undo()


def test_bad_options_exit_with_2(tmp_path):
    for wrong in ([], ["--new", "regressor"], ["--new", "tree", "--state", f"{tmp_path}/s"], [f"{tmp_path}/none"]):
        done = CliRunner().invoke(commands, ["serve", *wrong])
        assert done.exit_code == 2, done.output
    assert not (tmp_path / "s").exists()


def started(folder, port):
    command = [sys.executable, "-m", "evergrad", "serve", "--new", "regressor", "--state", folder, "--port", port]
    child = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    for _ in range(600):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200:
                return child
        except httpx.ConnectError:
            time.sleep(0.1)
    child.kill()
    pytest.fail("it does not answer")


@pytest.mark.slow
def test_killed_in_the_middle_nothing_that_was_answered_is_lost(tmp_path, free_port):
    child, answered = started(tmp_path / "s", free_port), 0
    url = f"http://127.0.0.1:{free_port}"
    with httpx.Client(base_url=url, timeout=120) as client:
        for x, y in samples(40):
            answered += client.post("/learn", json={"x": x, "y": y}).status_code == 200
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child = started(tmp_path / "s", free_port)
    assert httpx.get(f"{url}/report", timeout=60).json()["service"]["changes"] == answered == 40
    child.send_signal(signal.SIGTERM)
    assert child.wait(120) in (0, -signal.SIGTERM)
    assert max((tmp_path / "s").glob("*.safetensors")).stem == f"{40:014d}"


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
