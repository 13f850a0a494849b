"""Counted, not measured."""

import json

import pytest
from typer.testing import CliRunner

import evergrad as eg
from evergrad._cli import app
from evergrad.bench import roofline
from evergrad.bench.roofline import Accelerator, Point

ONE = Accelerator("one", flops=100.0, bandwidth=10.0)


@pytest.mark.parametrize(("flops", "seconds", "decides"), [(50.0, 0.7, "memory"), (100.0, 1.0, "products")])
def test_the_slower_of_products_and_memory_decides(flops, seconds, decides):
    step = Point(eg.OK(rank=2), 1, flops, bytes=7.0, held=1.0)
    assert step.seconds(ONE) == pytest.approx(seconds)
    assert step.decides(ONE) == decides


def test_a_window_saves_products_and_passes_and_streams_count_alike():
    found = {(each.estimator.window, each.streams): each for each in roofline.points(64, 4)}
    none, some = found[0, 16], found[16, 16]
    assert some.flops < none.flops
    assert some.bytes < none.bytes
    assert found[16, 256].flops == pytest.approx(16 * some.flops)
    assert found[16, 256].intensity == pytest.approx(some.intensity)
    assert some.held == 4 * 16 * 4 * (64 * 128 + 115)  # r (m q + p) numbers a stream


def test_the_command_says_that_nothing_was_measured(tmp_path):
    done = CliRunner().invoke(
        app,
        ["bench", "roofline", "--units", "64", "--rank", "4", "--json", f"{tmp_path}/r.json"],
        env={"COLUMNS": "200"},
    )
    assert done.exit_code == 0, done.output
    assert "nothing here was measured" in done.output
    assert len(json.loads((tmp_path / "r.json").read_text())["points"]) == 6
