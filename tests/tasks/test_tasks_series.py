"""The series source against an independent, slow account of predict, then learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._tasks import Series
from evergrad._tasks.series import scored_anew


def walk(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns)).cumsum(axis=0) + 1000


def make(values, targets, **options):
    source = Series(values, targets, **options)
    keys = jax.random.split(jax.random.key(3), 3)
    cell = eg.RNN(inputs=values.shape[1], units=5, key=keys[0])
    model = eg.Model(cell, eg.Linear(units=5, outputs=len(targets), key=keys[1], initial="fan_in"))
    learner = eg.Learner(model, eg.TBPTT(horizon=3, stride=1), optax.sgd(0.05), clip=1.0)
    return source, learner, learner.init(batch=options.get("batch", 1), key=keys[2])


def follow(source, learner, state, steps):
    return learner.follow(state, source, source.start(model=learner.model), steps)


@pytest.mark.parametrize("ahead", [1, 3])
def test_forecasts_are_made_with_what_was_known_and_scored_when_due(ahead):
    rows = 40
    values = walk(rows, 2)
    source, learner, state = make(values, [1], ahead=ahead)
    _, position, _ = follow(source, learner, learner.init(batch=1, key=jax.random.key(9)), rows)

    cell_state, forecasts, total = learner.model.cell.initial(), {}, 0.0
    for t in range(rows):
        if t > 0:  # time t − 1: everything up to row t − 1 is known, its target learned from
            cell_state = state.model.cell.step(cell_state, source.inputs[t - 1, 0])
            forecasts[t - 1 + ahead] = float(state.model.readout(state.model.cell.output(cell_state))[0])
        if t >= ahead:
            so_far = values[: t - ahead + 1, 1]
            differences = so_far[ahead:] - so_far[:-ahead]
            unit = np.sqrt(np.mean(differences**2)) if len(differences) else 0.0
            total += abs(values[t - ahead, 1] + unit * forecasts[t] - values[t, 1])
        late = max(t - ahead, 0)
        state, _ = learner.step(
            state, source.inputs[late], source.targets[t], jnp.asarray([t <= ahead]), weights=source.weight[t]
        )
    assert float(position.counted[0]) == rows - ahead
    assert float(position.errors[0, 0]) == pytest.approx(total, rel=1e-4)


def test_persistence_and_seasonal_errors_are_those_of_the_data():
    values, ahead, period = walk(60, 2), 5, 4
    source, learner, state = make(values, [0, 1], ahead=ahead, period=period)
    _, position, _ = follow(source, learner, state, 60)
    lag = 8  # two seasons: the last whole number of them that is known five rows before
    due = np.arange(lag, 60)
    persistence = abs(values[due - ahead] - values[due]).sum(axis=0)
    seasonal = abs(values[due - lag] - values[due]).sum(axis=0)
    np.testing.assert_allclose(position.errors[1], persistence, rtol=1e-4)
    np.testing.assert_allclose(position.errors[2], seasonal, rtol=1e-4)
    assert position.counted.tolist() == [52, 52]


@pytest.mark.parametrize("ahead", [1, 4])
def test_nothing_before_a_row_depends_on_it(ahead):
    values, cut = walk(50, 2), 30
    changed = values.copy()
    changed[cut:] = 7 * changed[cut:] - 5
    results = []
    for each in (values, changed):
        source, learner, state = make(each, [0], ahead=ahead)
        state, position, losses = follow(source, learner, state, cut)
        results.append((state.model, position, losses))
    assert eqx.tree_equal(*results)
    source, learner, state = make(changed, [0], ahead=ahead)
    later = follow(source, learner, state, cut + 1)
    assert float(later[1].errors[0, 0]) > float(results[0][1].errors[0, 0]) + 1


def test_inputs_are_standardised_with_the_rows_so_far():
    values = walk(30, 3)
    source = Series(values, [0])
    for t in (5, 17, 29):
        so_far = values[: t + 1]
        expected = (values[t] - so_far.mean(axis=0)) / so_far.std(axis=0)
        np.testing.assert_allclose(source.inputs[t, 0], expected, rtol=1e-3, atol=1e-4)


def test_streams_are_equal_stretches_of_the_rows():
    values = walk(31, 1)
    source = Series(values, [0], batch=3)
    assert source.length == 10
    for lane in range(3):
        alone = Series(values[10 * lane : 10 * lane + 10], [0])
        np.testing.assert_array_equal(source.inputs[:, lane], alone.inputs[:, 0])
        np.testing.assert_array_equal(source.targets[:, lane], alone.targets[:, 0])


def test_a_missing_target_teaches_nothing_and_a_missing_input_is_the_last_one_known():
    values = walk(30, 2)
    values[12, 1] = np.nan
    source, learner, state = make(values, [0, 1])
    state, position, _ = follow(source, learner, state, 12)
    before = jax.tree.map(jnp.array, state.model)
    state, position, losses = learner.follow(state, source, position, 1)
    assert position.counted.tolist() == [12.0, 11.0]
    assert eqx.tree_equal(before, state.model)
    assert losses.tolist() == [[0.0]]
    state, _, _ = learner.follow(state, source, position, 1)
    assert not eqx.tree_equal(before, state.model)
    np.testing.assert_allclose(source.changes[13, 0, 0, 1], values[13, 1] - values[11, 1], rtol=1e-5)


def test_a_column_that_starts_late_is_scored_from_then_on():
    values = walk(20, 1)
    values[:6] = np.nan
    source = Series(values, [0])
    assert np.flatnonzero(source.scored[:, 0, 0]).tolist() == list(range(7, 20))
    assert bool(jnp.isfinite(source.inputs).all())
    assert bool(jnp.isfinite(source.targets).all())


def test_before_a_unit_is_known_persistence_is_forecast_and_nothing_learned():
    for size in (1.0, 1e-6):
        source, learner, state = make(size * walk(20, 1), [0], ahead=3)
        state, position, _ = follow(source, learner, state, 6)
        np.testing.assert_allclose(position.errors[0], position.errors[1], rtol=1e-6)
        assert float(position.counted[0]) == 3
        assert eqx.tree_equal(state.model, learner.model)
        state, position, _ = learner.follow(state, source, position, 1)
        assert float(position.errors[0, 0]) != float(position.errors[1, 0])
        assert not eqx.tree_equal(state.model, learner.model)


def test_a_wild_first_cell_spoils_no_later_score_and_an_impossible_one_is_refused():
    values = walk(20, 1)
    values[0] = 1e12
    with jax.enable_x64(False):
        source = Series(values, [0])
        np.testing.assert_allclose(source.changes[2:, 0, 0, 0], np.diff(values[1:, 0]), rtol=1e-3)
        values[0] = 1e39
        with pytest.raises(eg.InputError, match=r"differ by 1e\+39.*larger unit, or --precision float64"):
            Series(values, [0])
    assert bool(jnp.isfinite(Series(values, [0]).changes).all())


def test_scores_can_be_taken_anew():
    source, learner, state = make(walk(20, 1), [0])
    _, position, _ = follow(source, learner, state, 10)
    assert float(position.counted[0]) == 9
    assert float(scored_anew(position).errors.sum()) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 50}, "40 rows, fewer than the 50 streams"),
        ({"batch": 20}, "each of 20 streams has 2 rows"),
        ({"period": 40}, "--period 40 is longer than the 40 rows"),
        ({"ahead": 0}, "ahead must be a whole number >= 1"),
    ],
)
def test_too_few_rows_are_refused(options, message):
    with pytest.raises(eg.InputError, match=message):
        Series(walk(40, 1), [0], **options)
