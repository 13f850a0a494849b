"""Sparse attentive backtracking: full backpropagation where nothing is left out, and exactly what is left out elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sparse_attentive_backtracking as sab

STEPS, SYMBOLS = 6, 4


def model(kappa=STEPS, cut=STEPS, every=2):
    one, two = jax.random.split(jax.random.key(0))
    cell = sab.Reminded(SYMBOLS, 5, 3, steps=STEPS, kappa=kappa, cut=cut, every=every, key=one)
    return sab.eg.Model(cell, sab.eg.Softmax(10, SYMBOLS, key=two, initial="fan_in"))


def data():
    xs, ys = np.random.default_rng(1).integers(0, SYMBOLS, (2, STEPS, 1))
    return xs, ys, jnp.ones((STEPS, 1))


def written_out(model, xs, ys, *, constant=lambda m: m):
    """The mean loss of the attention network as the equations have it, step by step and with a list. Nothing is cut.

    `constant` may be stop_gradient: no path through the stored states, as in TBPTT.
    """
    cell, total, state, stored = model.cell, 0.0, model.cell.lstm.initial(), []
    for t in range(STEPS):
        state = cell.lstm.step(state, jnp.eye(SYMBOLS)[xs[t, 0]])
        scores = [jnp.tanh(state[0] @ cell.query + m @ cell.keys) @ cell.score for m in stored]
        shares = jax.nn.softmax(jnp.stack(scores)) if stored else []
        recalled = sum((a * m for a, m in zip(shares, stored, strict=True)), jnp.zeros_like(state[0]))
        state = state.at[0].add(recalled)
        if (t + 1) % cell.every == 0:
            stored.append(constant(state[0]))
        total += model.readout.loss(model.readout(jnp.concatenate([state[0], recalled])), jnp.asarray(ys[t, 0]))
    return total / STEPS


def far(a, b):
    a, b = (jax.flatten_util.ravel_pytree(tree)[0] for tree in (a, b))
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


def wanted(**settings):
    xs, ys, _ = data()
    return eqx.filter_value_and_grad(lambda m: written_out(m, xs, ys, **settings))(model())


def test_with_all_states_and_no_cut_it_is_full_backpropagation_and_a_missing_path_is_seen():
    """The planted error: the stored states are taken as constants, as TBPTT takes them."""
    loss, gradient = sab.gradient(model(), *data())
    full_loss, full = wanted()
    assert abs(float(loss) - float(full_loss)) < 1e-12
    assert far(gradient, full) < 1e-10
    assert far(wanted(constant=jax.lax.stop_gradient)[1], full) > 1e-3


def test_a_cut_changes_the_gradient_but_not_the_loss():
    (whole_loss, whole), (loss, cut) = sab.gradient(model(), *data()), sab.gradient(model(cut=2), *data())
    assert float(loss) == float(whole_loss)
    assert far(cut, whole) > 1e-3


def last_loss_by_first_input(every):
    """The gradient of the last step's loss by the very first input, which is beyond every cut."""
    xs, ys, _ = data()
    net = model(cut=2, every=every)

    def loss(first):
        inputs = jnp.eye(SYMBOLS)[xs[:, 0]].at[0].add(first)
        state = jax.lax.scan(lambda s, x: (net.cell.step(s, x), None), net.cell.initial(), inputs)[0]
        return net.readout.loss(net.readout(net.cell.output(state)), jnp.asarray(ys[-1, 0]))

    return float(jnp.linalg.norm(jax.grad(loss)(jnp.zeros(SYMBOLS))))


def test_the_gradient_jumps_over_the_cut_along_stored_states_only():
    """With `every` = T nothing is stored in time to be attended to."""
    assert last_loss_by_first_input(every=2) > 1e-8
    assert last_loss_by_first_input(every=STEPS) == 0.0


def test_attention_is_the_softmax_of_the_largest():
    scores = jnp.array([0.3, 2.0, -1.0, 1.5, -jnp.inf])
    found = sab.sparse(scores, 2)
    assert jnp.allclose(found, jnp.zeros(5).at[jnp.array([1, 3])].set(jax.nn.softmax(scores[jnp.array([1, 3])])))
    assert jnp.allclose(sab.sparse(scores, 9)[:4], jax.nn.softmax(scores[:4]))
    assert jnp.all(sab.sparse(jnp.full(3, -jnp.inf), 2) == 0)


def test_the_copy_task_asks_for_what_it_showed():
    xs, ys, weights = sab.copy_task(jax.random.key(0), 3)
    assert xs.shape == (sab.STEPS, 3)
    assert jnp.all(xs[: sab.STRING] == ys[-sab.STRING :])
    assert jnp.all(xs[sab.STRING + sab.GAP - 1] == sab.ASK)
    assert float(weights.sum()) == 3 * sab.STRING
    assert jnp.all((weights == 1) == (ys > 0))


@pytest.mark.parametrize("stride", [1, sab.CUT])
def test_walking_to_the_answers_is_tbptt_of_all_steps(stride, monkeypatch):
    """Two sequences, against the library's own run over all their steps. The planted error: a step too few is seen."""
    monkeypatch.setattr(sab, "STREAMS", 2)
    model = sab.network(jax.random.key(0), units=4, hidden=3, cut=sab.STEPS)
    weight = stride / sab.STRING if stride > 1 else 1.0
    seen = sab.CUT if stride > 1 else sab.CUT + sab.STRING - 1
    data = jax.vmap(lambda key: sab.copy_task(key, 2))(jax.random.split(jax.random.key(1), 2))

    def learner():
        return sab.eg.Learner(model, sab.eg.TBPTT(horizon=sab.CUT, stride=stride), optax.sgd(0.5))

    def walked(seen):
        many = sab.one_by_one(learner(), seen, weight)
        return many(learner().init(batch=2, key=jax.random.key(2)), data).model

    xs, ys, weights = (a.reshape(-1, 2) for a in data)
    resets = jnp.broadcast_to((jnp.arange(len(xs)) % sab.STEPS == 0)[:, None], xs.shape)
    state = learner().init(batch=2, key=jax.random.key(2))
    whole = learner().run(state, xs, ys, resets, weights=weights * weight)[0].model
    assert far(*map(sab.eg.parameters, (walked(seen), whole))) < 1e-12
    assert far(*map(sab.eg.parameters, (model, whole))) > 1e-4  # there is something to be right about
    if stride == 1:
        assert far(*map(sab.eg.parameters, (walked(seen - 2), whole))) > 1e-9
