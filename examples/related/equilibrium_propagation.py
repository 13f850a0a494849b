"""Equilibrium propagation (Scellier & Bengio 2017): two relaxations of an energy instead of a backward pass.

    python examples/related/equilibrium_propagation.py            # minutes; writes RESULTS
    python examples/related/equilibrium_propagation.py --quick    # seconds, proves nothing

Units s settle where an energy is least; the image x is held, y nudges the output units o with a strength β:

    E(s) = ½ Σ s² − Σ_l ρ(s_l) W_l ρ(s_{l+1}) − Σ b ρ(s),      C = ½ ‖o − y‖²,      ṡ = −∂(E + βC)/∂s

With s_β where E + βC is least, the gradient of the loss C(s_0) is the difference of two *local* derivatives:

    dC/dθ = lim_{β→0} (∂E/∂θ(s_β) − ∂E/∂θ(s_0)) / β         one-sided: error O(β)
          = lim_{β→0} (∂E/∂θ(s_β) − ∂E/∂θ(s_{−β})) / 2β      symmetric: error O(β²), a third relaxation

∂E/∂W_l is −ρ(s_l)ρ(s_{l+1})ᵀ: each weight sees its two units, in two phases. Cost: two or three relaxations a sample, no state
kept but the last. Needs an energy, that is symmetric weights, and inputs that stand still: not for driven recurrent networks.

What was left open, and chosen here. ρ is the logistic function σ(4s − 2), a smooth form of the paper's hard one (whose kinks
have no slope in β). Relaxation is Euler's method with step STEP; the nudged phases start from s_0. The paper draws β's sign at
random to lessen the bias; the symmetric form (Laborieux et al. 2021) does that without noise. Weights start at Glorot's
scale. One rate for all layers and Adam, where the paper tunes a rate for each layer.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine

PIXELS, HIDDEN, CLASSES = 64, 128, 10
STEP, FREE, NUDGED = 0.25, 40, 15  # Euler's step, and how many in the free phase and in a nudged one
BETA, RATE, BATCH, EPOCHS, SEEDS = 0.5, 3e-3, 50, 20, 3
HORIZON = 10  # of TBPTT through the same relaxation
BETAS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # at which the error of the estimates is shown
RESULTS = Path("benchmarks/results/related/equilibrium_propagation.json")


def rho(s):
    return jax.nn.sigmoid(4 * s - 2)


def uniform(key, shape):
    """Glorot's."""
    return (6 / sum(shape)) ** 0.5 * jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


class Energy(eg.Cell):
    """The network; as an `eg.Cell` its step is one of Euler's in the free phase, so that TBPTT can train it too."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    weights: tuple[jax.Array, ...]  # between layer l and l + 1, both ways
    biases: tuple[jax.Array, ...]

    def __init__(self, sizes, *, key):
        self.inputs, self.units = sizes[0], sizes[-1]
        shapes = list(itertools.pairwise(sizes))
        keys = jax.random.split(key, len(shapes))
        self.weights = tuple(map(uniform, keys, shapes))
        self.biases = tuple(jnp.zeros(n) for n in sizes[1:])

    def energy(self, state, x):
        seen = [x, *(rho(s) for s in state)]
        pairs = sum(seen[i] @ w @ seen[i + 1] for i, w in enumerate(self.weights))
        alone = sum(b @ r for b, r in zip(self.biases, seen[1:], strict=True))
        return 0.5 * sum(jnp.sum(s**2) for s in state) - pairs - alone

    def initial(self):
        return tuple(jnp.full_like(b, 0.5) for b in self.biases)

    def step(self, state, x):
        return self.nudged(state, x, 0.0, jnp.zeros(self.units, state[-1].dtype))

    def nudged(self, state, x, beta, y):
        """One step of Euler's on E + βC."""

        def total(s):
            return self.energy(s, x) + beta * cost(s, y)

        return jax.tree.map(lambda s, slope: s - STEP * slope, state, jax.grad(total)(state))

    def output(self, state):
        return state[-1]


def cost(state, y):
    return 0.5 * jnp.sum((state[-1] - y) ** 2)


