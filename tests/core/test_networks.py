"""Networks built of linear maps: exact where RTRL is, right in the mean where OK, KF, KTP and UORO are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad._core.maps import maps_of
from evergrad.bench.undeclared import Undeclared
from tests.core.test_exact import by_backpropagation, summed
from tests.estimators.test_unbiased import ENTRY_CUT, PROJECTION_CUT, carried_influence, z_scores
from tests.helpers import KRONECKER_CELLS, cast, crossed, make_cell, make_data, relative_error, with_window
from tests.networks import NETWORKS, SYMBOLS

STEPS, BATCH = 12, 2


def model_of(cell):
    return eg.Model(cell, eg.Softmax(cell.units, SYMBOLS, key=jax.random.key(9), initial="fan_in"))


def worst_leaf(got, expected):
    """The largest relative error of a leaf."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in pairs)


ALWAYS = (("lstm_on_gru", 0), ("encoder_gru_norm_lstm", 5), ("map_used_twice", 0), ("map_used_twice", 5))


@pytest.mark.parametrize(
    ("name", "window"),
    crossed([(n, w) for n in NETWORKS for w in (0, 1, 5, STEPS + 1)], lambda *case: case in ALWAYS),
)
def test_rtrl_is_full_backpropagation(name, window):
    model = model_of(NETWORKS[name]())
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    assert resets.any()
    _, gradient = summed(model, eg.RTRL(window=window), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10


@pytest.mark.parametrize("name", ["encoder_gru_norm_lstm"])
def test_tbptt_with_a_long_horizon_is_full_backpropagation(name):
    model = model_of(NETWORKS[name]())
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.TBPTT(horizon=STEPS, stride=1), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10


def test_a_path_within_the_step_that_is_left_out_is_noticed(monkeypatch):
    """An error planted in B of the lower layer: what it does to the upper layer at the same step is forgotten."""
    model = model_of(NETWORKS["lstm_on_gru"]())
    xs, ys, resets = make_data(STEPS, BATCH)
    expected, truth = by_backpropagation(model, xs, ys, resets), _true_influence(model.cell, 0)
    monkeypatch.setattr("evergrad._core.maps.step_of", lambda cell: cell.step_apart)
    monkeypatch.setattr("evergrad._core.linearize.step_of", lambda cell: cell.step_apart)
    _clear()
    _, gradient = summed(model, eg.RTRL(), xs, ys, resets)
    _, projection = z_scores(eg.OK(rank=2, window=0), model.cell, 0, truth=truth)
    _clear()
    assert worst_leaf(gradient.cell.layers[0], expected.cell.layers[0]) > 1e-2
    assert worst_leaf(gradient.cell.layers[1], expected.cell.layers[1]) < 1e-10
    assert projection > PROJECTION_CUT


def _clear():
    from evergrad._core import maps

    maps._read_once.cache_clear()


ESTIMATORS = {"ok": eg.OK(rank=2, window=0), "kf": eg.KF(), "uoro": eg.UORO(), "ktp": eg.KTP(rank=2)}
DRAWN = [
    pytest.param(
        estimator,
        name,
        window,
        marks=[]
        if (name, window) == ("lstm_on_gru", 0) or (estimator, name, window) == ("ok", "map_used_twice", 3)
        else [pytest.mark.slow],
    )
    for estimator in ESTIMATORS
    for name in NETWORKS
    for window in (0, 3)
]


@pytest.mark.parametrize(("estimator", "name", "window"), DRAWN)
def test_unbiased(estimator, name, window):
    entry, projection = z_scores(ESTIMATORS[estimator], NETWORKS[name](), window)
    assert entry < ENTRY_CUT
    assert projection < PROJECTION_CUT


FORMS = [eg.RTRL(), eg.RTRL(window=3), eg.OK(rank=2, window=0), eg.OK(rank=2, window=3), eg.KF()]


def every_form_and_every_cell(estimator, name):
    """All estimators on the cell with most gates, and OK, which uses all that is found, on every cell."""
    return name == "lstm" or estimator == eg.OK(rank=2, window=3)


@pytest.mark.parametrize(
    ("estimator", "name"), crossed([(e, n) for e in FORMS for n in KRONECKER_CELLS], every_form_and_every_cell)
)
def test_the_general_form_is_the_fast_form(name, estimator):
    """What is found of a Kronecker cell that does not say what it is gives the same influence, draw by draw."""
    cell = make_cell(name, scale=1.5)
    xs, _, _ = make_data(9, 1, seed=2)
    resets = np.zeros(xs.shape, bool)
    resets[1] = True
    fast, general = (
        carried_influence(estimator, c, jnp.asarray(xs), jnp.asarray(resets), jax.random.key(3))
        for c in (cell, Undeclared(cell))
    )
    assert relative_error(general, fast) < 1e-10


def test_only_rows_that_a_layer_can_reach_are_stored():
    cell = NETWORKS["three_rhns"]()
    sizes = [layer.units for layer in cell.layers]
    rows = [len(each.rows) for each in maps_of(cell).maps]
    assert rows == [sum(sizes), sum(sizes[1:]), sizes[2]]
    _, a, *_ = eg.OK(rank=2).influence.init(cell)
    assert a.shape[0] == sum(sizes)
    assert [len(leaf) for leaf in jax.tree.leaves(eg.RTRL().influence.init(cell))] == rows


def test_many_factorisations_side_by_side_do_not_hang():
    """Several maps, thousands of streams: XLA's CPU runtime could wait for itself if they were not made to follow each other."""
    cell = NETWORKS["encoder_gru_norm_lstm"]()
    xs, resets = jnp.zeros((2, 1), int), jnp.zeros((2, 1), bool)
    draw = jax.jit(jax.vmap(lambda key: carried_influence(eg.OK(rank=2, window=0), cell, xs, resets, key)))
    assert bool(jnp.isfinite(draw(jax.random.split(jax.random.key(0), 2000))).all())


def test_a_stack_of_one_is_the_cell():
    cell = make_cell("lstm", scale=1.5)
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    key = jax.random.key(9)
    readout = eg.Softmax(cell.units, SYMBOLS, key=key)
    _, alone = summed(eg.Model(cell, readout), eg.RTRL(), xs, ys, resets)
    _, stacked = summed(eg.Model(eg.Stack(cell), readout), eg.RTRL(), xs, ys, resets)
    assert relative_error(stacked.cell.layers[0], alone.cell) < 1e-10


def delayed_losses(weight, xs, ys, resets):
    """Of two layers of two tanh units, written out: the upper one sees the lower one as it was a step before."""
    (inward, lower), (climbing, upper), bias = weight

    def step(carry, inputs):
        x, reset = inputs
        one, two = (jnp.where(reset[:, None], 0, h) for h in carry)
        new = jnp.tanh(jnp.eye(SYMBOLS)[x] @ inward + one @ lower + bias[None, :2])
        return (new, jnp.tanh(one @ climbing + two @ upper + bias[None, 2:])), None

    def losses(carry, inputs):
        x, y, reset = inputs
        carry, _ = step(carry, (x, reset))
        return carry, ((carry[1].sum(1) - y) ** 2).mean()

    start = jnp.zeros((xs.shape[1], 2)), jnp.zeros((xs.shape[1], 2))
    return jax.lax.scan(losses, start, (xs, ys, resets))[1]


def test_a_delayed_stack_is_one_cell_with_a_mask():
    """Every layer a step later than the one below it: all gates see one ĥ, and no mask but W's is needed."""
    mask = np.zeros((SYMBOLS + 5, 4), bool)
    mask[: SYMBOLS + 2, :2] = mask[SYMBOLS : SYMBOLS + 4, 2:] = mask[-1] = True
    cell = eg.RNN(SYMBOLS, 4, key=jax.random.key(1), mask=mask)
    readout = eg.Linear(4, 1, key=jax.random.key(2))
    seen = jnp.asarray([[0.0], [0.0], [1.0], [1.0]])
    readout = eqx.tree_at(lambda r: (r.weight, r.bias), readout, (seen, jnp.zeros(1)))
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    w, n = cell.weight, SYMBOLS
    parts = (w[:n, :2], w[n : n + 2, :2]), (w[n : n + 2, 2:], w[n + 2 : n + 4, 2:]), w[-1]
    given = jnp.asarray(xs), jnp.asarray(ys, float), jnp.asarray(resets)
    (inward, lower), (climbing, upper), bias = jax.jit(jax.jacrev(delayed_losses))(parts, *given)
    _, found = eg.gradients(eg.Model(cell, readout), eg.RTRL(), xs, given[1][..., None], resets, key=jax.random.key(0))
    g = found.cell.weight
    pairs = [(g[:, :n, :2], inward), (g[:, n : n + 2, :2], lower), (g[:, n : n + 2, 2:], climbing)]
    for ours, right in [*pairs, (g[:, n + 2 : n + 4, 2:], upper), (g[:, -1], bias)]:
        assert relative_error(ours, right) < 1e-10
    assert (g[:, ~mask] == 0).all()


# ---- trained layer by layer ----------------------------------------------------------------------------------------


def _layerwise(cell):
    return eg.Stack(*cell.layers, see=cell.see, depth="layerwise")


@pytest.mark.parametrize("estimator", [eg.RTRL(), eg.RTRL(window=3), eg.TBPTT(horizon=STEPS, stride=1)], ids=repr)
def test_layer_by_layer_the_top_is_exact_and_the_bottom_is_not(estimator):
    cell = NETWORKS["lstm_on_gru"]()
    model, xs, ys, resets = model_of(_layerwise(cell)), *make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, estimator, xs, ys, resets)
    expected = by_backpropagation(model_of(cell), xs, ys, resets)
    assert worst_leaf(gradient.cell.layers[1], expected.cell.layers[1]) < 1e-10
    assert 1e-2 < relative_error(gradient.cell.layers[0], expected.cell.layers[0]) < 1


