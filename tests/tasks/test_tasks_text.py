"""The text source: what it emits, where it resets, and the validation figure."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from evergrad._tasks import CharacterText
from evergrad._tasks.reading import Text, built_in_text, encode, read_parts, read_text, split, symbols_of
from evergrad._tasks.text import bits_per_symbol, sample


def emitted(source, position, steps):
    def step(position, _):
        data, position = source.emit(position)
        return position, data

    return jax.lax.scan(step, position, length=steps)


def test_streams_read_on_from_equally_spaced_places_and_start_over_at_the_end():
    source = CharacterText(np.arange(11, dtype=np.uint8))
    position, data = emitted(source, source.start(batch=2, key=jax.random.key(0)), 12)
    assert data.x[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert data.x[:, 1].tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(data.y, data.x + 1)
    np.testing.assert_array_equal(data.reset, data.x == 0)
    assert position.at.tolist() == [2, 7]


def test_resets_at_multiples_of_a_place():
    source = CharacterText(np.arange(100, dtype=np.uint8), reset_every=7)
    _, data = emitted(source, source.start(batch=3, key=jax.random.key(0)), 60)
    np.testing.assert_array_equal(data.reset, data.x % 7 == 0)


def test_resets_by_chance_come_as_often_as_asked_and_are_the_streams_own():
    source = CharacterText(np.zeros(10**6, np.uint8), reset_probability=0.2)
    _, data = emitted(source, source.start(batch=4, key=jax.random.key(1)), 2000)
    rates = np.asarray(data.reset).mean(axis=0)
    deviation = np.sqrt(0.2 * 0.8 / 2000)
    assert (abs(rates - 0.2) < 4 * deviation).all()
    assert len({tuple(column) for column in np.asarray(data.reset).T.tolist()}) == 4


def test_a_stream_is_reproducible_from_its_key_and_can_be_left_and_resumed():
    source = CharacterText(np.arange(50, dtype=np.uint8), reset_probability=0.3)
    _, whole = emitted(source, source.start(batch=2, key=jax.random.key(5)), 30)
    middle, first = emitted(source, source.start(batch=2, key=jax.random.key(5)), 13)
    _, second = emitted(source, middle, 17)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)
    assert eqx.tree_equal(whole, joined)
    _, other = emitted(source, source.start(batch=2, key=jax.random.key(6)), 30)
    assert not eqx.tree_equal(whole, other)


def test_symbols_are_numbered_in_order_of_first_appearance():
    text = Text("here", "banana ☃")
    assert symbols_of(text) == "ban ☃"
    assert encode(text, "ban ☃").tolist() == [0, 1, 2, 1, 2, 1, 3, 4]


def test_a_strange_character_is_refused_with_its_line():
    with pytest.raises(eg.InputError, match=r"valid, line 3 has the character 'x'"):
        encode(Text("valid", "ab\nab\nbax"), "ab\n")


def test_one_file_is_split_and_keeps_its_line_numbers():
    train, valid, test = split(Text("here", "a\n" * 100))
    assert [len(part.content) for part in (train, valid, test)] == [180, 10, 10]
    assert train.content + valid.content + test.content == "a\n" * 100
    assert (valid.first_line, valid.line(4), test.first_line) == (91, 93, 96)


def test_a_folder_of_three_files_and_three_files_are_the_same(tmp_path):
    for part, content in (("train", "abcabc"), ("valid", "abc"), ("test", "cba")):
        (tmp_path / f"{part}.txt").write_text(content)
    folder = read_parts(str(tmp_path), None, None, as_bytes=False)
    files = read_parts(*(str(tmp_path / f"{part}.txt") for part in ("train", "valid", "test")), as_bytes=False)
    assert folder == files
    assert [part.content for part in folder] == ["abcabc", "abc", "cba"]


def test_newlines_and_bytes_stay_as_they_are(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\r\nb\xff\x00")
    assert encode(read_text(path, as_bytes=True), None).tolist() == [97, 13, 10, 98, 255, 0]
    path.write_bytes(b"a\r\nb")
    assert read_text(path).content == "a\r\nb"


def test_the_built_in_text_is_a_real_one():
    text = built_in_text()
    assert 400_000 < len(text.content) < 1_000_000
    assert "Assert statements are a convenient way to insert debugging" in text.content


@pytest.fixture
def model():
    keys = jax.random.split(jax.random.key(2))
    return eg.Model(
        eg.RNN(inputs=5, units=7, key=keys[0]), eg.Softmax(units=7, classes=5, key=keys[1], initial="fan_in")
    )


def test_bits_per_symbol_of_a_short_text_is_the_mean_loss_with_the_state_carried(model):
    text = np.random.default_rng(0).integers(0, 5, 300).astype(np.uint8)
    ids = jnp.asarray(text, jnp.int32)[:, None]
    expected = float(model.losses(ids[:-1], ids[1:]).mean()) / np.log(2)
    assert bits_per_symbol(model, text) == pytest.approx(expected, rel=1e-6)


def test_bits_per_symbol_of_a_long_text_counts_every_symbol_once(model):
    text = np.random.default_rng(1).integers(0, 5, 4001).astype(np.uint8)
    ids = jnp.asarray(text, jnp.int32)[:, None]
    expected = float(np.asarray(model.losses(ids[:-1], ids[1:]), np.float64).mean()) / np.log(2)
    # seven lanes: equal but for what the state still knows after the 256 symbols a lane reads first, which is nothing
    assert bits_per_symbol(model, text) == pytest.approx(expected, rel=1e-6)
    changed = text.copy()
    changed[-1] = (changed[-1] + 1) % 5
    assert bits_per_symbol(model, changed) != pytest.approx(expected, rel=1e-7)


def test_bits_per_symbol_with_the_state_reset_at_multiples_of_a_place(model):
    """The mean over the pieces, each read from the initial state, however the lanes cut the text."""
    text = np.random.default_rng(2).integers(0, 5, 4001).astype(np.uint8)
    ids = jnp.asarray(text, jnp.int32)
    pieces = [(ids[i : i + 100, None], ids[i + 1 : i + 101, None]) for i in range(0, 4000, 100)]
    expected = float(np.mean([np.asarray(model.losses(*piece)).mean() for piece in pieces])) / np.log(2)
    assert bits_per_symbol(model, text, reset_every=100) == pytest.approx(expected, rel=1e-6)
    assert bits_per_symbol(model, text) != pytest.approx(expected, rel=1e-6)


def test_samples_follow_the_model_and_the_temperature(model):
    peaked = eqx.tree_at(lambda m: m.readout.bias, model, jnp.asarray([0.0, 0.0, 2.0, 0.0, 0.0]))
    prompt = jnp.asarray([1, 2], jnp.int32)

    def draw(temperature):
        return np.asarray(
            sample(peaked, prompt, 2000, jnp.asarray(temperature, jnp.result_type(float)), jax.random.key(0))
        )

    assert set(draw(0.0).tolist()) == {2}
    share = [np.mean(draw(temperature) == 2) for temperature in (0.3, 1.0, 100.0)]
    assert share[0] > 0.95 > share[1] > 0.3 > share[2]
