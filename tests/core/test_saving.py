"""States and models in files: what was saved comes back to the bit, and nothing else comes in."""

import io
import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import evergrad as eg

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_a_user():
    """Without the run-time type checks that the tests switch on, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


XS, YS = (jax.random.normal(KEY, (6, 2, size)) for size in (3, 2))


def learner_of(estimator=None, units=4, optimiser=None, seed=0):
    key = jax.random.key(seed)
    model = eg.Model(eg.LSTM(3, units, key=key), eg.Linear(units, 2, key=key))
    return eg.Learner(model, estimator or eg.OK(rank=2, window=2), optimiser or optax.adam(1e-2), clip=1.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "state"
    learner = learner_of()
    state, _ = learner.run(learner.init(batch=2, key=KEY), XS, YS)
    assert eg.save(path, state) == path
    return path, learner, state


def test_a_state_comes_back_to_the_bit_and_goes_on_as_it_would_have(saved):
    path, learner, state = saved
    again = eg.load(path, learner_of(seed=1))
    assert jax.tree.structure(again) == jax.tree.structure(state)
    assert eqx.tree_equal(again, state)
    one, _ = learner.step(eg.copy(state), XS[0], YS[0])
    two, _ = learner.step(again, XS[0], YS[0])
    assert eqx.tree_equal(one, two)


def test_a_model_comes_back_from_its_own_file_or_from_that_of_a_state(saved, tmp_path):
    path, _, state = saved
    eg.save(tmp_path / "model", state.model)
    for file in (path, tmp_path / "model"):
        assert eqx.tree_equal(eg.load(file, learner_of(seed=1).model), state.model)
    with pytest.raises(eg.InputError, match="holds a model, not a state"):
        eg.load(tmp_path / "model", learner_of())


def test_bfloat16_and_states_that_keep_their_memory(tmp_path):
    model = jax.tree.map(lambda a: a.astype(jnp.bfloat16), learner_of().model)
    eg.save(tmp_path / "half", model)
    assert eqx.tree_equal(eg.load(tmp_path / "half", model), model)
    learner = learner_of()
    state = learner.init(batch=3, key=jax.random.key(5, impl="rbg"), donate=False)
    eg.save(tmp_path / "state", state)
    again = eg.load(tmp_path / "state", learner)
    assert eqx.tree_equal(again, state)
    assert (again.donate, again.generator) == (False, "rbg")


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: learner_of(eg.RTRL()), "is in only one of the two"),
        (lambda: learner_of(units=5), r"is float64\[\d+.* there and float64\[\d+.* here"),
        (lambda: learner_of(optimiser=optax.sgd(0.1)), "is in only one of the two"),
        (lambda: 3, "needs the Learner of the state, or a Model, not int"),
    ],
)
def test_what_does_not_fit_is_named(saved, other, match):
    with pytest.raises(eg.InputError, match=match):
        eg.load(saved[0], other())


def test_any_changed_byte_is_noticed(saved, tmp_path):
    content, learner = bytearray(saved[0].read_bytes()), saved[1]
    chance = np.random.default_rng(0)
    for place in chance.integers(0, len(content), 25):
        changed = content.copy()
        changed[place] ^= 1 << int(chance.integers(8))
        (tmp_path / "changed").write_bytes(changed)
        try:
            again = eg.load(tmp_path / "changed", learner)
        except eg.InputError:
            continue
        assert eqx.tree_equal(again, saved[2])  # a byte that stands for nothing, in the archive's own headers


def test_an_array_put_in_the_place_of_another_is_noticed(saved, tmp_path):
    """In an archive that is whole: the checksum of the array, or of the notes, is what notices."""
    with np.load(saved[0]) as file:
        contents = dict(file)
    number = max(contents, key=lambda name: contents[name].size if name != "about" else 0)
    other = contents[number].copy()
    other[0] ^= 1
    renamed = contents["about"].tobytes().replace(b'"batch": 2', b'"batch": 3')
    for name, content in ((number, other), ("about", np.frombuffer(renamed, np.uint8))):
        file = io.BytesIO()
        np.savez(file, **(contents | {name: content}))
        (tmp_path / "changed").write_bytes(file.getvalue())
        with pytest.raises(eg.InputError, match="checksum"):
            eg.load(tmp_path / "changed", saved[1])


def test_a_file_of_another_kind_is_refused_without_advice_to_unpickle_it(saved, tmp_path):
    (tmp_path / "other").write_text("print('hello')\n")
    with pytest.raises(eg.InputError, match=r"it is no .npz file, or not a whole one\): save it again") as refused:
        eg.load(tmp_path / "other", saved[1])
    assert "pickle" not in str(refused.value)


@pytest.mark.parametrize("length", [0, 10, 1000, -100])
def test_a_file_cut_short_is_refused(saved, tmp_path, length):
    (tmp_path / "short").write_bytes(saved[0].read_bytes()[:length])
    with pytest.raises(eg.InputError, match=r"damaged, or was not written by eg.save"):
        eg.load(tmp_path / "short", saved[1])


def test_nothing_is_unpickled(tmp_path, saved):
    ran = []

    class Bad:
        def __reduce__(self):
            return ran.append, (1,)

    file = io.BytesIO()
    np.savez(file, about=np.array([Bad()], object))
    ran.clear()
    (tmp_path / "bad").write_bytes(file.getvalue())
    with pytest.raises(eg.InputError, match="damaged"):
        eg.load(tmp_path / "bad", saved[1])
    assert ran == []


def test_links_are_not_followed_and_a_failure_leaves_the_old_file(tmp_path, saved, monkeypatch):
    (tmp_path / "target").write_text("mine")
    os.symlink(tmp_path / "target", tmp_path / "link")
    with pytest.raises(eg.InputError, match="is a link"):
        eg.save(tmp_path / "link", saved[2])
    eg.save(tmp_path / "state", saved[2].model)
    before = (tmp_path / "state").read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        eg.save(tmp_path / "state", saved[2])
    assert (tmp_path / "state").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "state", "target"]


def test_what_waits_for_a_target_is_not_saved(tmp_path, saved):
    waiting, _ = saved[1].predict(eg.copy(saved[2]), XS[0])
    with pytest.raises(eg.InputError, match="target has not come"):
        eg.save(tmp_path / "state", waiting)


def test_equinox_serialises_a_state(saved, tmp_path):
    eqx.tree_serialise_leaves(tmp_path / "state.eqx", saved[2])
    again = eqx.tree_deserialise_leaves(tmp_path / "state.eqx", saved[1].init(batch=2, key=KEY))
    assert eqx.tree_equal(again, saved[2])


def test_the_file_says_what_is_in_it(saved):
    with np.load(saved[0]) as file:
        about = json.loads(file["about"].tobytes())
    assert about["kind"] == "state"
    assert about["arrays"]["model.cell.weight"]["shape"] == [8, 16]