class Memoryless(eg.Cell):
    """A layer that forgets at once."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weight: jax.Array

    def initial(self):
        return jnp.zeros(self.units, self.weight.dtype)

    def step(self, state, x):
        return jnp.tanh(x @ self.weight)

    def output(self, state):
        return state


def test_layer_by_layer_is_exact_below_layers_without_memory():
    top = Memoryless(3, 2, jax.random.normal(jax.random.key(3), (3, 2)))
    cell = eg.Stack(eg.GRU(SYMBOLS, 3, key=jax.random.key(0)), eqx.nn.LayerNorm(3), top)
    model, xs, ys, resets = model_of(_layerwise(cell)), *make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model_of(cell), xs, ys, resets)) < 1e-10


class Passing(Memoryless):
    """The same with an output that sees x beside the state: a way past its state."""

    beside: jax.Array

    def output(self, state, x):
        return state + jnp.tanh(x @ self.beside)


def test_layer_by_layer_no_path_of_the_newest_step_is_lost():
    """Nor one that goes past the state of the layer between, nor that to the weights of its output."""
    one, two, three = (jax.random.normal(jax.random.key(i), (3, 3)) for i in (3, 4, 5))
    cell = eg.Stack(eg.GRU(SYMBOLS, 3, key=jax.random.key(0)), Passing(3, 3, one, two), Memoryless(3, 3, three))
    model, xs, ys, resets = model_of(_layerwise(cell)), *make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model_of(cell), xs, ys, resets)) < 1e-10


@pytest.mark.parametrize("depth", ["exact", "layerwise"])
def test_weights_in_the_output_of_a_lower_layer_are_trained(depth):
    """Those of an eLSTM's output gate, which reach the layer above it and nothing of their own: exact there in both ways."""
    keys = jax.random.split(jax.random.key(0), 3)
    cell = eg.Stack(eg.ELSTM(SYMBOLS, 3, key=keys[0]), eg.ELSTM(3, 2, key=keys[1]), depth=depth)
    model, xs, ys, resets = model_of(cell), *make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(), xs, ys, resets)
    expected = by_backpropagation(model, xs, ys, resets)
    assert relative_error(gradient.cell.layers[0].gate, expected.cell.layers[0].gate) < 1e-10
    assert worst_leaf(gradient.cell.layers[1], expected.cell.layers[1]) < 1e-10
    error = worst_leaf(gradient.cell.layers[0], expected.cell.layers[0])
    assert error < 1e-10 if depth == "exact" else error > 1e-2


