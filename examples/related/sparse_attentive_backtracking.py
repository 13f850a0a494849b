"""Sparse attentive backtracking (Ke et al. 2018): gradients jump to the few past states that the network attends to.

    python examples/related/sparse_attentive_backtracking.py            # some minutes; writes RESULTS
    python examples/related/sparse_attentive_backtracking.py --quick    # seconds, proves nothing

An LSTM makes ĥ; every EVERY-th state is stored; of the M stored states m_i the κ with the highest scores are summed up,
and the sum is added to the state:

    s_i = w · tanh(ĥ Q + m_i K),      a = the κ largest s, made to sum to 1,      h = ĥ + Σ a_i m_i,      y = readout(h, Σ a_i m_i)

The gradient passes from h to the stored states that were attended to, and from every state to those before it, but there
over no boundary that is a multiple of k steps. So `jax.grad` of the whole sequence with the recurrent path cut every k steps
is the method; κ = M and k = T is full backpropagation through the attention network.

Cost: memory T·n a sequence and time T²·n/EVERY for the scores, both growing with the sequence: no method for endless
streams. It is an architecture with a gradient of its own, not an estimator for a given cell.

What was left open, and chosen here. The paper says that the scores are an MLP's; its released code has w · tanh([ĥ, m_i]),
in which ĥ adds the same number to every score and so decides nothing: here the MLP has a hidden layer. The released code
subtracts the κ-th score, which leaves κ − 1 states, and does not normalise where there are fewer than κ: here a is the
softmax of the κ largest (all of them where there are fewer). The loss is that of the answers only, so that a sequence is
one update for SAB as for chunked TBPTT.
"""

import argparse
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine

# the copy task of the paper with a shorter string: 5 letters of 8 (the paper: 10), and 100 steps later they are asked for
GAP, LETTERS, STRING = 100, 8, 5
UNITS, HIDDEN, STREAMS, CLIP = 32, 16, 16, 1.0
RATES, UNREPORTED = (3e-3, 1e-2, 3e-2), 100  # each method's own search, on a seed that is not reported
KAPPA, CUT, EVERY = 5, 10, 2  # κ attended states, k steps, every how many steps a state is stored
SEQUENCES, REPORT, SEEDS = 2400, 100, 3  # at most so many sequences a stream; a test after every REPORT of them
SOLVED, TESTED = 0.99, 256  # share of right answers at which a run ends, and the sequences of a test
RESULTS = Path("benchmarks/results/related/sparse_attentive_backtracking.json")
ASK, SYMBOLS, STEPS = LETTERS + 1, LETTERS + 2, GAP + 2 * STRING  # symbol 0 is the blank; T


