"""The comparison: what is fed to the models, what is measured, and the command."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli.streams import app
from evergrad.bench.streams import bench, sets, validate
from evergrad.bench.streams.rivals import Persistence

pytestmark = pytest.mark.optimised


class Diary:
    """Notes what it is told, and predicts how many targets it knows."""

    def __init__(self):
        self.told = []

    def predict_one(self, x):
        self.told.append(("predict", x))
        return sum(what == "learn" for what, _ in self.told)

    def learn_one(self, x, y):
        self.told.append(("learn", (x, y)))


def test_targets_come_when_their_time_has_come():
    model = Diary()
    predictions, seconds = validate.validate(model, ["a", "b", "c", "d"], [1, 2, 3, 4], delay=2)
    assert model.told == [
        ("predict", "a"),
        ("predict", "b"),
        ("learn", ("a", 1)),
        ("predict", "c"),
        ("learn", ("b", 2)),
        ("predict", "d"),
    ]
    assert predictions == [0, 0, 1, 2]
    assert len(seconds) == 4
    assert validate.validate(Diary(), ["a", "b"], [1, 2], delay=0)[0] == [0, 1]


def test_errors():
    assert validate.error([9.0, 1.0, 2.0], [0.0, 2.0, 4.0], 1, False) == 1.5
    assert validate.error([0, 1, 1], [0, 1, 0], 0, True) == pytest.approx(1 / 3)


def test_persistence_on_water_flow_is_what_was_measured_elsewhere():
    stream = sets.water_flow()
    assert len(stream.features) == len(stream.targets) == 1267
    assert stream.targets[:-1] == [x["flow"] for x in stream.features[1:]]
    assert bench.run(stream, "persistence", 0, Persistence(0.0)).error == pytest.approx(0.631, abs=0.001)


def test_files_of_another_folder(tmp_path):
    markers = tmp_path / "respiratory" / "markers"
    markers.mkdir(parents=True)
    rows = "\n".join(f"{i};{i};0,0;1,5;{i},25" for i in range(20))
    (markers / "201205181211-LAC-1-N-320-6.csv").write_text(f'"Frame";"Timestamp";"x";"y";"z"\n{rows}\n')
    (stream,) = sets.streams(tmp_path, ["respiratory"])
    assert (stream.delay, len(stream.targets)) == (5, 15)
    assert stream.features[0] == {"z": 0.25}
    assert stream.targets[0] == 5.25
    with pytest.raises(eg.InputError, match=r"ETTh1\.csv is missing"):
        list(sets.streams(tmp_path, ["ETTh1"]))


@pytest.mark.slow
def test_the_command_writes_table_csv_and_picture(tmp_path):
    called = ["bench", "--only", "AirlinePassengers", "--seeds", "1", "--out", str(tmp_path), "--deep-river", "none"]
    result = CliRunner().invoke(app, called)
    assert result.exit_code == 0, result.output
    assert "deep-river is left out" in result.output
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    errors = {row["model"]: float(row["error"]) for row in rows}
    assert errors["persistence"] == pytest.approx(26.0, abs=0.01)
    assert errors["evergrad"] < errors["persistence"]
    assert errors["evergrad, one by one"] == pytest.approx(errors["evergrad"], rel=1e-3)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["settings"]["processor"]
    assert np.isfinite([row["median_ms"] for row in summary["rows"]]).all()
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_what_there_is_is_written_when_deep_river_fails(tmp_path, monkeypatch):
    row = bench.Result("AirlinePassengers", "persistence", 0, 3, 1.0, 0.1, 0.2, 0.3)
    monkeypatch.setattr(bench, "compare", lambda stream, seeds, wanted: [row])
    called = ["bench", "--only", "AirlinePassengers", "--out", str(tmp_path), "--deep-river", "/bin/false"]
    for _ in range(2):  # the second time into the same folder
        result = CliRunner().invoke(app, called)
        assert result.exit_code == 1, result.output
        assert "deep-river failed" in result.stderr
        assert isinstance(result.exception, SystemExit)
    assert json.loads((tmp_path / "summary.json").read_text())["rows"][0]["model"] == "persistence"
    assert (tmp_path / "results.csv").exists()


def test_what_is_there_is_not_run_again_and_rows_are_the_same_for_all(tmp_path, monkeypatch):
    ran, run = [], bench.run
    monkeypatch.setattr(bench, "run", lambda *given: ran.append(given[1]) or run(*given))
    called = ["bench", "--only", "AirlinePassengers", "--rows", "100", "--out", str(tmp_path), "--deep-river", "none"]
    for models, expected in ((["persistence"], []), (["persistence", "river linear"], ["persistence"])):
        assert ran == expected
        chosen = [word for model in models for word in ("--model", model)]
        assert CliRunner().invoke(app, [*called, *chosen, "--resume"]).exit_code == 0
    assert ran == ["persistence", "river linear"]
    found = bench.read_csv(tmp_path / "results.csv")
    assert [(each.model, each.samples) for each in found] == [("persistence", 100), ("river linear", 100)]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["samples"] for row in summary["rows"]] == [100, 100]


@pytest.mark.parametrize("options", [["--only", "nothing"], ["--only", "Elec2"], ["--data", "no/such/folder"]])
def test_bad_options_exit_with_2(options):
    assert "evergrad: " in _refused(options)


@pytest.mark.parametrize("stream", sets.SHARED)
def test_a_folder_without_the_data_is_refused(stream, tmp_path):
    assert "is missing: --data names the folder" in _refused(["--data", str(tmp_path), "--only", stream])


def _refused(options):
    result = CliRunner().invoke(app, ["bench", *options])
    assert result.exit_code == 2
    return result.output