def test_what_is_dropped_is_measured():
    """Probes against the exact share, from the gradients of every step with and without the paths that are left out."""
    from evergrad.lab.depth import dropped

    cell = NETWORKS["lstm_on_gru"]()
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    _, exact = eg.gradients(model_of(cell), eg.RTRL(), xs, ys, resets, key=jax.random.key(0))
    _, kept = eg.gradients(model_of(_layerwise(cell)), eg.RTRL(), xs, ys, resets, key=jax.random.key(0))

    def squares(a):
        return sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(a))

    found = dropped(model_of(cell), xs, ys, resets, probes=2000, key=jax.random.key(1))
    for number in range(2):
        whole, part = exact.cell.layers[number], kept.cell.layers[number]
        share = squares(jax.tree.map(jnp.subtract, whole, part)) / squares(whole)
        assert found[number].share == pytest.approx(share, rel=0.1, abs=1e-12)
        assert number == 1 or abs(found[number].share - share) < 4 * found[number].error
    assert found[0].share > 0.01
    assert str(found[1]) == "layer 2 (LSTM): nothing of the gradient is dropped"


# ---- what is refused ----------------------------------------------------------------------------------------------


class Odd(eg.Cell):
    """A cell that uses its matrix in some way that is no product with a vector."""

    how: str = eqx.field(static=True)
    weight: jax.Array
    inputs: int = eqx.field(static=True, default=4)
    units: int = eqx.field(static=True, default=4)

    def initial(self):
        return jnp.zeros(4, self.weight.dtype)

    def output(self, state):
        return state

    def step(self, state, x):
        w = self.weight
        if self.how == "normalised":
            return jnp.tanh(state @ (w / jnp.linalg.norm(w)) + x)
        if self.how == "both ways":
            return jnp.tanh((jnp.tanh(state @ w) @ w.T) + x)
        if self.how == "vmap":
            return jnp.tanh(jax.vmap(lambda v: v @ w)(jnp.stack([state, x])).sum(0))
        if self.how == "cond":
            return jax.lax.cond(x[0] > 0, lambda s: jnp.tanh(s @ w), lambda s: s, state) + x
        return jax.lax.scan(lambda s, _: (jnp.tanh(s @ w), None), state, None, length=2)[0] + x


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("normalised", "in something else than a product"),
        ("both ways", "both as v @ W and as W @ v"),
        ("vmap", "with several vectors at once"),
        ("scan", "inside a scan"),
        ("cond", "inside a condition"),
    ],
)
def test_a_large_matrix_used_otherwise_is_refused_by_name(how, said):
    cell = Odd(how, jax.random.normal(jax.random.key(0), (4, 4)))
    with pytest.raises(eg.InputError, match=rf"Odd\.weight \[4, 4\] is used {said}.*eg\.dense.*RTRL, UORO or TBPTT"):
        eg.OK(rank=2).check(cell)
    eg.RTRL().check(cell)


