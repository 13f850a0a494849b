"""Several devices do what one does: lanes or influence spread over them, and what that moves."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.placing import mesh_of
from evergrad._core.sources import Source
from tests.device_scenes import arrays_of
from tests.helpers import crossed

FIVE = ("ok", "ktp", "uoro", "rtrl", "tbptt")


def run(*cases, single=False):
    """The arrays of every case, with dtypes promoted as Optax's Adam needs it."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(not single):
        return {case: arrays_of(case) for case in cases}


def assert_close(many, one, tolerance=1e-10):
    """All that there is after 200 steps, the losses on the way, and the random keys to the bit."""
    assert many.keys() == one.keys()
    for name, array in many.items():
        if np.issubdtype(array.dtype, np.floating):
            scale = max(1e-3, np.abs(one[name]).max(initial=0))
            np.testing.assert_allclose(array / scale, one[name] / scale, rtol=0, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(array, one[name], err_msg=name)


@pytest.mark.parametrize("name", crossed(FIVE, lambda name: name in ("ok", "tbptt")))
def test_lanes_over_four_devices_learn_what_one_device_learns(name):
    """`make test`: one with an influence, and the one without."""
    one, four = run(f"lanes/{name}/1", f"lanes/{name}/4").values()
    assert len(one["losses"]) == 200
    assert np.abs(one["losses"][-50:]).mean() < np.abs(one["losses"][:50]).mean()  # that it learned at all
    assert_close(four, one)


@pytest.mark.slow
def test_so_they_do_over_two_devices_and_in_single_precision():
    results = run(*(f"lanes/{name}/{n}" for name in (*FIVE, "ok0", "rtrl4") for n in (1, 2, 4)), single=True)
    for case, arrays in results.items():
        assert_close(arrays, results[case[:-1] + "1"], tolerance=2e-3)


SPLIT = ("ok/RHN", "ok/stack", "rtrl4/GRU", "rtrl4/stack")


@pytest.mark.parametrize("case", crossed(SPLIT, lambda case: case in ("ok/RHN", "rtrl4/stack")))
def test_a_split_influence_is_exact(case):
    one, four = run(f"influence/{case}/1", f"influence/{case}/4").values()
    assert_close(four, one)


@pytest.fixture(scope="module")
def tasks():
    return run(*(f"task/{name}/{n}" for name in ("copy", "cue") for n in (1, 4)))


def test_a_task_makes_the_same_streams_on_many_devices(tasks):
    for name in ("copy", "cue"):
        assert_close(tasks[f"task/{name}/4"], tasks[f"task/{name}/1"])
    assert tasks["task/copy/1"]["[1].length"] > 10  # the curriculum, which hears of all streams, went on
    assert tasks["task/cue/4"]["[1].asked"] > 80  # and so did the score, in 193 steps of 4 streams


@pytest.mark.slow
def test_so_do_other_tasks_and_cells():
    cases = ("task/text", "task/series", "influence/rtrl/LSTM", "influence/ok0/GRU", "influence/rtrl/RHN")
    results = run(*(f"{case}/{n}" for case in cases for n in (1, 4)))
    for case in cases:
        assert_close(results[f"{case}/4"], results[f"{case}/1"])


@pytest.fixture(scope="module")
def programs():
    cases = ("program/ok/4/lanes", "program/ok/4/influence", "program/rtrl/4/influence")
    large = ("program/ok8/4/influence/64", "program/rtrl/4/influence/64")
    return run(*cases, *large, "refused/4/lanes", "refused/4/influence")


PARAMETERS = (50 + 16 + 1) * 32 + 17 * 50  # of an RHN with 16 units on 50 symbols
NUMBER = 8  # bytes
STREAMS = 4


def test_one_all_reduce_of_the_gradient_is_all_that_a_step_moves(programs):
    program = programs["program/ok/4/lanes"]
    whether_there_was_a_target = 1
    np.testing.assert_array_equal(program["all-reduce"], [(2, NUMBER * (PARAMETERS + whether_there_was_a_target))])
    assert (program["other"][:, 0] == 0).all()  # the losses, once a call


@pytest.mark.parametrize("name", ["ok", "rtrl"])
def test_each_device_holds_its_share_of_a_split_influence(programs, name):
    found = {what: int(programs[f"program/{name}/4/influence"][what]) for what in ("held", "state", "influence")}
    elsewhere = found["influence"] * 3 // 4
    data = 2 * 4 * (4 + 4 + 1 + 8)  # x, y, reset and weight of two steps of four streams
    assert found["held"] == pytest.approx(found["state"] - elsewhere + data, abs=64)
    assert elsewhere > 10_000


@pytest.mark.parametrize("name", ["ok8", "rtrl"])
def test_no_part_of_a_split_influence_moves(programs, name):
    """The compiler cuts the work on it, and moves the gradient, which every device needs, once a step; all else is small."""
    program = programs[f"program/{name}/4/influence/64"]
    moved, gradient = np.concatenate([program["all-reduce"], program["other"]]), NUMBER * (50 + 64 + 1) * 128
    assert (moved[:, 1] == gradient).sum() == 1
    assert (moved[moved[:, 1] != gradient, 1] <= NUMBER * STREAMS * 64 * 64).all(), moved
    assert program["influence"] > 4 * gradient


def test_nor_is_room_for_all_of_it_made(programs):
    program = programs["program/rtrl/4/influence/64"]
    assert program["scratch"] < program["influence"] / 2


def learner(estimator=None):
    keys = jax.random.split(jax.random.key(0))
    model = eg.Model(eg.RHN(inputs=3, units=5, key=keys[0]), eg.Softmax(5, 3, key=keys[1]))
    return eg.Learner(model, estimator or eg.OK(rank=2), optax.sgd(0.1))


def mesh(devices=1):
    return jax.sharding.Mesh(np.array(jax.devices()[:devices] * devices), ("any",))


def test_a_mesh_of_one_device_is_one_device():
    teacher = learner()
    plain, spread = (teacher.init(batch=2, key=jax.random.key(1), **how) for how in ({}, {"mesh": mesh()}))
    assert eqx.tree_equal(plain, spread)
    assert mesh_of(spread) is None


def test_an_unknown_shard_is_refused():
    with pytest.raises(eg.InputError, match='shard is "lanes"'):
        learner().init(batch=2, key=jax.random.key(0), mesh=mesh(), shard="weights")


def test_what_does_not_divide_is_refused(programs):
    assert "4 streams cannot be shared out evenly over 3 devices" in str(programs["refused/4/lanes"]["message"])
    assert "cannot be cut into 3 equal parts" in str(programs["refused/4/influence"]["message"])


@pytest.mark.parametrize("estimator", [eg.KTP(rank=2), eg.UORO(), eg.TBPTT(), eg.KF()])
def test_an_influence_not_worth_splitting_is_refused(estimator):
    with pytest.raises(eg.InputError, match='use shard="lanes"'):
        estimator.influence.split(learner().model.cell, 2)


@pytest.mark.parametrize("estimator", [eg.OK(rank=2), eg.RTRL()])
def test_an_influence_that_cannot_be_cut_evenly_is_refused(estimator):
    with pytest.raises(eg.InputError, match="cannot be cut into 3 equal parts"):
        estimator.influence.split(learner().model.cell, 3)


def test_a_source_that_does_not_know_its_streams_is_refused():
    class Mute(Source):
        def emit(self, position):
            return position, position

    with pytest.raises(eg.InputError, match="Mute does not say which of its arrays have streams"):
        Mute().stream_axes(None)
