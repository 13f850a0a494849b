"""Learning without a horizon from rewards: an actor and a critic from one influence, TD(λ) traces on top.

T-maze (Bakker 2002): which way to turn is shown at the start only, then comes a corridor, and at its end the turn: +4 if it is right,
−0.4 if it is wrong, −0.1 for every step. Trace conditioning: a stimulus, and `isi` steps later a reward; the critic alone has to
say what is coming.

    ĥ_t → h_t by the cell, with the influence of its weights carried along (`eg.Follower`)
    z ← γλ z + ∇ log π(a_t | h_t) + ∇ v(h_t)                           the δ of actor and critic, contracted with one influence
    d_t = r_{t+1} + γ v(h_{t+1}) − v(h_t)                              none of the future after an episode's last step
    θ ← θ + Adam(mean over streams of d_t z + β ∇ entropy)             z is 0 before an episode's first step

Everyone has the same cell size, streams, rate and steps, and updates once a step; only what carries the gradient differs.

    python examples/reinforcement_learning.py                                  # corridor 10, all learners, three seeds
    python examples/reinforcement_learning.py --corridor 20 --steps 100000 --only rtu,ok
    python examples/reinforcement_learning.py --task trace --corridor 20
"""

import argparse
import time
from collections.abc import Iterator, Sequence
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
STEPS = {"maze": {10: 60_000, 20: 100_000, 40: 150_000}, "trace": {10: 20_000, 20: 20_000, 40: 20_000}}
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
    "tbptt64": ("LSTM, TBPTT(64, stride 1)", lambda lag, key: _lstm(lag, key), eg.TBPTT(horizon=64, stride=1)),
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

    def nothing(self):
        """The mean squared error of a critic that always says nothing; one that knows the time, but not the stimulus, has half of it."""
        ages = jnp.arange(self.length + 10)
        worlds = World(jnp.ones_like(ages), ages, ages)
        return float((jax.vmap(self.worth)(worlds) ** 2).mean()) / 2


TASKS = {"maze": Maze, "trace": Conditioning}


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
    trace: Agent  # of actor and critic, B in front
    value: jax.Array  # v of the step before
    paid: jax.Array  # the reward after it
    bonus: Agent  # the gradient of the entropy then
    key: jax.Array


class Trainer:
    """`decay` is λ of the traces: 0 learns from the newest step alone, TD(0)."""

    def __init__(self, task, cell, estimator, *, rate=RATE, decay=LAMBDA, entropy=ENTROPY):
        self.task, self.cell, self.follower = task, cell, eg.Follower(estimator)
        self.decay, self.entropy = decay, entropy
        self.optimiser = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(rate))

    def start(self, key) -> Run:
        keys = jax.random.split(key, 6)
        cell = self.cell(keys[0])
        seen = type(cell).seen_of_unit * cell.units
        agent = Agent(cell, eg.Linear(seen, ACTIONS, key=keys[1]), eg.Linear(seen, 1, key=keys[2]))
        zeros = jax.tree.map(lambda a: jnp.zeros((BATCH, *a.shape), a.dtype), parameters(agent))
        world = jax.vmap(self.task.begin)(jax.random.split(keys[3], BATCH))
        followed = self.follower.init(cell, batch=BATCH, key=keys[4])
        nothing = jnp.zeros(BATCH)
        bonus = jax.tree.map(lambda a: a[0], zeros)
        state = self.optimiser.init(parameters(agent))
        return Run(agent, state, followed, world, jnp.ones(BATCH, bool), zeros, nothing, nothing, bonus, keys[5])

    def step(self, run: Run, _=None):
        """One step of all streams: look, learn from the reward before, act."""
        key, act, world_key = jax.random.split(run.key, 3)
        x = jax.vmap(self.task.look)(run.world)
        followed, h = self.follower.step(run.agent.cell, run.followed, x, run.new)
        after = jnp.where(run.new, 0.0, _said(run.agent, h))  # nothing comes after an episode's last reward
        agent, optimiser = self.learn(run, run.paid + DISCOUNT * after - run.value)

        # anew, by the weights that this step's gradients are taken with
        value = _said(agent, h)
        action = jax.random.categorical(act, jax.vmap(agent.policy)(h))
        newest, bonus = self.gradients(agent, followed, h, action)
        keep = jnp.where(run.new, 0.0, DISCOUNT * self.decay)  # an episode's trace ends with it
        trace = jax.tree.map(lambda z, g: z * keep.reshape(-1, *[1] * (g.ndim - 1)) + g, run.trace, newest)
        wrong = jnp.zeros(BATCH) if self.task.actor else (value - jax.vmap(self.task.worth)(run.world)) ** 2
        reward, over, right, world = jax.vmap(self.task.act)(run.world, action, jax.random.split(world_key, BATCH))
        paid = reward.astype(value.dtype)
        return Run(agent, optimiser, followed, world, over, trace, value, paid, bonus, key), (over, right, wrong)

    def learn(self, run, surprise):
        def descent(trace, bonus):
            return -((surprise.reshape(-1, *[1] * (trace.ndim - 1)) * trace).mean(0) + self.entropy * bonus)

        gradient = jax.tree.map(descent, run.trace, run.bonus)
        updates, optimiser = self.optimiser.update(gradient, run.optimiser, parameters(run.agent))
        return eqx.apply_updates(run.agent, updates), optimiser

    def gradients(self, agent, followed, h, action):
        """What this step adds to every stream's trace, and the mean gradient of the entropy, for who acts.

        Actor and critic are told the same surprise and forget at the same pace: their traces are kept as one, that of δ_π + δ_v.
        """
        (actor, critic), entropy = deltas(agent, h, action)
        if not self.task.actor:
            newest = self.carried(self.follower.gradient, agent, followed, critic)
            return newest, jax.tree.map(lambda a: jnp.zeros_like(a[0]), newest)
        newest = self.carried(self.follower.gradient, agent, followed, jax.tree.map(jnp.add, actor, critic))
        return newest, self.carried(self.follower.summed, agent, followed, entropy)

    def carried(self, by, agent, followed, asked):
        """The gradient with the cell's weights in it, of each stream or of all, by the one influence."""
        heads, delta = asked
        return Agent(by(agent.cell, followed, delta), *heads)


