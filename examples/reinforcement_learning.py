"""Learning without a horizon from rewards: an actor and a critic from one influence, TD(λ) traces on top.

T-maze (Bakker 2002): which way to turn is shown at the start only, then comes a corridor, and at its end the turn: +4 if it is right,
−0.4 if it is wrong, −0.1 for every step. Trace conditioning: a stimulus, and `isi` steps later a reward; the critic alone has to
say what is coming.

    ĥ_t → h_t by the cell, with the influence of its weights carried along (`eg.Follower`)
    z_π ← γλ z_π + ∇ log π(a_t | h_t)      z_v ← γλ z_v + ∇ v(h_t)                two contractions of one influence
    d_t = r_{t+1} + γ v(h_{t+1}) − v(h_t)       θ ← θ + Adam(mean over streams of d_t (z_π + z_v) + β ∇ entropy)

Everyone has the same cell size, streams, rate and steps, and updates once a step; only what carries the gradient differs.

    python examples/reinforcement_learning.py                                  # corridor 10, all learners, three seeds
    python examples/reinforcement_learning.py --corridor 20 --steps 100000 --only rtu,ok
    python examples/reinforcement_learning.py --task trace --corridor 20
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import evergrad as eg
from evergrad.extend import parameters

UNITS, BATCH, RATE, CLIP = 64, 16, 3e-3, 1.0
DISCOUNT, LAMBDA, ENTROPY = 0.98, 0.9, 0.01
ACTIONS, INPUTS = 3, 4  # ahead, left, right; the cue (two), the corridor, the junction
STEPS = {10: 60_000, 20: 100_000, 40: 150_000}
LEARNERS = {
    "rtu": ("RTU, exact RTRL", lambda lag, key: eg.RTU(INPUTS, UNITS, key=key), eg.RTRL()),
    "mingru": (
        "MinGRU, exact RTRL",
        lambda lag, key: eg.MinGRU(INPUTS, UNITS, key=key, initial=f"chrono:{2 * lag}"),
        eg.RTRL(),
    ),
    "ok": ("LSTM, OK(8, window 16)", lambda lag, key: _lstm(lag, key), eg.OK(rank=8, window=16)),
    "tbptt8": ("LSTM, TBPTT(8, stride 1)", lambda lag, key: _lstm(lag, key), eg.TBPTT(horizon=8, stride=1)),
    "tbptt32": ("LSTM, TBPTT(32, stride 1)", lambda lag, key: _lstm(lag, key), eg.TBPTT(horizon=32, stride=1)),
}
# FIELD.md G1: tanh RNN, RTU and LRU of 64 units, 16 streams, rate 3e-4, TD(0); success in the last fifth, three seeds
REFERENCE = {
    10: "RTU .99 1.0 .99, exact tanh .90 .96 .87, LRU .90 .97 .87, SnAp-1 .46 .69 .50, TBPTT .59 .62 .92",
    20: "RTU .75 .88 .86, exact tanh .51 .65 .82, SnAp-1 about .5",
    40: "RTU .63 .21 .82, exact tanh .5",
}


def _lstm(lag, key):
    return eg.LSTM(INPUTS, UNITS, key=key, initial=f"chrono:{2 * lag}")


class World(NamedTuple):
    """One stream's: which way is right (0, 1), how far along, steps since the start."""

    cue: jax.Array
    at: jax.Array
    age: jax.Array


def _seen(cue, shown, *flags):
    """The cue if it is shown, and what else there is to see, as numbers."""
    one = jnp.where(shown, jax.nn.one_hot(cue, 2), 0.0)
    return jnp.concatenate([one, jnp.asarray(jnp.stack([jnp.asarray(flag) for flag in flags]), one.dtype)])


