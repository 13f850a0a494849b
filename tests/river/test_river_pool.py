"""One network for many keys: each has its own state, batches of any keys, keys that come and go, files, threads, interrupts."""

import copy
import gc
import math
import pickle
import sys
import threading
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from river import compose, preprocessing

import evergrad as eg
from evergrad.river import OnlineRNNPool, OnlineRNNRegressor, saving, turns

SETTINGS = {"units": 3, "seed": 0}
STILL = {
    **SETTINGS,
    "learning_rate": 1e-30,
}  # the weights stay as they are, so that a key depends on its own samples alone


def samples(number, keys, seed=0):
    """Features [n, 2], targets with some missing, and keys in any order."""
    rng = np.random.default_rng(seed)
    X, y, which = rng.normal(size=(number, 2)), rng.normal(size=number), rng.integers(keys, size=number)
    X[::7, 1] = np.nan
    y[::5] = np.nan
    return X, 10.0**which * (y + which), which


def network(pool):
    return pool._session.crowd.pack(pool._session.shared)


def one_by_one(model, X, y, keys):
    said = []
    for x, target, key in zip(X.tolist(), y.tolist(), keys.tolist(), strict=True):
        x = dict(enumerate(x))
        said.append(model.predict_one(x, key=key))
        model.learn_one(x, target, key=key)
    return said


def content(model):
    """What a file of it would hold."""
    tensors = {}
    text = repr(saving._plain(saving._content(model._whole()), tensors))
    return saving._checksum(text, tensors)


def states(model, key):
    """All that one key keeps, but for when it was seen."""
    session = model._whole()._session
    found = session.store.read(np.array([session.store.places[key]]))
    return {name: a[0] for name, a in found.items() if name != "seen"}


def roomy():
    """With room for two features from the start, so that all have the weights that are drawn then."""
    model = OnlineRNNPool(**STILL)
    model._make_room(2, 0)
    return model


@pytest.fixture(scope="module")
def taught():
    model = OnlineRNNPool(**SETTINGS)
    model.learn_many(*samples(60, 5))
    return model


def test_a_key_alone_learns_what_a_regressor_does():
    pool, regressor = OnlineRNNPool(**SETTINGS), OnlineRNNRegressor(**SETTINGS)
    for t in range(40):
        x, y = {"a": math.sin(t / 3), "b": "xy"[t % 2]}, 5 + math.sin((t + 1) / 3)
        assert pool.predict_one(x, key="k") == pytest.approx(regressor.predict_one(x), rel=1e-9)
        pool.learn_one(x, y, key="k")
        regressor.learn_one(x, y)
    assert pool.report("k")["shares"]["persistence"] == 0
    assert pool.predict_interval_one({"a": 0.0}, 0.8, key="k") == pytest.approx(
        regressor.predict_interval_one({"a": 0.0}, 0.8), rel=1e-9
    )


def test_keys_do_not_leak_into_each_other():
    """With weights that stand still a key is as if it were alone, whatever the others do and however samples are put together."""
    X, y, keys = samples(120, 5)
    pool, whole = roomy(), roomy()
    said = one_by_one(pool, X, y, keys)
    np.testing.assert_allclose(whole.run(X, y, keys), said, rtol=1e-9)
    for key in range(5):
        alone = roomy()
        mine = keys == key
        np.testing.assert_allclose(one_by_one(alone, X[mine], y[mine], keys[mine]), np.array(said)[mine], rtol=1e-9)
        for other in (pool, whole):
            for name, a in states(other, key).items():
                np.testing.assert_allclose(a, states(alone, key)[name], rtol=1e-6, atol=1e-9, err_msg=name)