def deltas(agent, h, action):
    """The gradients for both heads, and δ for h: of log π(a) and of v for every stream, of the entropy its mean over streams."""
    heads = agent.policy, agent.value

    def chosen(heads, h, a):
        return jax.nn.log_softmax(heads[0](h))[a]

    def worth(heads, h, a):
        return heads[1](h)[0]

    def entropy(both):
        logs = jax.nn.log_softmax(jax.vmap(both[0][0])(both[1]))
        return -(jnp.exp(logs) * logs).sum(-1).mean()

    each = [_by_stream(function, heads, h, action) for function in (chosen, worth)]
    return each, eqx.filter_grad(entropy)((heads, h))


def _said(agent, h):
    """What the critic says of every stream."""
    return jax.vmap(agent.value)(h)[:, 0]


def _by_stream(function, heads, h, action):
    """The gradient for the heads and for h, of every stream."""

    def one(h, a):
        return eqx.filter_grad(lambda both: function(*both, a))((heads, h))

    return jax.vmap(one)(h, action)


class Part(NamedTuple):
    """What happened in a part of a run: episodes that ended, how many of them well, and the critic's squared error a step."""

    step: int
    episodes: int
    successes: int
    error: float


def parts(trainer: Trainer, run: Run, steps: int, count: int = 20, done: int = 0) -> Iterator[tuple[Run, Part]]:
    """The run after each of `count` parts of it, those that are `done` left out."""
    length = steps // count
    _, fixed = eqx.partition(run, eqx.is_array)

    @jax.jit
    def advance(arrays):
        def step(arrays, _):
            run, seen = trainer.step(eqx.combine(arrays, fixed))
            return eqx.filter(run, eqx.is_array), seen

        arrays, (over, right, wrong) = jax.lax.scan(step, arrays, length=length)
        return arrays, over.sum(), (over & right).sum(), wrong.mean()

    for at in range(done, count):
        arrays, over, right, wrong = advance(eqx.filter(run, eqx.is_array))
        run = eqx.combine(arrays, fixed)
        yield run, Part((at + 1) * length, int(over), int(right), float(wrong))


def train(task, cell, estimator, *, steps: int, seed: int, **settings: float) -> list[Part]:
    trainer = Trainer(task, cell, estimator, **settings)
    return [part for _, part in parts(trainer, trainer.start(jax.random.key(seed)), steps)]


def last_fifth(found: Sequence[Part]) -> tuple[float, float]:
    """The share of episodes that ended well, and the critic's squared error."""
    last = found[-max(1, len(found) // 5) :]
    episodes = sum(part.episodes for part in last)
    return sum(part.successes for part in last) / max(1, episodes), sum(part.error for part in last) / len(last)


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    said.add_argument("--task", choices=tuple(TASKS), default="maze")
    said.add_argument("--corridor", type=int, default=10, help="steps from the cue to the turn, or to the reward")
    said.add_argument("--steps", type=int, help="of 16 streams")
    said.add_argument("--seeds", type=int, default=3)
    said.add_argument("--only", default=",".join(LEARNERS), help="some of them, a,b,c")
    args = said.parse_args()
    unknown = set(args.only.split(",")) - set(LEARNERS)
    if unknown:
        said.error(f"--only {args.only}: no learner {', '.join(sorted(unknown))}; there are {', '.join(LEARNERS)}.")
    task, steps = TASKS[args.task](args.corridor), args.steps or STEPS[args.task].get(args.corridor, 60_000)
    figure = "success" if task.actor else f"squared error of the return (saying nothing: {task.nothing():.2g})"
    print(f"{args.task} {args.corridor}: {figure} in the last fifth of {steps:,} steps, one number a seed")
    for name in args.only.split(","):
        words, cell, estimator = LEARNERS[name]
        began, figures = time.perf_counter(), []
        for seed in range(args.seeds):
            curve = train(task, lambda key, c=cell: c(args.corridor, key), estimator, steps=steps, seed=seed)
            figures.append(f"{last_fifth(curve)[0 if task.actor else 1]:.2g}")
        spent = 1000 * (time.perf_counter() - began) / steps / args.seeds
        print(f"{words}: {' '.join(figures)} ({spent:.2f} ms a step, compiling included)", flush=True)
    if task.actor and args.corridor in REFERENCE:
        print(f"released records of others (n = 64, 16 streams, TD(0)): {REFERENCE[args.corridor]}")


if __name__ == "__main__":
    main()
