"""The example of actor and critic: its gradients against the unrolled network, its worlds against their rules, and that it learns."""

import importlib.util
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evergrad as eg

_PATH = Path(__file__).parents[2] / "examples" / "reinforcement_learning.py"
_SPEC = importlib.util.spec_from_file_location("reinforcement_learning", _PATH)
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)
KEY = jax.random.key(0)


@pytest.mark.parametrize("cell", [eg.RTU, eg.LSTM])
def test_actor_and_critic_have_their_gradients_from_one_influence(cell):
    """Of log π(a), v and the entropy at the last of some steps, against jax.grad through all of them."""
    trainer = example.Trainer(example.Maze(4), lambda key: cell(example.INPUTS, 5, key=key), eg.RTRL())
    agent = trainer.start(KEY).agent
    xs = jax.random.normal(KEY, (6, 2, example.INPUTS))
    followed = trainer.follower.init(agent.cell, batch=2, key=KEY)
    for x in xs:
        followed, h = trainer.follower.step(agent.cell, followed, x)
    action = jnp.array([1, 2])
    (actor, critic), entropy = example.deltas(agent, h, action)
    actor, critic = (trainer.carried(trainer.follower.gradient, agent, followed, each) for each in (actor, critic))
    bonus = trainer.carried(trainer.follower.summed, agent, followed, entropy)

    def unrolled(agent, stream):
        state = agent.cell.initial()
        for x in xs[:, stream]:
            state = agent.cell.step(state, x)
        return agent.cell.output(state)

    def uncertainty(agent):
        logs = jnp.stack([jax.nn.log_softmax(agent.policy(unrolled(agent, b))) for b in range(2)])
        return -(jnp.exp(logs) * logs).sum(-1).mean()

    whole = {
        "actor": (actor, lambda agent, b: jax.nn.log_softmax(agent.policy(unrolled(agent, b)))[action[b]]),
        "critic": (critic, lambda agent, b: agent.value(unrolled(agent, b))[0]),
    }
    for found, function in whole.values():
        for b in range(2):
            same(jax.tree.map(lambda a, b=b: a[b], found), eqx.filter_grad(function)(agent, b))
    same(bonus, eqx.filter_grad(uncertainty)(agent))


def same(found, exact):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_the_rules_of_the_maze():
    maze = example.Maze(2)
    world = maze.begin(KEY)
    assert np.asarray(maze.look(world)[:2]).sum() == 1
    for _ in range(2):
        reward, over, _, world = maze.act(world, jnp.asarray(0), KEY)
        assert (float(reward), bool(over)) == (pytest.approx(-0.1), False)
        assert np.asarray(maze.look(world)[:2]).sum() == 0  # the cue is gone
    assert np.asarray(maze.look(world)[2:]).tolist() == [0, 1]
    for turn in (0, 1):
        reward, over, right, after = maze.act(world, jnp.asarray(turn + 1), KEY)
        assert bool(over)
        assert bool(right) == (turn == int(world.cue))
        assert float(reward) == pytest.approx(4.0 if right else -0.4)
        assert int(after.age) == 0


def test_a_perfect_critic_of_the_conditioning_sums_what_comes():
    task = example.Conditioning(4)
    world = example.World(jnp.asarray(1), jnp.asarray(0), jnp.asarray(0))
    said, rewards = [], []
    for _ in range(8):
        said.append(float(task.worth(world)))
        reward, _, _, world = task.act(world, jnp.asarray(0), KEY)
        rewards.append(float(reward))
    returns = [sum(r * example.DISCOUNT**i for i, r in enumerate(rewards[t:])) for t in range(8)]
    np.testing.assert_allclose(said, returns, rtol=1e-6)


def test_who_says_nothing_of_the_conditioning_has_the_error_that_it_is_measured_by():
    task = example.Conditioning(6)
    squares = []
    for cue in (0, 1):
        world = example.World(jnp.asarray(cue), jnp.asarray(0), jnp.asarray(0))
        over = False
        while not over:
            squares.append(float(task.worth(world)) ** 2)
            _, over, _, world = task.act(world, jnp.asarray(0), KEY)
    assert task.nothing() == pytest.approx(np.mean(squares), rel=1e-5)


def episodes(trainer, count):
    """Steps with weights that do not change: what each run was before it, and the surprise that it was told."""
    learn = trainer.learn

    @eqx.filter_jit
    def step(run):
        told = []
        trainer.learn = lambda run, surprise: told.append(surprise) or learn(run, surprise)
        after, _ = trainer.step(run)
        return after, told[0]

    run, found = trainer.start(KEY), []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for _ in range(count):
            after, surprise = step(run)
            found.append((run, surprise))
            run = after
    return run, found


def test_surprises_add_up_to_the_return_and_traces_end_with_an_episode():
    """Σ γᵗ d_t = return − v(first step) over an episode, since all else cancels; the trace of the value's bias is Σ (γλ)ⁱ."""
    task, decay, ages = example.Conditioning(3), 0.7, 5
    trainer = example.Trainer(task, lambda key: eg.LSTM(4, 3, key=key), eg.RTRL(), rate=0.0, decay=decay)
    length = task.length + 10
    run, told = episodes(trainer, length + ages)
    surprises = jnp.stack([surprise for _, surprise in told[1 : length + 1]])
    discounts = example.DISCOUNT ** jnp.arange(float(length))
    cue, first = told[0][0].world.cue, told[1][0].value
    returns = jnp.where(cue == 1, example.DISCOUNT ** (task.length - 1.0), 0.0)
    assert {0, 1} == set(np.asarray(cue).tolist())
    np.testing.assert_allclose(discounts @ surprises, returns - first, atol=1e-5)
    step = example.DISCOUNT * decay
    np.testing.assert_allclose(run.trace.value.bias[:, 0], (1 - step**ages) / (1 - step), rtol=1e-5)


def test_it_learns_to_turn_where_the_cue_said():
    """A corridor of five steps, and units that forget within it as they start: exact gradients teach them to hold the cue.

    A gradient that reaches back one step cannot. (RTU, and LSTM from `chrono`, hold it from the start: there the heads alone learn much.)
    """

    def rate(estimator):
        task, cell = example.Maze(5), lambda key: eg.MinGRU(4, 32, key=key)
        # optimisers are other people's code, and not all of it bears JAX's strict modes
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return example.last_fifth(example.train(task, cell, estimator, steps=1500, seed=5))[0]

    assert rate(eg.RTRL()) > 0.75
    assert rate(eg.TBPTT(horizon=1, stride=1)) < 0.6