def relax(net, state, x, beta, y, steps):
    return jax.lax.fori_loop(0, steps, lambda _, s: net.nudged(s, x, beta, y), state)


def estimate(net, x, y, beta, symmetric, free=FREE, nudged=NUDGED):
    """The cost in the free phase and the estimate of its gradient, of one sample."""
    rest = relax(net, net.initial(), x, 0.0, y, free)

    def slope(state):
        return jax.grad(lambda net: net.energy(state, x))(net)

    towards = slope(relax(net, rest, x, beta, y, nudged))
    if symmetric:
        away, width = slope(relax(net, rest, x, -beta, y, nudged)), 2 * beta
    else:
        away, width = slope(rest), beta
    return cost(rest, y), jax.tree.map(lambda a, b: (a - b) / width, towards, away)


def batch_estimate(net, x, y, beta, symmetric, **phases):
    losses, grads = jax.vmap(lambda x, y: estimate(net, x, y, beta, symmetric, **phases))(x, y)
    return losses.mean(), jax.tree.map(lambda a: a.mean(0), grads)


def exact(net, x, y, steps):
    """Backpropagation through a relaxation of so many steps; with enough of them, the gradient of C at rest."""

    def loss(net):
        settled, _ = jax.lax.scan(lambda s, _: (net.step(s, x), None), net.initial(), length=steps)
        return cost(settled, y)

    return jax.grad(loss)(net)


def slopes(net, x, y, betas=BETAS, steps=1000):
    """Relative errors of both estimates at every β, for one sample and phases long enough to be at rest."""

    def flat(tree):
        return jax.flatten_util.ravel_pytree(tree)[0]

    wanted = flat(exact(net, x, y, steps))
    rows = []
    for beta in betas:
        found = [flat(estimate(net, x, y, beta, symmetric, steps, steps)[1]) for symmetric in (False, True)]
        rows.append([float(jnp.linalg.norm(a - wanted) / jnp.linalg.norm(wanted)) for a in found])
    return rows


