"""How weights start: each way does to gates what it says, and is refused where it means nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg
from tests.helpers import Leaky

KEY, INPUTS, UNITS = jax.random.key(0), 3, 200
PLACES = {eg.LSTM: (1, 0), eg.GRU: (1, None), eg.RHN: (1, None)}  # of the gate that keeps, and of the one that writes


def biases(cell):
    return np.asarray(cell.weight[-1]).reshape(len(cell.gates), UNITS)


@pytest.mark.parametrize("kind", PLACES)
def test_chrono_makes_memories_of_one_step_to_the_time_scale(kind):
    cell, plain = (kind(INPUTS, UNITS, key=KEY, initial=initial) for initial in ("chrono:100", "fan_in"))
    keep, write = PLACES[kind]
    spans = np.exp(biases(cell)[keep])  # 1 / (1 − σ(b)) is exp(b) + 1
    assert 1 <= spans.min() < 3
    assert 97 < spans.max() <= 99
    assert spans.mean() == pytest.approx(50, abs=8)  # 200 draws of a uniform: four standard errors
    if write is not None:
        np.testing.assert_allclose(biases(cell)[write], -biases(cell)[keep])
    others = [gate for gate in range(len(cell.gates)) if gate not in (keep, write)]
    np.testing.assert_array_equal(biases(cell)[others], biases(plain)[others])
    np.testing.assert_array_equal(cell.weight[:-1], plain.weight[:-1])


@pytest.mark.parametrize("kind", PLACES)
def test_forget_sets_the_bias_of_the_gate_that_keeps(kind):
    keep, _ = PLACES[kind]
    for initial, bias in {"forget": 1.0, "forget:-2.5": -2.5}.items():
        assert (biases(kind(INPUTS, UNITS, key=KEY, initial=initial))[keep] == bias).all()


@pytest.mark.parametrize(("kind", "gate"), [(eg.RNN, 0), (eg.LSTM, 2), (eg.RHN, 0), (eg.GRU, 3)])
def test_orthogonal_has_its_spectral_radius(kind, gate):
    for initial, radius in {"orthogonal": 1.0, "orthogonal:0.9": 0.9}.items():
        cell = kind(INPUTS, UNITS, key=KEY, initial=initial)
        square = np.asarray(cell.weight).reshape(-1, len(cell.gates), UNITS)[INPUTS:-1, gate]
        np.testing.assert_allclose(square @ square.T, radius**2 * np.eye(UNITS), atol=1e-9)
        assert (np.asarray(cell.weight)[~cell.mask] == 0).all()


def test_old_ways_to_start_draw_the_numbers_that_they_did():
    normal = 0.01 * jax.random.normal(KEY, (INPUTS + UNITS + 1, 2 * UNITS))
    np.testing.assert_array_equal(eg.RHN(INPUTS, UNITS, key=KEY).weight, normal)
    bound = UNITS**-0.5
    uniform = jax.random.uniform(KEY, (INPUTS + UNITS + 1, 4 * UNITS), minval=-bound, maxval=bound)
    np.testing.assert_array_equal(eg.LSTM(INPUTS, UNITS, key=KEY).weight, uniform)


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ("crono:100", r'"crono:100" is unknown: choose "normal".*"chrono:T" \(fan_in, with biases'),
        ("chrono", 'needs a time scale, the longest lag in steps that a task may have: "chrono:100"'),
        ("chrono:2", "must be finite above 2"),
        ("chrono:-5", "must be finite above 2"),
        ("chrono:long", "must be finite above 2"),
        ("chrono:nan", "must be finite above 2"),
        ("forget:inf", "must be finite"),
        ("orthogonal:0", "must be finite above 0"),
        ("normal:3", '"normal" takes no number'),
    ],
)
def test_texts_that_name_nothing_are_refused(initial, message):
    with pytest.raises(eg.InputError, match=message):
        eg.LSTM(INPUTS, 4, key=KEY, initial=initial)


def test_what_a_cell_has_no_gate_for_is_refused():
    with pytest.raises(
        eg.InputError, match=r'role "keep", and RNN has none \(use "orthogonal:R", or a cell with gates'
    ):
        eg.RNN(INPUTS, 4, key=KEY, initial="chrono:100")
    with pytest.raises(eg.InputError, match=r"Leaky has none \(say what its gates are for in `Leaky.roles`"):
        Leaky(INPUTS, 4, key=KEY, initial="forget")
    with pytest.raises(eg.InputError, match='is about gates, and there are none here: choose "normal" or "fan_in"'):
        eg.Softmax(4, 2, key=KEY, initial="chrono:100")


def test_a_chrono_cell_still_holds_after_its_time_scale():
    """A unit keeps 1 − 1/(u + 1) of its state a step, u uniform up to T: after T steps a fair share is left."""
    cell = eg.LSTM(INPUTS, UNITS, key=KEY, initial="chrono:100")
    held = jnp.prod(jnp.stack([jax.nn.sigmoid(cell.weight[-1, UNITS : 2 * UNITS])] * 100), axis=0)
    plain = eg.LSTM(INPUTS, UNITS, key=KEY)
    assert float(held.mean()) > 0.05
    assert float(jax.nn.sigmoid(plain.weight[-1, UNITS : 2 * UNITS]).max() ** 100) < 1e-20