def test_a_batch_of_different_keys_is_one_step_by_the_mean_gradient():
    """As a regressor's lanes, of which each has a target: padding to a power of two, and missing targets, weigh nothing."""
    X, y = np.random.default_rng(0).normal(size=(9, 4, 2)), np.random.default_rng(1).normal(size=(9, 4))
    pool, lanes = OnlineRNNPool(**SETTINGS), OnlineRNNRegressor(**SETTINGS, lanes=4)
    expected = lanes.run(X, y)
    for t in range(9):
        said = pool.run(X[t], y[t], list("abcd"))
        np.testing.assert_allclose(said, expected[t], rtol=1e-9)
    three, padded = copy.deepcopy(pool), copy.deepcopy(pool)
    three.learn_many(X[0, :2], y[0, :2], list("ab"))
    padded.learn_many(X[0, :3], [*y[0, :2], np.nan], list("abc"))
    for a, b in zip(network(three), network(padded), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_repeated_keys_in_a_batch_come_one_after_the_other():
    """The k-th samples of all keys are one step, then their next ones."""
    X, y = np.random.default_rng(0).normal(size=(7, 1)), np.arange(7.0)
    keys = ["a", "b", "a", "c", "a", "b", "a"]
    pool, steps = OnlineRNNPool(**SETTINGS), OnlineRNNPool(**SETTINGS)
    for start in (pool, steps):
        start.learn_many(np.zeros((6, 1)), np.arange(6.0), [*"abcabc"])
    said = pool.run(X, y, keys)
    found = np.empty(7)
    for turn in ([0, 1, 3], [2, 5], [4], [6]):
        found[turn] = steps.run(X[turn], y[turn], [keys[i] for i in turn])
    np.testing.assert_allclose(said, found, rtol=1e-9)
    for a, b in zip(network(pool), network(steps), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, err_msg="as many updates, of the same samples")


@pytest.mark.parametrize("skew", [1, 3, 50])
def test_blocks_have_every_sample_once_and_in_order(skew):
    keys = (np.random.default_rng(skew).integers(40, size=500) // skew).tolist()
    batch, time_of = turns.turns(keys), {}
    seen = []
    for block in turns.blocks(batch):
        assert block.width & (block.width - 1) == 0
        assert block.turns <= turns.turns_of(block.width)
        assert len({*zip(*(a.tolist() for a in block.at), strict=True)}) == len(block.samples)
        for i in block.samples.tolist():
            assert time_of.get(keys[i], -1) < i
            assert batch.keys[batch.lane[i]] == keys[i]
            time_of[keys[i]] = i
        seen += block.samples.tolist()
    assert sorted(seen) == [*range(500)]


def test_predicting_changes_nothing(taught):
    before = content(taught)
    X = samples(4, 5)[0]
    many = taught.predict_many(X, [0, 1, 1, "new"])
    for x, key, said in zip(X.tolist(), [0, 1, 1, "new"], many, strict=True):
        assert taught.predict_one({**dict(enumerate(x)), "unknown": 1.0}, key=key) == pytest.approx(said, rel=1e-9)
    frame = pd.DataFrame(X, index=[*"wxyz"])
    assert taught.predict_many(frame, [0, 1, 1, "new"])["x"] == many[1]
    assert content(taught) == before
    assert "new" not in taught


def test_each_key_has_a_scale_of_its_own():
    """1e9 and 1e-3 in one pool: neither is rounded away beside the other."""
    model = OnlineRNNPool(**SETTINGS)
    for t in range(200):
        for key, level, size in (("large", 1e9, 1.0), ("small", 0.0, 1e-3)):
            y = level + size * math.sin((t + 1) / 4)
            model.learn_one({"v": level + size * math.sin(t / 4)}, y, key=key)
    for key in ("large", "small"):
        assert model.report(key)["error against persistence"] < 0.5
    place = model._slots.places["v"]
    assert [states(model, key)["origins"][place] for key in ("large", "small")] == [1e9, 0], (
        "before all is rounded to float32"
    )
    assert model.report("large")["scales"]["v"]["mean"] == pytest.approx(1e9, abs=1)
    assert model.report()["error against persistence"] < 0.5


def test_a_new_key_has_what_the_network_knows_and_nothing_else(taught):
    model, fresh = copy.deepcopy(taught), copy.deepcopy(taught)
    assert model.forget(3)
    assert 3 not in model
    assert not model.forget(3)
    for name, a in model._session.found([3], None).items():
        np.testing.assert_array_equal(a[0], fresh._session.store.fresh[name])
    model.learn_one({0: 1.0, 1: 2.0}, 5.0, key=3)
    fresh.learn_one({0: 1.0, 1: 2.0}, 5.0, key="never seen")
    for name, a in states(model, 3).items():
        np.testing.assert_array_equal(a, states(fresh, "never seen")[name])


def test_the_key_seen_longest_ago_goes_for_a_new_one():
    model = OnlineRNNPool(**SETTINGS, keys=3)
    model.learn_many(np.zeros((5, 1)), np.arange(5.0), [*"abcab"])
    model.learn_many(np.zeros((2, 1)), np.zeros(2), [*"da"])
    assert [key in model for key in "abcd"] == [True, True, False, True]
    model.learn_one({0: 1.0}, 1.0, key="c")
    assert [key in model for key in "abcd"] == [True, False, True, True]
    assert np.isnan(states(model, "c")["known"][:-1]).all(), "it has begun anew"
    found = model.report()
    assert (found["keys"], found["forgotten"], found["samples"]) == (3, 2, 8)
    assert len(model._session.store.names) == 3, "rows are used again"


def test_a_key_without_samples_is_forgotten_in_time():
    model = OnlineRNNPool(**SETTINGS, idle=4)
    model.learn_many(np.zeros((2, 1)), [7.0, 8.0], [*"ab"])
    for t in range(4):
        assert "b" in model
        assert model.predict_one({0: 0.0}, key="b") == 8
        model.learn_one({0: 0.0}, float(t), key="c")
    assert "b" not in model
    assert model.predict_one({0: 0.0}, key="b") == 0
    model.learn_one({0: 0.0}, 9.0, key="b")
    assert np.isnan(states(model, "b")["known"][:-1]).all()
    model.learn_one({0: 0.0}, 9.0, key="d")
    assert model.report()["keys"] == 3, "a is gone and its row d's"


def test_keys_of_a_batch_are_not_forgotten_for_each_other():
    model = OnlineRNNPool(**SETTINGS, keys=3)
    model.learn_many(np.zeros((3, 1)), np.arange(3.0), [*"abc"])
    model.learn_many(np.zeros((2, 1)), np.zeros(2), [*"da"])
    assert [key in model for key in "abcd"] == [True, False, True, True]


def test_a_key_is_forgotten_once():
    model = OnlineRNNPool(**SETTINGS, idle=2)
    model.learn_many(np.zeros((6, 1)), np.zeros(6), [*"abcddd"])
    for key in "ef":
        model.learn_one({0: 0.0}, 0.0, key=key)
    found = model.report()
    assert (found["keys"], found["forgotten"]) == (3, 3)


def test_missing_targets_let_time_go_on():
    model = OnlineRNNPool(**SETTINGS)
    for missing in (None, math.nan):
        model.learn_one({"v": 1.0}, missing, key="k")
    model.learn_one({"v": None}, 3.0, key="k")
    before = states(model, "k")
    model.learn_one({"v": 2.0}, None, key="k")
    assert not np.array_equal(before["state"], states(model, "k")["state"])
    assert model.predict_one({}, key="k") == 3


def test_features_that_come_later_keep_what_was_learned():
    model = OnlineRNNPool(**SETTINGS)
    for t in range(30):
        for key in "ab":
            model.learn_one({"v": math.sin(t)}, math.sin(t + 1), key=key)
    before, width = model.predict_one({"v": 0.5}, key="b"), model.bytes_a_key
    model.learn_one({"w": 1.0, "x": "one"}, 0.0, key="a")
    later = OnlineRNNPool(**SETTINGS, learning_rate=1e-30)
    assert model.bytes_a_key > width
    assert model.predict_one({"v": 0.5}, key="b") == pytest.approx(before, rel=0.2)
    assert later.predict_one({"v": 0.5}, key="b") == 0


def test_every_copy_goes_on_exactly(taught, tmp_path):
    model = copy.deepcopy(taught)
    model.forget(1)
    model.learn_one({"w": 1.0}, 1.0, key=("a", 1))
    model.notes["offset"] = 7
    model.save(tmp_path / "p.safetensors")
    copies = [
        OnlineRNNPool.load(tmp_path / "p.safetensors"),
        saving.load_any(tmp_path / "p.safetensors"),
        pickle.loads(pickle.dumps(model)),
        model.clone(include_attributes=True),
    ]
    X, y, keys = samples(40, 8, seed=1)
    expected = model.run(X, y, keys)
    for other in copies:
        assert np.array_equal(other.run(X, y, keys), expected)
        assert content(other) == content(model)
    assert copies[0].notes == {"offset": 7}
    assert model.clone()._session is None


def test_a_damaged_file_is_refused(taught, tmp_path):
    path = tmp_path / "p.safetensors"
    taught.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + bytes(9))
    with pytest.raises(eg.InputError, match="its checksum is wrong"):
        OnlineRNNPool.load(path)
    taught.save(path)
    with pytest.raises(eg.InputError, match="holds an OnlineRNNPool, not an OnlineRNNRegressor"):
        OnlineRNNRegressor.load(path)


DAMAGE = {
    "one key twice": lambda s: s["store"]["keys"].__setitem__(0, s["store"]["keys"][1]),
    "a key less": lambda s: s["store"]["keys"].pop(),
    "rows of another size": lambda s: s["store"]["arrays"].update(state=s["store"]["arrays"]["state"][:, 1:]),
    "no origins": lambda s: s["store"]["arrays"].pop("origins"),
    "no network": lambda s: s["shared"].pop(),
    "no clock": lambda s: s["store"].update(clock=-1),
    "no rates": lambda s: s.update(rates=np.zeros(2)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_pools_content_is_refused(taught, damage):
    from evergrad.river.checking import check_keyed

    state = copy.deepcopy(taught)._session.__getstate__()
    check_keyed(state)
    DAMAGE[damage](state)
    with pytest.raises((ValueError, KeyError)):
        check_keyed(state)


def test_thousands_of_keys_take_kilobytes_each():
    """With default settings, in single precision and with 5 features: counted by what Python and NumPy allocate."""
    number = 10_000
    model = OnlineRNNPool(seed=0)
    X, keys = np.zeros((number, 5)), [f"key {i}" for i in range(number)]
    model.learn_many(X[:1], [0.0], keys[:1])
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(0, number, 1000):
        model.learn_many(X[i : i + 1000], np.zeros(1000), keys[i : i + 1000])
    gc.collect()
    grown = (tracemalloc.get_traced_memory()[0] - before) / number
    tracemalloc.stop()
    said = model.bytes_a_key
    assert model.report()["keys"] == number
    assert said < 10_000, "float64 here, as all tests; half of it otherwise"
    room = len(model._session.store.table["seen"]) / number  # reserved, of which the system gives what is written to
    assert said < grown < 1.1 * said * room + 500


WRONG = {
    "no key": (lambda m: m.learn_one({"a": 1.0}, 1.0), r"learn_one\(x, y, key=…\): whose sample is it"),
    "no key to predict": (lambda m: m.predict_one({"a": 1.0}), "whose sample is it"),
    "NaN": (lambda m: m.learn_one({"a": 1.0}, 1.0, key=math.nan), "nan is none"),
    "a list": (lambda m: m.learn_one({"a": 1.0}, 1.0, key=[1]), r"the key \[1\] cannot be looked up"),
    "no keys": (lambda m: m.learn_many(np.ones((2, 1)), [1, 2]), "whose samples are they"),
    "too few keys": (lambda m: m.learn_many(np.ones((2, 1)), [1, 2], ["a"]), "1 keys and 2 rows"),
    "too few targets": (lambda m: m.learn_many(np.ones((2, 1)), [1], ["a", "b"]), "pass one target a row"),
    "too many keys": (lambda m: m.learn_many(np.ones((9, 1)), np.ones(9), [*"abcdefghi"]), "9 different keys"),
    "no dict": (lambda m: m.learn_one(1.0, 1.0, key="a"), "pass a dict of features"),
    "a string for a number": (lambda m: m.learn_one({0: "a"}, 1.0, key="a"), "was a number before"),
    "infinite": (lambda m: m.learn_one({0: 1.0}, math.inf, key="a"), "a target is a finite number"),
    "an unknown key": (lambda m: m.report("nobody"), "knows no such key"),
    "coverage": (lambda m: m.predict_interval_one({0: 1.0}, 90, key="a"), "is no probability"),
    "batch": (lambda m: m.warmup(batch=0), "batch"),
    "a cell with a large influence": (lambda m: OnlineRNNPool(cell="lstm"), "whose units do not see each other"),
    "keys": (lambda m: OnlineRNNPool(keys=0), r"OnlineRNNPool\(keys=0\)"),
    "idle": (lambda m: OnlineRNNPool(idle=0.5), r"OnlineRNNPool\(idle=0.5\)"),
}


@pytest.fixture(scope="module")
def bounded():
    model = OnlineRNNPool(**SETTINGS, keys=8)
    model.learn_many(np.ones((2, 1)), [1, 2], [*"ab"])
    return model


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_used_is_refused_and_changes_nothing(bounded, wrong):
    call, message = WRONG[wrong]
    before = content(bounded)
    with pytest.raises(eg.InputError, match=message):
        call(bounded)
    assert content(bounded) == before


class Stop(BaseException):
    """Like KeyboardInterrupt."""


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


def test_an_exception_anywhere_inside_leaves_the_pool_as_before_or_as_after():
    """Every line of evergrad.river that two calls run is made to raise once: the second one writes what the first has noted."""
    start = OnlineRNNPool(**SETTINGS, keys=2)
    start.learn_many(np.ones((2, 1)), [1, 2], [*"ab"])
    once, twice = copy.deepcopy(start), copy.deepcopy(start)
    calls = [lambda m: m.learn_one({0: 1.0}, 5.0, key="c"), lambda m: m.learn_one({0: 2.0}, 6.0, key="b")]
    calls[0](once)
    for call in calls:
        call(twice)
    allowed, passed = [content(m) for m in (start, once, twice)], 0
    for line in range(2000):
        model = copy.deepcopy(start)
        sys.settrace(trace_until(line))
        try:
            for call in calls:
                call(model)
            sys.settrace(None)
            break
        except Stop:
            sys.settrace(None)
            passed += 1
            assert content(model) in allowed
    assert passed > 100
    assert content(model) == allowed[2]


def test_threads_learn_and_read_at_once(tmp_path):
    model, failed, done = OnlineRNNPool(**STILL, keys=50), [], threading.Event()
    X, y, _ = samples(30, 1)
    model.learn_one({0: 1.0, 1: 1.0}, 1.0, key=(0, "a"))

    def learn(thread):
        for i, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
            model.learn_one(dict(enumerate(x)), target, key=(thread, "ab"[i % 2]))

    def read():
        while not done.is_set():
            try:
                model.predict_one({0: 1.0, 1: 1.0}, key=(0, "a"))
                model.report()
                model.save(tmp_path / "p.safetensors")
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=learn, args=(i,)) for i in range(1, 5)]
    reader = threading.Thread(target=read)
    for each in (reader, *threads):
        each.start()
    for each in threads:
        each.join()
    done.set()
    reader.join()
    assert not failed
    assert model.report()["samples"] == 121
    alone = OnlineRNNPool(**STILL)
    alone.learn_one({0: 1.0, 1: 1.0}, 1.0, key="first")
    for i, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        alone.learn_one(dict(enumerate(x)), target, key="ab"[i % 2])
    for thread in range(1, 5):
        for name, a in states(model, (thread, "a")).items():
            np.testing.assert_allclose(a, states(alone, "a")[name], rtol=1e-9, err_msg=name)
    assert OnlineRNNPool.load(tmp_path / "p.safetensors").report()["keys"] > 0


def test_reading_waits_for_nobody(taught):
    with taught._guard.lock:
        reader = threading.Thread(target=lambda: (taught.predict_one({0: 1.0}, key=1), taught.report()))
        reader.start()
        reader.join(60)
        assert not reader.is_alive()


def test_who_was_overtaken_looks_again(taught):
    """A view of the pool that others have written past is not mixed with what they wrote."""
    model = copy.deepcopy(taught)
    old = model._session
    for t in range(2):
        model.learn_one({0: 1.0, 1: 1.0}, float(t), key=0)
    assert old.found([0], None) is None
    assert old.snapshot() is None
    assert model._session.found([0], None) is not None


def test_a_pool_at_the_end_of_a_pipeline():
    model = compose.Pipeline(preprocessing.StandardScaler(), OnlineRNNPool(**SETTINGS))
    for t in range(5):
        x = {"a": float(t)}
        model.predict_one(x, key="k")
        model.learn_one(x, float(t), key="k")
    assert "k" in model["OnlineRNNPool"]


def test_a_batch_of_a_size_that_was_warmed_up_compiles_nothing(taught):
    model = OnlineRNNPool(units=5, seed=0)
    model.warmup(features=2, batch=4)
    crowd = model._session.crowd
    before = crowd.learn._cache_size(), crowd.look._cache_size()
    for n in (1, 2, 3, 4):
        model.learn_many(np.ones((n, 2)), np.ones(n), [*range(n)])
        model.predict_many(np.ones((n, 2)), [*range(n)])
    model.learn_many(np.ones((40, 2)), np.ones(40), ["one"] * 40)
    assert model._session.crowd is crowd
    assert (crowd.learn._cache_size(), crowd.look._cache_size()) == before


def test_a_pool_that_diverges_begins_anew_if_it_may(monkeypatch):
    model = OnlineRNNPool(**SETTINGS, restart=True)
    model.learn_many(np.ones((2, 1)), [1, 2], [*"ab"])
    session = model._session
    wild = [a * a.dtype.type(np.nan) if a.dtype.kind == "f" else a for a in network(model)]
    session.shared = session.crowd.unpack(wild)
    with pytest.raises(eg.DivergedError, match="non-finite after 2 samples of 2 keys"):
        model.predict_one({0: 1.0}, key="a")
    with pytest.warns(UserWarning, match="begins anew"):
        model.learn_one({0: 1.0}, 1.0, key="a")
    assert model.report()["keys"] == 1