@pytest.mark.parametrize("how", ["normalised", "both ways", "vmap", "scan"])
def test_rtrl_trains_what_the_kronecker_family_refuses(how):
    model = model_of(Odd(how, 0.5 * jax.random.normal(jax.random.key(0), (4, 4))))
    xs, ys, resets = make_data(6, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(window=2), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10


class Vectors(eg.Cell):
    """More numbers in vectors than in its one small matrix."""

    scale: jax.Array
    mix: jax.Array | None
    inputs: int = eqx.field(static=True, default=3)
    units: int = eqx.field(static=True, default=12)

    def initial(self):
        return jnp.zeros(12, self.scale.dtype)

    def output(self, state):
        return state

    def step(self, state, x):
        mixed = jnp.tile(x, 4) if self.mix is None else jnp.tile(x @ self.mix, 12)
        return jnp.tanh(self.scale * state + mixed)


def test_cells_with_nothing_to_gain_are_refused():
    with pytest.raises(eg.InputError, match=r"12 parameters outside of its linear maps.*3 in them"):
        eg.OK(rank=2).check(Vectors(jnp.ones(12), jnp.ones((3, 1))))
    with pytest.raises(eg.InputError, match="no matrix that a step multiplies a vector by"):
        eg.KF().check(Vectors(jnp.ones(12), None))


def test_stacks_that_cannot_be_are_refused():
    lstm, gru = make_cell("lstm"), eg.GRU(5, 3, key=jax.random.key(0))
    for make, said in [
        (lambda: eg.Stack(), "no cell among them"),
        (lambda: eg.Stack(eqx.nn.Linear(3, 3, key=jax.random.key(0))), "no cell among them"),
        (lambda: eg.Stack(lstm, gru), "layer 2 of Stack, GRU, has inputs=5, but what comes from below has 3"),
        (lambda: eg.Stack(lstm, 7), "give cells, Equinox modules, or functions"),
        (lambda: eg.Stack(lstm, eqx.nn.Linear(4, 3, key=jax.random.key(0))), "does not take a vector of 3 numbers"),
        (lambda: eg.Stack(lstm, lambda x: x[None]), "does not make a vector of a vector"),
        (lambda: eg.Stack(lstm, see="bottom"), 'choose "top"'),
        (lambda: eg.Stack(lstm, depth="shallow"), 'choose "exact" or "layerwise"'),
        (lambda: eg.Stack(jnp.tanh, lstm), "inputs must be a whole number"),
    ]:
        with pytest.raises(eg.InputError, match=said):
            make()


class Growing(eg.Cell):
    weight: jax.Array
    inputs: int = eqx.field(static=True, default=3)
    units: int = eqx.field(static=True, default=3)

    def initial(self):
        return jnp.zeros(3)

    def output(self, state):
        return state

    def step(self, state, x):
        return jnp.concatenate([state @ self.weight, x])


class Spare(Growing):
    """A matrix that is defined and never used."""

    spare: eqx.nn.Linear = eqx.field(kw_only=True)

    def step(self, state, x):
        return jnp.tanh(state @ self.weight + x)


class Bare(Growing):
    """No parameters at all."""

    weight: jax.Array | None = None

    def step(self, state, x):
        return jnp.tanh(state + x)


def test_a_cell_without_parameters_is_refused():
    with pytest.raises(eg.InputError, match="Bare has no parameters, so there is nothing to train: give it arrays"):
        eg.Model(Bare(), eg.Softmax(3, 3, key=jax.random.key(0)))


def test_a_matrix_tied_with_the_readout_is_refused_by_name():
    weight, readout = jnp.eye(3), eg.Softmax(3, 3, key=jax.random.key(0))
    tied = eqx.tree_at(lambda r: r.weight, readout, weight)
    with pytest.raises(eg.InputError, match=r"Memoryless\.weight and Softmax\.weight are the same array.*`output`"):
        eg.Model(Memoryless(3, 3, weight), tied)
    eg.Model(Memoryless(3, 3, jnp.array(weight)), tied)


class Tied(Memoryless):
    """The matrix of the step again in the output, as W @ v."""

    def step(self, state, x):
        return jnp.tanh((state + x) @ self.weight)

    def output(self, state):
        return self.weight @ state


def test_a_matrix_that_the_output_uses_too_gets_both_gradients():
    model = model_of(Tied(3, 3, jax.random.normal(jax.random.key(3), (3, 3))))
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(window=5), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10
    eg.OK(rank=2).check(model.cell)


def test_what_is_wrong_with_a_cell_is_said():
    with pytest.raises(eg.InputError, match=r"gives another state \(\[6\]\) than `initial\(\)` \(\[3\]\)"):
        eg.Model(Growing(jnp.ones((3, 3))), eg.Softmax(3, 3, key=jax.random.key(0)))
    spare = Spare(jnp.ones((3, 3)), spare=eqx.nn.Linear(3, 3, key=jax.random.key(0)))
    with pytest.warns(UserWarning, match=r"neither `step` nor `output` looks at.*spare\.weight, spare\.bias"):
        eg.Model(spare, eg.Softmax(3, 3, key=jax.random.key(0)))


def test_what_is_frozen_is_not_trained():
    class Reservoir(eg.Cell):
        fixed: eg.Frozen
        inward: jax.Array
        inputs: int = eqx.field(static=True, default=3)
        units: int = eqx.field(static=True, default=4)

        def initial(self):
            return jnp.zeros(4, self.inward.dtype)

        def output(self, state):
            return state

        def step(self, state, x):
            return jnp.tanh(state @ self.fixed.value + x @ self.inward)

    key = jax.random.key(0)
    cell = Reservoir(eg.Frozen(0.4 * jax.random.normal(key, (4, 4))), jax.random.normal(key, (3, 4)))
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    for estimator in (eg.RTRL(), eg.OK(rank=2, window=3), eg.UORO()):
        learner = eg.Learner(model_of(cell), estimator, optax.adamw(1e-2, weight_decay=0.1))
        state, _ = learner.run(learner.init(batch=BATCH, key=key), xs, ys, resets)
        assert bool((state.model.cell.fixed.value == cell.fixed.value).all())
        assert not bool((state.model.cell.inward == cell.inward).any())


def test_an_output_may_see_x():
    class Skip(eg.Cell):
        inner: eg.RNN
        inputs: int = eqx.field(static=True, default=3)
        units: int = eqx.field(static=True, default=6)

        def initial(self):
            return self.inner.initial()

        def step(self, state, x):
            return self.inner.step(state, x)

        def output(self, state, x):
            return jnp.concatenate([self.inner.output(state), x])

    model = model_of(Skip(make_cell("rnn", scale=1.5)))
    xs, ys, resets = make_data(STEPS, BATCH, resets=0.2)
    _, gradient = summed(model, eg.RTRL(window=2), xs, ys, resets)
    assert worst_leaf(gradient, by_backpropagation(model, xs, ys, resets)) < 1e-10


def _true_influence(cell, window):
    from tests.estimators.test_unbiased import situation

    xs, resets = situation(window)
    return carried_influence(with_window(eg.RTRL(), window), cell, xs, resets, jax.random.key(0))


# ---- out and in again ----------------------------------------------------------------------------------------------


def _stacks():
    one, two, three = jax.random.split(jax.random.key(0), 3)
    return {
        "lstms": eg.Stack(eg.LSTM(3, 5, key=one), eg.LSTM(5, 5, key=two)),
        "mixed": eg.Stack(eg.GRU(3, 4, key=one), eg.LSTM(4, 2, key=two), eg.RNN(2, 3, key=three)),
    }


@pytest.mark.parametrize("name", ["lstms", "mixed"])
def test_a_stack_goes_out_to_onnx_and_comes_back(name, tmp_path):
    import onnxruntime

    from evergrad.export import export_onnx, import_onnx

    model = cast(model_of(_stacks()[name]), jnp.float32)
    export_onnx(model, tmp_path / "m.onnx")
    back = cast(import_onnx(tmp_path / "m.onnx"), jnp.float32)
    assert eqx.tree_equal(back, model)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    xs = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    states = [i for i in session.get_inputs() if i.name != "x"]
    (ys,) = session.run(["y"], {"x": xs} | {i.name: np.zeros((1, 2, i.shape[2]), np.float32) for i in states})
    learner = eg.Learner(model, eg.TBPTT(horizon=1, stride=1), optax.sgd(0.0))
    state = learner.init(batch=2, key=jax.random.key(0))
    _, out = learner.run(state, xs, np.zeros((6, 2), int))
    np.testing.assert_allclose(ys, out.predictions, atol=1e-6)


def test_a_stack_of_equal_layers_goes_out_to_pytorch_and_comes_back(tmp_path):
    from evergrad.export import export_safetensors, import_safetensors

    model = cast(model_of(_stacks()["lstms"]), jnp.float32)
    export_safetensors(model, tmp_path / "m.safetensors")
    assert eqx.tree_equal(cast(import_safetensors(tmp_path / "m.safetensors"), jnp.float32), model)
    with pytest.raises(eg.InputError, match="layers of one kind and size, not GRU 4, LSTM 2, RNN 3: export to ONNX"):
        export_safetensors(model_of(_stacks()["mixed"]), tmp_path / "m.safetensors")
    with pytest.raises(eg.InputError, match="a LayerNorm cannot be exported"):
        export_safetensors(model_of(eg.Stack(make_cell("lstm"), eqx.nn.LayerNorm(3))), tmp_path / "m.safetensors")
