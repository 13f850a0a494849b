"""Exported networks: a run whose folder is gone goes on from them, and says that its influence began anew."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from rich.console import Console

import evergrad as eg
from evergrad._core.files import read_checked, write_checked
from evergrad._training import transfer
from evergrad._training.divergence import influence_norm
from evergrad._training.folder import open_run
from evergrad._training.resolve import resolve
from evergrad._training.run import load, resume, train
from evergrad.paper import commands, curves, long, networks
from evergrad.paper.plan import PAPERS_START, Line, Plan
from evergrad.paper.record import starts
from evergrad.paper.runner import run_all
from tests.training_helpers import as_on_the_command_line, environment, reports

__all__ = ["as_on_the_command_line"]  # a fixture
SIZE = {"cell": "rhn", "units": 8, "batch": 4, "learning_rate": 0.01, "clip": 1.0, "report": 20}
TBPTT = SIZE | {"estimator": "tbptt", "horizon": 4, "stride": 4}
OK = SIZE | {"estimator": "ok", "rank": 2, "window": 4}


def line(settings, steps):
    return Line("tiny", "copy", settings, steps, 1)


def trained(plan, settings, steps):
    """In this process: the folder of a line's run."""
    (run,) = line(settings, steps).runs()
    made = resolve("copy", PAPERS_START | run.settings | {"steps": steps})
    train(made, plan.path(run), Console(quiet=True))
    return run


def weights(path):
    return load(open_run(path))[1].state.model


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@pytest.fixture
def plan(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return Plan("desk", tmp_path / "first", jobs=1, say=lambda text: None)


@pytest.fixture
def exported(plan, tmp_path):
    """Of a TBPTT run of 40 steps, whose strides end at its reports, so that nothing is lost with the influence."""
    trained(plan, TBPTT, 40)
    long.export(plan.out, tmp_path / "long", commit="abc")
    return tmp_path / "long"


def elsewhere(plan, exported):
    return dataclasses.replace(plan, out=plan.out.parent / "second", exported=exported)


def gone_on(plan, network, run):
    """In this process, from a network: the folder."""
    transfer.put(network, plan.path(run), plan.out / "half")
    resume(plan.path(run), {}, Console(quiet=True))
    return plan.path(run)


def test_a_run_goes_on_as_if_nothing_had_been_and_a_forgotten_momentum_is_seen(plan, exported):
    """Weights and reports are those of the run that was never stopped. The planted error: one part of the optimiser."""
    (run,) = line(TBPTT, 80).runs()
    whole, second, third = (dataclasses.replace(plan, out=plan.out.parent / name) for name in ("whole", "2", "3"))
    trained(whole, TBPTT, 80)
    network = networks.found(exported, run).network
    path = gone_on(second, network, run)
    assert same(weights(path), weights(whole.path(run)))
    new, old = reports(path), reports(whole.path(run))
    assert [row["step"] for row in new] == [20, 40, 60, 80]
    assert [row["influence_resets"] for row in new[1:]] == [0, 1, 1]
    kept = ("step", "loss", "length")
    assert [[row[name] for name in kept] for row in new[1:]] == [[row[name] for name in kept] for row in old[1:]]
    forgotten = {name: np.zeros_like(a) if ".mu." in name else a for name, a in network.arrays.items()}
    path = gone_on(third, network._replace(arrays=forgotten), run)
    assert not same(weights(path), weights(whole.path(run)))


def test_the_runner_goes_on_and_says_with_what(plan, exported):
    """The joined curve is exported with both starts."""
    second = elsewhere(plan, exported)
    (run,) = line(TBPTT, 80).runs()
    run_all(second, [run], Console(quiet=True))
    assert [(s["from"], s.get("influence")) for s in starts(second.starts(run))] == [(0, None), (40, "empty")]
    (record,) = long.export(second.out, exported, commit=None)
    assert (record["steps"], record["network"], len(record["starts"])) == (80, 80, 2)
    assert curves.read(exported / "curves" / f"{run.id}.csv").steps.tolist() == [20, 40, 60, 80]
    assert not list((second.out / "half").glob("*"))


def test_ok_goes_on_with_its_weights_and_no_influence_and_learns(plan, tmp_path):
    run = trained(plan, OK, 400)
    long.export(plan.out, tmp_path / "long", commit=None)
    second = elsewhere(plan, tmp_path / "long")
    (longer,) = line(OK, 1200).runs()
    assert networks.take_up(second, longer) == 400
    progress = load(open_run(second.path(longer)))[1]
    assert same(progress.state.model, weights(plan.path(run)))
    assert influence_norm(load(open_run(plan.path(run)))[1].state) > 0
    assert influence_norm(progress.state) == 0
    resume(second.path(longer), {}, Console(quiet=True))
    before, after = reports(plan.path(run))[-1], reports(second.path(longer))[-1]
    assert after["step"] == 1200
    assert (after["length"], -after["loss"]) > (before["length"], -before["loss"])


def changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["networks/*.npz", "networks/*.json", "curves/*.csv"])
def test_a_damaged_file_is_refused(plan, exported, kind):
    (path,) = exported.glob(kind)
    changed(path)
    (run,) = line(TBPTT, 80).runs()
    with pytest.raises(eg.InputError, match=r"damaged|no JSON"):
        networks.take_up(elsewhere(plan, exported), run)
    assert not elsewhere(plan, exported).path(run).exists()


def test_only_the_same_run_goes_on(plan, exported):
    def found(**changes):
        (run,) = line(TBPTT | changes, 80).runs()
        return networks.found(exported, run)

    assert found().network.step == 40
    for changes in ({"learning_rate": 0.02}, {"horizon": 8, "stride": 8}, {"units": 9}):
        assert found(**changes) is None
    with pytest.raises(eg.InputError, match=r"--from .* has no network"):
        commands.train_line(elsewhere(plan, exported), line(TBPTT | {"units": 9}, 80), Console(quiet=True))
    (path,) = exported.glob("networks/*.json")
    write_checked(path, {k: v for k, v in read_checked(path).items() if k != "product"} | {"data": ["other"]})
    with pytest.raises(eg.InputError, match="data are not those"):
        networks.take_up(elsewhere(plan, exported), line(TBPTT, 80).runs()[0])


def test_nothing_is_left_of_a_run_without_a_report(plan, tmp_path):
    (run,) = line(TBPTT, 40).runs()
    made = resolve("copy", PAPERS_START | run.settings | {"steps": 5})
    train(made, plan.path(run), Console(quiet=True))
    (record,) = long.export(plan.out, tmp_path / "long", commit=None)
    assert json.loads((tmp_path / "long" / "curves" / f"{run.id}.json").read_text())["steps"] == record["steps"] == 5
    assert record["network"] == 5  # the last step of a run is reported