class Reminded(eg.Cell):
    """The attention network; `cut` is k. Its state is the LSTM's, the stored states, what was recalled, and the time."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)  # what the readout sees: h and what was recalled
    steps: int = eqx.field(static=True)  # T, the longest sequence
    kappa: int = eqx.field(static=True)
    cut: int = eqx.field(static=True)
    every: int = eqx.field(static=True)
    lstm: eg.LSTM
    query: jax.Array
    keys: jax.Array
    score: jax.Array

    def __init__(self, inputs, units, hidden, *, steps, kappa, cut, every, key):
        lstm, query, keys, score = jax.random.split(key, 4)
        self.inputs, self.units, self.steps = inputs, 2 * units, steps
        self.kappa, self.cut, self.every = kappa, cut, every
        self.lstm = eg.LSTM(inputs, units, key=lstm)
        self.query, self.keys = (jax.random.normal(k, (units, hidden)) / units**0.5 for k in (query, keys))
        self.score = jax.random.normal(score, (hidden,)) / hidden**0.5

    def initial(self):
        n, dtype = self.lstm.units, self.query.dtype
        stored = jnp.zeros((self.steps // self.every, n), dtype)
        return self.lstm.initial(), stored, jnp.zeros(n, dtype), jnp.zeros((), dtype)

    def step(self, state, x):
        before, stored, _, t = state
        new = self.lstm.step(jnp.where(t % self.cut == 0, jax.lax.stop_gradient(before), before), x)
        filled = jnp.arange(len(stored), dtype=t.dtype) < t // self.every
        scores = jnp.tanh((new[0] @ self.query)[None] + stored @ self.keys) @ self.score
        recalled = sparse(jnp.where(filled, scores, -jnp.inf), self.kappa) @ stored
        h = new[0] + recalled
        place = jnp.asarray(t // self.every, jnp.int32)  # written until its turn is over: the last one stays
        stored = jax.lax.dynamic_update_index_in_dim(stored, h, place, 0)
        return new.at[0].set(h), stored, recalled, t + 1

    def output(self, state):
        return jnp.concatenate([state[0][0], state[2]])


def sparse(scores, kappa):
    """Softmax of the κ largest; zeros for the others, for those at −∞, and if all are."""
    larger = (scores[None] > scores[:, None]).sum(1)  # for so few numbers quicker than jax.lax.top_k
    kept = (larger < kappa) & jnp.isfinite(scores)
    safe = jnp.where(kept, scores, 0)
    weights = jnp.where(kept, jnp.exp(safe - jax.lax.stop_gradient(jnp.where(kept, scores, -1e9).max())), 0)
    return weights / jnp.maximum(weights.sum(), 1e-30)


def copy_task(key, batch, gap=GAP):
    """xs, ys [T, B] and the weights of the targets: 1 where the letters are to be said."""
    letters = jax.random.randint(key, (STRING, batch), 1, LETTERS + 1)
    blank = jnp.zeros((gap + STRING, batch), letters.dtype)
    xs = jnp.concatenate([letters, blank.at[gap - 1].set(ASK)])
    return xs, jnp.concatenate([blank, letters]), jnp.concatenate([jnp.zeros(blank.shape), jnp.ones(letters.shape)])


def network(key, *, steps=STEPS, kappa=KAPPA, cut=CUT, units=UNITS, hidden=HIDDEN):
    one, two = jax.random.split(key)
    cell = Reminded(SYMBOLS, units, hidden, steps=steps, kappa=kappa, cut=cut, every=EVERY, key=one)
    return eg.Model(cell, eg.Softmax(2 * units, SYMBOLS, key=two, initial="fan_in"))


def gradient(model, xs, ys, weights):
    """Sparse attentive backtracking: the mean loss of the answers, and its gradient along the paths that are kept."""
    return eqx.filter_value_and_grad(lambda m: m.losses(xs, ys, weights=weights).sum() / weights.sum())(model)


def backtracking(cut):
    """One update a sequence; cut = T is full backpropagation."""

    def start(key, optimiser):
        params, static = eqx.partition(network(key, cut=cut), eqx.is_inexact_array)

        def one(carry, data):
            params, opt_state = carry
            _, grads = gradient(eqx.combine(params, static), *data)
            updates, opt_state = optimiser.update(grads, opt_state)
            return (eqx.apply_updates(params, updates), opt_state), None

        many = jax.jit(lambda carry, data: jax.lax.scan(one, carry, data)[0])
        return (params, optimiser.init(params)), many, lambda carry: eqx.combine(carry[0], static)

    return start


def truncated(stride):
    """The same network, uncut, with the library's TBPTT of horizon CUT: chunked an update a sequence, rolling STRING.

    Before the answers no weight changes, and what is farther back than CUT steps is never looked at: those steps are only
    walked forwards, and the learner sees the last ones. That is TBPTT of all steps, at an eighth of the cost.
    """
    seen = CUT if stride > 1 else CUT + STRING - 1  # the stride of the answers, or the horizons of all answers

    def start(key, optimiser):
        model = network(key, cut=STEPS)
        learner = eg.Learner(model, eg.TBPTT(horizon=CUT, stride=stride), optimiser)
        # a stride's gradient is divided by its steps, not by its answers
        many = one_by_one(learner, seen, stride / STRING if stride > 1 else 1.0)
        return learner.init(batch=STREAMS, key=key), many, lambda state: state.model

    return start


def one_by_one(learner, seen, weight):
    """Trains on one sequence behind the other, on the last `seen` steps of each."""

    def one(state, data):
        state = eqx.tree_at(lambda s: s.hidden, state, walked(state.model.cell, data[0][:-seen]))
        xs, ys, weights = (a[-seen:] for a in data)
        return learner.run(state, xs, ys, weights=weights * weight)[0]

    def many(state, data):
        for sequence in zip(*data, strict=True):
            state = one(state, sequence)
        return state

    return many


@eqx.filter_jit
def walked(cell, xs):
    """The states [B, m], flat as the learner has them, after these inputs."""

    def step(states, x):
        return jax.vmap(cell.step)(states, jax.nn.one_hot(x, SYMBOLS)), None

    start = jax.vmap(lambda _: cell.initial())(xs[0])
    return jax.vmap(lambda state: jax.flatten_util.ravel_pytree(state)[0])(jax.lax.scan(step, start, xs)[0])


METHODS = {  # and how many sequences each gets: rolling TBPTT makes STRING updates of one, and has as many updates
    f"SAB, k = {CUT}": (backtracking(CUT), SEQUENCES),
    "full backpropagation": (backtracking(STEPS), SEQUENCES),
    f"TBPTT({CUT}) chunked": (truncated(CUT), SEQUENCES),
    f"TBPTT({CUT}) rolling": (truncated(1), SEQUENCES // STRING),
}


@eqx.filter_jit
def right(model, key):
    """The share of right answers to sequences that were never trained on."""
    xs, ys, weights = copy_task(key, TESTED)

    def step(state, x):
        state = jax.vmap(model.cell.step)(state, jax.nn.one_hot(x, SYMBOLS))
        return state, jax.vmap(lambda s: model.readout(model.cell.output(s)).argmax())(state)

    start = jax.vmap(lambda _: model.cell.initial())(jnp.arange(TESTED))
    said = jax.lax.scan(step, start, xs)[1]
    return ((said == ys) * weights).sum() / weights.sum()


def train(method, rate, seed, sequences, report=REPORT):
    """Until SOLVED or for so many sequences: the share of right answers after every report, and milliseconds a sequence."""
    optimiser = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(rate))
    key, data_key, test_key = jax.random.split(jax.random.key(seed), 3)
    carry, many, model_of = method(key, optimiser)
    shares, times = [], []
    for number in range(sequences // report):
        keys = jax.random.split(jax.random.fold_in(data_key, number), report)
        data = jax.vmap(lambda k: copy_task(k, STREAMS))(keys)
        start = time.perf_counter()
        carry = jax.block_until_ready(many(carry, data))
        times.append((time.perf_counter() - start) / report)
        shares.append(float(right(model_of(carry), test_key)))
        if shares[-1] >= SOLVED:
            break
    solved = report * len(shares) if shares[-1] >= SOLVED else None
    return {"solved_after": solved, "right": shares, "ms": 1e3 * float(np.median(times))}


def searched(method, sequences, report):
    """Every rate with all the sequences that a reported run has; the best first: solved soonest, or else right most often."""
    tried = {rate: train(method, rate, UNREPORTED, sequences, report) for rate in RATES}
    order = sorted(tried, key=lambda rate: (tried[rate]["solved_after"] or np.inf, -np.mean(tried[rate]["right"][-3:])))
    return {rate: tried[rate] for rate in order}


def said(name, found, sequences):
    runs, tried = found["runs"], {rate: round(run["right"][-1], 3) for rate, run in found["tried"].items()}
    return (
        f"{name}, Adam {found['rate']:g} (right at the end of the search: {tried}): right answers "
        f"{[round(run['right'][-1], 3) for run in runs]}, {SOLVED:.0%} after {[run['solved_after'] for run in runs]} of at most "
        f"{sequences} sequences a stream, {np.median([run['ms'] for run in runs]):.0f} ms a sequence of {STEPS} steps"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few sequences, one seed, nothing written")
    parser.add_argument(
        "--only", nargs="*", choices=METHODS, default=list(METHODS), help="leave the others as they are"
    )
    options = parser.parse_args()
    seeds, report = (1, 5) if options.quick else (SEEDS, REPORT)
    settings = {"gap": GAP, "string": STRING, "letters": LETTERS, "units": UNITS, "kappa": KAPPA, "every": EVERY}
    settings |= {"streams": STREAMS, "rates": RATES, "sequences": SEQUENCES, "seeds": seeds, "solved": SOLVED}
    for name in options.only:
        method, sequences = METHODS[name]
        sequences = 10 if options.quick else sequences
        tried = searched(method, sequences, report)
        rate = next(iter(tried))
        runs = [train(method, rate, seed, sequences, report) for seed in range(seeds)]
        found = {"rate": rate, "report": report, "tried": tried, "runs": runs}
        print(said(name, found, sequences), flush=True)
        if not options.quick:
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            results = known["results"] if known.get("settings") == json.loads(json.dumps(settings)) else {}
            document = {"product": "evergrad", "machine": machine(), "settings": settings}
            write_whole(RESULTS, json.dumps(document | {"results": results | {name: found}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