def digits(seed):
    """Pixels within 0 and 1, one-hot targets and labels; a fifth apart for the test."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x, labels = (data.data / 16).astype(np.float32)[order], data.target[order]
    cut = len(x) // 5
    return (x[cut:], labels[cut:]), (x[:cut], labels[:cut])


def one_hot(labels):
    return np.eye(CLASSES, dtype=np.float32)[labels]


@eqx.filter_jit
def wrong(net, x, labels):
    """The share of samples whose strongest output unit is not that of the label."""
    rest = jax.vmap(lambda x: relax(net, net.initial(), x, 0.0, jnp.zeros(CLASSES), FREE))(x)
    return (jnp.argmax(rest[-1], axis=1) != labels).mean()


def batches(x, labels, epochs, seed):
    rng = np.random.default_rng(seed + 1)
    for _ in range(epochs):
        for rows in np.split(rng.permutation(len(x))[: len(x) // BATCH * BATCH], len(x) // BATCH):
            yield x[rows], one_hot(labels[rows])


def train_ep(symmetric, seed, epochs):
    (x, labels), test = digits(seed)
    net, optimiser = Energy((PIXELS, HIDDEN, CLASSES), key=jax.random.key(seed)), optax.adam(RATE)
    state, times = optimiser.init(net), []

    @jax.jit
    def update(net, state, x, y):
        _, grads = batch_estimate(net, x, y, BETA, symmetric)
        change, state = optimiser.update(grads, state)
        return optax.apply_updates(net, change), state

    for images, targets in batches(x, labels, epochs, seed):
        start = time.perf_counter()
        net, state = jax.block_until_ready(update(net, state, images, targets))
        times.append(time.perf_counter() - start)
    return {"wrong": float(wrong(net, *test)), "updates_a_batch": 1} | clock(times)


class AsItIs(eg.Readout):
    """The output units themselves, with the squared error; its weights are not used, and so never change."""

    units: int = eqx.field(static=True)
    weight: jax.Array
    bias: jax.Array

    def __init__(self, units):
        self.units, self.weight, self.bias = units, jnp.eye(units), jnp.zeros(units)

    def __call__(self, h):
        return h

    def predict(self, z):
        return z

    def loss(self, z, y):
        return 0.5 * jnp.sum((z - y) ** 2)

    def check(self, y, lead, weights):
        pass


def train_tbptt(stride, seed, epochs):
    """The same network, TBPTT through the last HORIZON steps of its relaxation; rolling has the target at each of them."""
    (x, labels), test = digits(seed)
    net = Energy((PIXELS, HIDDEN, CLASSES), key=jax.random.key(seed))
    estimator = eg.TBPTT(horizon=HORIZON, stride=stride)
    learner = eg.Learner(eg.Model(net, AsItIs(CLASSES)), estimator, optax.adam(RATE))
    state, times, at = learner.init(batch=BATCH, key=jax.random.key(seed)), [], np.arange(FREE)
    resets = np.repeat((at == 0)[:, None], BATCH, 1)
    asked = at >= FREE - HORIZON if stride == 1 else at == FREE - 1
    weights = np.repeat(asked[:, None] * float(stride), BATCH, 1)  # a stride's gradient is divided by its steps
    for images, targets in batches(x, labels, epochs, seed):
        start = time.perf_counter()
        xs, ys = (np.broadcast_to(a, (FREE, *a.shape)) for a in (images, targets))
        state, _ = learner.run(state, xs, ys, resets, weights=weights)
        times.append(time.perf_counter() - start)
    facts = {"horizon": HORIZON, "stride": stride, "updates_a_batch": int(asked.sum())}
    return {"wrong": float(wrong(state.model.cell, *test))} | facts | clock(times)


def clock(times):
    return {"batches": len(times), "ms": 1e3 * float(np.median(times))}


def show_slopes(seed=0):
    """In double precision: the errors at all β, and the slope of each line between its ends on logarithmic axes."""
    with jax.enable_x64(True):
        net = Energy((PIXELS, 16, CLASSES), key=jax.random.key(seed))
        (x, labels), _ = digits(seed)
        rows = slopes(net, jnp.asarray(x[0], float), jnp.asarray(one_hot(labels[0]), float))
    errors = np.array(rows)
    fall = np.log(errors[2] / errors[-1]) / np.log(BETAS[2] / BETAS[-1])
    for beta, (one, two) in zip(BETAS, rows, strict=True):
        print(f"β = {beta}: relative error one-sided {one:.1e}, symmetric {two:.1e}")
    print(f"slope from β = {BETAS[2]} to {BETAS[-1]}: one-sided {fall[0]:.2f}, symmetric {fall[1]:.2f}", flush=True)
    return {"betas": BETAS, "errors": rows, "slopes": fall.tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one epoch, one seed, nothing written")
    quick = parser.parse_args().quick
    epochs, seeds = (1, 1) if quick else (EPOCHS, SEEDS)
    runs = {f"EP, symmetric, β = {BETA}": (lambda seed: train_ep(True, seed, epochs))}
    runs |= {f"EP, one-sided, β = {BETA}": lambda seed: train_ep(False, seed, epochs)}
    runs |= {"TBPTT chunked": lambda seed: train_tbptt(HORIZON, seed, epochs)}
    # as many updates as the others
    runs |= {"TBPTT rolling": lambda seed: train_tbptt(1, seed, max(1, epochs // HORIZON))}
    document = {"product": "evergrad", "machine": machine(), "slopes": show_slopes()}
    document["settings"] = {"sizes": (PIXELS, HIDDEN, CLASSES), "rate": RATE, "batch": BATCH, "epochs": epochs}
    document["settings"] |= {"beta": BETA, "step": STEP, "free": FREE, "nudged": NUDGED, "seeds": seeds}
    document["results"] = {}
    for name, run in runs.items():
        rows = document["results"][name] = [run(seed) for seed in range(seeds)]
        print(
            f"{name}: wrong on held-out digits {[round(row['wrong'], 4) for row in rows]}, {rows[0]['updates_a_batch']} update(s) "
            f"a batch of {BATCH}, {rows[0]['batches']} batches, {np.median([row['ms'] for row in rows]):.1f} ms a batch",
            flush=True,
        )
    if not quick:
        write_whole(RESULTS, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
