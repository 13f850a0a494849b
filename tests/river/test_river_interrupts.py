"""Whatever ends a call, a model is as before it or as after it; threads may read while one learns."""

import copy
import json
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import evergrad as eg
from evergrad.river import OnlineRNNClassifier, OnlineRNNRegressor, saving

SETTINGS = {"units": 3, "seed": 0, "estimator": eg.RTRL()}
SERIES = np.sin(np.arange(400) / 5).tolist()


class Stop(BaseException):
    """Like KeyboardInterrupt: what checks types in these tests turns other exceptions into its own."""


@pytest.fixture
def interrupts():
    """A function that has the next lines interrupted after so many seconds."""

    def stop(signum, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def content(model):
    """What a file of it would hold. Pickles of equal models differ by which of their parts are one object."""
    tensors = {}
    text = json.dumps(saving._plain(saving._content(model), tensors))
    return saving._checksum(text, tensors)


def stepped(model, t):
    x = {"v": SERIES[t % 399]}
    model.predict_one(x)
    model.learn_one(x, SERIES[t % 399 + 1] if isinstance(model, OnlineRNNRegressor) else SERIES[t % 399 + 1] > 0)


@pytest.mark.parametrize("kind", [OnlineRNNRegressor, OnlineRNNClassifier])
def test_an_exception_from_a_signal_leaves_the_model_as_before_or_as_after(kind, interrupts):
    """A third of the interrupts once left arrays that had been given away, and every later call failed."""
    model, stopped, rng = kind(**SETTINGS), 0, np.random.default_rng(0)
    for t in range(3):
        stepped(model, t)
    for t in range(3, 123):
        before, after = content(model), copy.deepcopy(model)
        x, y = {"v": SERIES[t]}, SERIES[t + 1] if kind is OnlineRNNRegressor else SERIES[t + 1] > 0
        after.learn_one(x, y)
        try:
            interrupts(float(rng.uniform(2e-5, 2e-3)))
            model.learn_one(x, y)
            interrupts(0)
        except Stop:
            stopped += 1
            assert content(model) in (before, content(after))
    assert stopped > 10, "or the test shows nothing"
    stepped(model, 123)


def test_an_exception_anywhere_inside_leaves_the_model_as_it_was():
    """Every line of evergrad.river that a call runs is made to raise once."""
    start = OnlineRNNRegressor(**SETTINGS)
    for t in range(3):
        stepped(start, t)
    start.predict_one({"v": 0.5})
    before, after, passed = content(start), copy.deepcopy(start), 0
    after.learn_one({"v": 0.5}, 1.0)

    def trace_until(line):
        left = [line]

        def trace(frame, event, arg):
            if "evergrad/river" not in frame.f_code.co_filename:
                return None
            left[0] -= event == "line"
            if left[0] < 0:
                raise Stop
            return trace

        return trace

    for line in range(1000):
        model = copy.deepcopy(start)
        sys.settrace(trace_until(line))
        try:
            model.learn_one({"v": 0.5}, 1.0)
            sys.settrace(None)
            break
        except Stop:
            sys.settrace(None)
            passed += 1
            assert content(model) in (before, content(after))
    assert passed > 20
    assert content(model) == content(after)


def test_reading_while_another_thread_learns(tmp_path):
    """`predict` failed every second time and `save` nearly always."""
    model, X, failed, done = OnlineRNNRegressor(**SETTINGS), np.ones((2, 1)), [], threading.Event()
    model.partial_fit(np.array(SERIES[:30])[:, None], SERIES[1:31])
    model.predict(X)

    def read():
        while not done.is_set():
            try:
                model.predict(X)
                model.save(tmp_path / "m.safetensors")
                pickle.dumps(model)
            except Exception as error:
                failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for t in range(300):
        model.learn_one({0: SERIES[t]}, SERIES[t + 1])
    done.set()
    reader.join()
    assert not failed
    OnlineRNNRegressor.load(tmp_path / "m.safetensors").learn_one({0: 1.0}, 1.0)


def test_threads_that_learn_take_turns():
    model = OnlineRNNRegressor(**SETTINGS)
    model.learn_one({"v": 0.0}, 0.0)

    def learn():
        for t in range(100):
            model.learn_one({"v": SERIES[t]}, SERIES[t + 1])

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    session = model._session
    assert int(session.machine.inside(session.leaves).state.time) == session.taken == 401


def test_models_do_not_wait_for_each_other():
    held, free = OnlineRNNRegressor(**SETTINGS), OnlineRNNRegressor(**SETTINGS)
    held.learn_one({"v": 0.0}, 0.0)
    learned = threading.Thread(target=lambda: free.learn_one({"v": 0.0}, 0.0))
    with held._guard.lock:
        learned.start()
        learned.join(60)
        assert not learned.is_alive()
        reader = threading.Thread(target=lambda: held.predict(np.ones((1, 1))))
        reader.start()
        reader.join(60)
        assert not reader.is_alive(), "reading waits for nobody"


FORK = """
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of fork itself
import jax, evergrad as eg
from evergrad.river import ForkedError, OnlineRNNRegressor

if {begun}:
    jax.numpy.zeros(1).block_until_ready()
child = os.fork()
if child == 0:
    signal.alarm(120)  # ends one that waits forever
    try:
        OnlineRNNRegressor(units=2, estimator=eg.RTRL()).learn_one({{"v": 1.0}}, 1.0)
    except ForkedError as error:
        os._exit("spawn" in str(error))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("begun", "refused"), [(True, "1"), pytest.param(False, "0", marks=pytest.mark.slow)])
def test_a_forked_process_says_spawn_instead_of_waiting_forever(begun, refused):
    """Forked before anything was computed it learns."""
    done = subprocess.run([sys.executable, "-c", FORK.format(begun=begun)], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == [refused], done.stderr
