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
    actor, critic, bonus = trainer.deltas(agent, followed, h, action)

    def unrolled(agent, stream):
        state = agent.cell.initial()
        for x in xs[:, stream]:
            state = agent.cell.step(state, x)
        return agent.cell.output(state)

    def entropy(agent, b):
        logs = jax.nn.log_softmax(agent.policy(unrolled(agent, b)))
        return -(jnp.exp(logs) * logs).sum()

    whole = {
        "actor": (actor, lambda agent, b: jax.nn.log_softmax(agent.policy(unrolled(agent, b)))[action[b]]),
        "critic": (critic, lambda agent, b: agent.value(unrolled(agent, b))[0]),
        "entropy": (bonus, entropy),
    }
    for found, function in whole.values():
        for b in range(2):
            exact = eqx.filter_grad(function)(agent, b)
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
                np.testing.assert_allclose(ours[b], theirs, atol=1e-10)


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


def test_it_learns_to_turn_where_the_cue_said():
    """A corridor of five steps: exact gradients on RTU turn right in most episodes; a gradient that reaches back one step cannot."""

    def rate(estimator):
        task, cell = example.Maze(5), lambda key: eg.RTU(4, 32, key=key)
        # optimisers are other people's code, and not all of it bears JAX's strict modes
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return example.last_fifth(example.train(task, cell, estimator, steps=1500, seed=5))

    assert rate(eg.RTRL()) > 0.85
    assert rate(eg.TBPTT(horizon=1, stride=1)) < 0.75