class Maze:
    """A corridor of `length` steps. After three times as many without a turn an episode is over, and was no success."""

    actor = True

    def __init__(self, length: int):
        self.length = length

    def begin(self, key):
        cue = jax.random.randint(key, (), 0, 2)
        return World(cue, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def look(self, world):
        start, end = world.age == 0, world.at == self.length
        return _seen(world.cue, start, ~end, end)

    def act(self, world, action, key):
        """The reward, whether the episode is over, whether it was a success, and the world after it."""
        end, turns = world.at == self.length, action > 0
        over = (end & turns) | (world.age + 1 >= 3 * self.length + 3)
        right = end & turns & (action - 1 == world.cue)
        reward = jnp.where(right, 4.0, jnp.where(end & turns, -0.4, -0.1))
        ahead = jnp.where(turns | end, world.at, world.at + 1)
        after = World(world.cue, ahead, world.age + 1)
        return reward, over, right, jax.tree.map(lambda a, b: jnp.where(over, a, b), self.begin(key), after)


class Conditioning:
    """A stimulus of two kinds, one of which is followed by a reward of 1 after `length` steps; then ten steps of nothing."""

    actor = False

    def __init__(self, length: int):
        self.length = length

    def begin(self, key):
        return World(jax.random.randint(key, (), 0, 2), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def look(self, world):
        rewarded = (world.age == self.length) & (world.cue == 1)
        return _seen(world.cue, world.age == 0, True, rewarded)

    def act(self, world, action, key):
        reward = jnp.where((world.age + 1 == self.length) & (world.cue == 1), 1.0, 0.0)
        over = world.age + 1 == self.length + 10
        after = World(world.cue, world.at, world.age + 1)
        return reward, over, over, jax.tree.map(lambda a, b: jnp.where(over, a, b), self.begin(key), after)

    def worth(self, world):
        """The discounted reward that is to come in this episode: what a perfect critic says."""
        left = self.length - world.age
        return jnp.where(
            (world.cue == 1) & (left > 0),
            DISCOUNT ** jnp.asarray(jnp.maximum(left - 1, 0), jnp.result_type(float)),
            0.0,
        )


class Agent(eqx.Module):
    cell: Any
    policy: eg.Linear
    value: eg.Linear


class Run(NamedTuple):
    """All that changes."""

    agent: Agent
    optimiser: Any
    followed: eg.Followed
    world: World
    new: jax.Array  # [B], whether an episode begins
    traces: tuple[Agent, Agent]  # of actor and critic, B in front
    value: jax.Array  # v of the step before
    paid: jax.Array  # the reward after it
    bonus: Agent  # the gradient of the entropy then
    key: jax.Array


class Trainer:
    def __init__(self, task, cell, estimator, *, rate=RATE):
        self.task, self.cell, self.follower = task, cell, eg.Follower(estimator)
        self.optimiser = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(rate))

    def start(self, key) -> Run:
        keys = jax.random.split(key, 5)
        cell = self.cell(keys[0])
        seen = type(cell).seen_of_unit * cell.units
        agent = Agent(cell, eg.Linear(seen, ACTIONS, key=keys[1]), eg.Linear(seen, 1, key=keys[2]))
        zeros = jax.tree.map(lambda a: jnp.zeros((BATCH, *a.shape), a.dtype), parameters(agent))
        world = jax.vmap(self.task.begin)(jax.random.split(keys[3], BATCH))
        followed = self.follower.init(cell, batch=BATCH, key=keys[4])
        nothing = jnp.zeros(BATCH)
        bonus = jax.tree.map(lambda a: a[0], zeros)
        state = self.optimiser.init(parameters(agent))
        return Run(
            agent, state, followed, world, jnp.ones(BATCH, bool), (zeros, zeros), nothing, nothing, bonus, keys[4]
        )

    def gradients(self, agent, followed, delta, heads):
        """Of every stream: δ carried to the cell's weights by the influence, beside the gradient of the heads."""
        cell = self.follower.gradient(agent.cell, followed, delta)
        return eqx.tree_at(lambda a: (a.cell, a.policy, a.value), parameters(agent), (cell, *heads))

    def step(self, run: Run, _=None):
        """One step of all streams: look, learn from the reward before, act."""
        key, act, world_key = jax.random.split(run.key, 3)
        agent, x = run.agent, jax.vmap(self.task.look)(run.world)
        followed, h = self.follower.step(agent.cell, run.followed, x, run.new)
        value = jax.vmap(agent.value)(h)[:, 0]
        surprise = run.paid + DISCOUNT * jnp.where(run.new, 0.0, value) - run.value
        agent, optimiser = self.learn(run, surprise)

        logits = jax.vmap(agent.policy)(h)
        action = jax.random.categorical(act, logits)
        actor, critic, bonus = self.deltas(agent, followed, h, action)
        keep = jnp.where(run.new, 0.0, DISCOUNT * LAMBDA)  # an episode's trace ends with it
        traces = tuple(
            jax.tree.map(lambda z, g: z * keep.reshape(-1, *[1] * (g.ndim - 1)) + g, old, new)
            for old, new in zip(run.traces, (actor, critic), strict=True)
        )
        error = (value - jax.vmap(self.task.worth)(run.world)) ** 2 if not self.task.actor else jnp.zeros(BATCH)
        reward, over, right, world = jax.vmap(self.task.act)(run.world, action, jax.random.split(world_key, BATCH))
        bonus = jax.tree.map(lambda a: a.mean(0), bonus)
        return Run(agent, optimiser, followed, world, over, traces, value, reward, bonus, key), (over, right, error)

    def learn(self, run, surprise):
        acts = float(self.task.actor)

        def ascent(actor, critic, bonus):
            said = surprise.reshape(-1, *[1] * (actor.ndim - 1))
            return -((said * (acts * actor + critic)).mean(0) + acts * ENTROPY * bonus)

        gradient = jax.tree.map(ascent, *run.traces, run.bonus)
        updates, optimiser = self.optimiser.update(gradient, run.optimiser, parameters(run.agent))
        return eqx.apply_updates(run.agent, updates), optimiser

    def deltas(self, agent, followed, h, action):
        """Gradients of log π(a), of v and of the entropy: three δ, one influence."""
        heads = agent.policy, agent.value

        def chosen(heads, h, a):
            return jax.nn.log_softmax(heads[0](h))[a]

        def worth(heads, h, a):
            return heads[1](h)[0]

        def entropy(heads, h, a):
            logs = jax.nn.log_softmax(heads[0](h))
            return -(jnp.exp(logs) * logs).sum()

        found = []
        for function in (chosen, worth, entropy):
            in_heads, delta = _by_stream(function, heads, h, action)
            found.append(self.gradients(agent, followed, delta, in_heads))
        return found


def _by_stream(function, heads, h, action):
    """The gradient for the heads and for h, of every stream."""

    def one(h, a):
        return eqx.filter_grad(lambda both: function(*both, a))((heads, h))

    return jax.vmap(one)(h, action)


def train(
    task, cell, estimator, *, steps: int, seed: int, rate: float = RATE, reports: int = 20
) -> list[dict[str, float]]:
    """Success rate of the episodes of each part of the run, or the critic's squared error beside that of saying nothing."""
    trainer = Trainer(task, cell, estimator, rate=rate)
    run = trainer.start(jax.random.key(seed))
    arrays, rest = eqx.partition(run, eqx.is_array)

    @jax.jit
    def part(arrays):
        def step(arrays, _):
            run, seen = trainer.step(eqx.combine(arrays, rest))
            return eqx.filter(run, eqx.is_array), seen

        arrays, (over, right, error) = jax.lax.scan(step, arrays, length=steps // reports)
        return arrays, over.sum(), (over & right).sum(), error.mean()

    found = []
    for at in range(reports):
        arrays, over, right, error = part(arrays)
        share = int(right) / max(1, int(over))
        found.append(
            {"step": (at + 1) * (steps // reports), "success": share, "error": float(error), "episodes": int(over)}
        )
    return found


def last_fifth(found: list[dict[str, float]], name: str = "success") -> float:
    last = found[-max(1, len(found) // 5) :]
    episodes = sum(each["episodes"] for each in last)
    return sum(each[name] * each["episodes"] for each in last) / max(1, episodes)


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    said.add_argument("--task", choices=("maze", "trace"), default="maze")
    said.add_argument("--corridor", type=int, default=10, help="steps from the cue to the turn, or to the reward")
    said.add_argument("--steps", type=int, help="of 16 streams")
    said.add_argument("--seeds", type=int, default=3)
    said.add_argument("--only", help=f"some of {','.join(LEARNERS)}")
    said.add_argument("--out", type=Path, help="a JSON file for the curves")
    args = said.parse_args()
    task = (Maze if args.task == "maze" else Conditioning)(args.corridor)
    steps = args.steps or STEPS.get(args.corridor, 60_000)
    figure = "success" if task.actor else "error"
    document = {"product": "evergrad", "task": args.task, "corridor": args.corridor, "steps": steps, "streams": BATCH}
    document |= {
        "units": UNITS,
        "rate": RATE,
        "discount": DISCOUNT,
        "lambda": LAMBDA,
        "updates_per_sample": 1,
        "rows": [],
    }
    print(f"{args.task} {args.corridor}: {figure} in the last fifth of {steps:,} steps, one number a seed")
    for name in args.only.split(",") if args.only else LEARNERS:
        words, cell, estimator = LEARNERS[name]
        began = time.perf_counter()
        curves = [
            train(task, lambda key, c=cell: c(args.corridor, key), estimator, steps=steps, seed=s)
            for s in range(args.seeds)
        ]
        spent = 1000 * (time.perf_counter() - began) / steps / args.seeds
        shown = " ".join(f"{last_fifth(curve, figure):.2g}" for curve in curves)
        print(f"{words}: {shown} ({spent:.2f} ms a step, compiling included)", flush=True)
        document["rows"].append({"learner": words, "milliseconds_a_step": spent, "curves": curves})
        if args.out:
            args.out.write_text(json.dumps(document, indent=1) + "\n")
    if task.actor and args.corridor in REFERENCE:
        print(f"released records of others (n = 64, 16 streams, TD(0)): {REFERENCE[args.corridor]}")


if __name__ == "__main__":
    main()
