"""Recurrent backpropagation (Almeida 1987, Pineda 1987; Liao et al. 2018): gradients of a state that has come to rest.

    python examples/related/recurrent_backpropagation.py            # minutes; writes RESULTS
    python examples/related/recurrent_backpropagation.py --quick    # seconds, proves nothing

Under a constant input the state settles, h* = f(h*, x; θ). With H = ∂f/∂h and F = ∂f/∂θ there and δ = dL/dh*,

    dL/dθ = δ (I − H)⁻¹ F = z F,      z (I − H) = δ,      residual r = δ − z (I − H)

plain     z ← z + r (that is z H + δ), r computed anew from z
Neumann   z ← z + r, r ← r H: after K + 1 rounds from z = 0 the sum Σ_{j ≤ K} δ Hʲ, which is TBPTT(K + 1) at the fixed point
CG        conjugate gradients on the normal equations (I − H)(I − H)ᵀ zᵀ = (I − H) δᵀ: needs H v as well as v H

Cost: one state kept, whatever K, against K states for backpropagation through the settling; one product with H a round, two
for CG. Gives up: all that happens on the way to the fixed point, and so every task in which the input moves.

What was left open, and chosen here. How long to go on: until ‖r‖ is a share ENOUGH of ‖δ‖. If it is not after ROUNDS rounds, or
the state has not settled before, `NotAtRest` is raised: a truncated sum is another gradient, and nobody would see it.
Plain starts at z = 0 (the paper: anywhere), and is then the same sequence as Neumann in exact arithmetic.

The task, after the paper's Hopfield network: an `eg.RNN` of 64 units is shown the upper half of an 8 x 8 digit and must come
to rest where its readout is the lower half. A fifth of the digits is never trained on.
"""

import argparse
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import evergrad as eg
from evergrad._core.files import write_whole
from evergrad._core.machine import machine

UNITS, BATCH, UPDATES, RATE, SEEDS = 64, 50, 600, 1e-3, 3
SETTLE, ROUNDS, ENOUGH = (
    300,
    300,
    1e-4,
)  # most steps to settle, most rounds, and the share of ‖h‖ or ‖δ‖ that is small enough
HORIZON = 20  # of TBPTT, through the first steps of the settling
HALF = 32  # of the 64 pixels
START = "orthogonal:0.95"  # recurrent weights that settle slowly, as those of the paper's Hopfield network do
RESULTS = Path("benchmarks/results/related/recurrent_backpropagation.json")


class NotAtRest(eg.InputError):
    """No fixed point was found, or the equation for its gradient was not solved."""


def repeat(advance, start, small, rounds):
    """`advance` until small(carry) or for so many rounds: the carry, and the rounds made."""

    def going(carry):
        return ~small(carry[0]) & (carry[1] < rounds)

    return jax.lax.while_loop(going, lambda carry: (advance(carry[0]), carry[1] + 1), (start, 0))


def settle(cell, x, steps=SETTLE, enough=ENOUGH):
    """The fixed point under a constant x, and ‖f(h) − h‖ / ‖f(h)‖ there."""

    def residual(carry):
        before, h = carry
        return jnp.linalg.norm(h - before) / jnp.maximum(jnp.linalg.norm(h), 1e-30)

    start = cell.initial(), cell.step(cell.initial(), x)

    def advance(carry):
        return (carry[1], cell.step(carry[1], x))

    found, _ = repeat(advance, start, lambda carry: residual(carry) <= enough, steps)
    return found[1], residual(found)


# A solver of z (I − H) = δ: what it starts from and one round. `back(v)` is v H, `forward(v)` is H v; a carry begins with z, r.


def plain(back, forward, delta):
    def advance(carry):
        z = carry[0] + carry[1]
        return z, delta - z + back(z)

    return (jnp.zeros_like(delta), delta), advance


def neumann(back, forward, delta):
    return (jnp.zeros_like(delta), delta), lambda carry: (carry[0] + carry[1], back(carry[1]))


def conjugate_gradient(back, forward, delta):
    def advance(carry):
        z, r, direction, square = carry
        image = direction - back(direction)
        length = square / jnp.maximum(jnp.sum(image**2), 1e-300)
        r = r - length * image
        steepest = r - forward(r)
        new = jnp.sum(steepest**2)
        return z + length * direction, r, steepest + new / jnp.maximum(square, 1e-300) * direction, new

    steepest = delta - forward(delta)
    return (jnp.zeros_like(delta), delta, steepest, jnp.sum(steepest**2)), advance


SOLVERS = {"plain": plain, "Neumann": neumann, "CG": conjugate_gradient}


def adjoint(cell, h, x, delta, solver, rounds=ROUNDS, enough=ENOUGH):
    """z of one stream, the residual's share of δ, and the rounds made."""
    _, pull = jax.vjp(lambda h: cell.step(h, x), h)

    def forward(v):
        return jax.jvp(lambda h: cell.step(h, x), (h,), (v,))[1]

    start, advance = SOLVERS[solver](lambda v: pull(v)[0], forward, delta)

    def share(carry):
        return jnp.linalg.norm(carry[1]) / jnp.maximum(jnp.linalg.norm(delta), 1e-30)

    found, made = repeat(advance, start, lambda carry: share(carry) <= enough, rounds)
    return found[0], share(found), made


def of_stream(model, x, y, solver, rounds=ROUNDS, enough=ENOUGH, steps=SETTLE, still=ENOUGH):
    """Loss, gradient and residuals (of the state, of the adjoint) of one stream, and the rounds."""
    h, moving = settle(model.cell, x, steps, still)

    def read(readout, h):
        return readout.loss(readout(model.cell.output(h)), y)

    loss, (of_readout, delta) = jax.value_and_grad(read, argnums=(0, 1))(model.readout, h)
    z, left, made = adjoint(model.cell, h, x, delta, solver, rounds, enough)
    of_cell = jax.vjp(lambda cell: cell.step(h, x), model.cell)[1](z)[0]
    return loss, eg.Model(of_cell, of_readout), (moving, left), made


@eqx.filter_jit
def of_those_at_rest(model, x, y, solver, *, steps=SETTLE, rounds=ROUNDS, enough=ENOUGH, still=ENOUGH):
    """Mean loss and gradient of the streams that are at rest and solved, the share of the others, residuals and rounds."""

    def each(x, y):
        return of_stream(model, x, y, solver, rounds, enough, steps, still)

    losses, grads, (moving, left), made = jax.vmap(each)(x, y)
    good = (moving <= still) & (left <= enough)
    share = jnp.asarray(good, losses.dtype) / jnp.maximum(good.sum(dtype=losses.dtype), 1)

    def mean(a):
        return jnp.tensordot(share, jnp.where(good.reshape(-1, *(1,) * (a.ndim - 1)), a, 0), 1)

    return mean(losses), jax.tree.map(mean, grads), (~good).mean(), (moving.max(), left.max()), made.max()


def gradient(model, x, y, solver, **limits):
    """Mean loss at rest and its gradient; refuses if a single stream is not at rest or not solved."""
    loss, grads, out, (moving, left), made = of_those_at_rest(model, x, y, solver, **limits)
    if out > 0:
        raise NotAtRest(
            f"{float(out):.0%} of the streams are not at rest or not solved: a state moves by up to {float(moving):.1e} of its size "
            f"when its steps are over, and after {int(made)} rounds of {solver} a residual is {float(left):.1e} of δ. There may be "
            "no fixed point, or H has eigenvalues near 1 or beyond: allow more, use CG, or smaller recurrent weights."
        )
    return loss, grads


def digits(seed):
    """Upper and lower halves [N, 32], −1 to 1; a fifth apart for the test."""
    images = (load_digits().data / 8 - 1).astype(np.float32)
    images = images[np.random.default_rng(seed).permutation(len(images))]
    cut = len(images) // 5
    return images[cut:], images[:cut]


def network(key, units=UNITS):
    one, two = jax.random.split(key)
    return eg.Model(eg.RNN(HALF, units, key=one, initial=START), eg.Linear(units, HALF, key=two, initial="fan_in"))


@eqx.filter_jit
def held_out(model, images):
    """Squared error a pixel at rest, and the share of digits whose state had not come to rest."""
    h, moving = jax.vmap(lambda x: settle(model.cell, x))(images[:, :HALF])
    guess = jax.vmap(lambda h: model.readout(model.cell.output(h)))(h)
    return ((guess - images[:, HALF:]) ** 2).mean(), (moving > ENOUGH).mean()


def batches(images, updates, seed):
    rng = np.random.default_rng(seed + 1)
    return (images[rng.integers(0, len(images), BATCH)] for _ in range(updates))


def train_rbp(solver, seed, updates):
    """Streams that `gradient` would refuse are left out of the mean, and counted."""
    train, test = digits(seed)
    model, optimiser = network(jax.random.key(seed)), optax.adam(RATE)
    state, rounds, left_out, times = optimiser.init(model), [], [], []
    advance = jax.jit(optimiser.update)
    for images in batches(train, updates, seed):
        start = time.perf_counter()
        _, grads, out, _, made = of_those_at_rest(model, images[:, :HALF], images[:, HALF:], solver)
        change, state = advance(grads, state, model)
        model = eqx.apply_updates(model, change)
        rounds.append(int(made))
        left_out.append(float(out))
        times.append(time.perf_counter() - start)
    first = next((at for at, out in enumerate(left_out) if out > 0), None)
    facts = {"rounds": float(np.median(rounds)), "left_out": float(np.mean(left_out)), "first_refused": first}
    return scores(model, test, times) | facts


def train_tbptt(stride, seed, updates):
    """Each batch is shown for HORIZON steps. Chunked: one update, from the last step's loss; rolling: one at every step."""
    train, test = digits(seed)
    learner = eg.Learner(network(jax.random.key(seed)), eg.TBPTT(horizon=HORIZON, stride=stride), optax.adam(RATE))
    state, times = learner.init(batch=BATCH, key=jax.random.key(seed)), []
    first, last = np.arange(HORIZON) == 0, np.arange(HORIZON) == HORIZON - 1
    resets = np.repeat(first[:, None], BATCH, 1)
    # a stride's gradient is divided by its steps, of which one has a target: its weight makes it the loss of that step
    weights = np.repeat((last * float(HORIZON) if stride > 1 else np.ones(HORIZON))[:, None], BATCH, 1)
    for images in batches(train, updates, seed):
        start = time.perf_counter()
        xs, ys = (np.broadcast_to(a, (HORIZON, *a.shape)) for a in (images[:, :HALF], images[:, HALF:]))
        state, _ = learner.run(state, xs, ys, resets, weights=weights)
        times.append(time.perf_counter() - start)
    return scores(state.model, test, times) | {"horizon": HORIZON, "stride": stride}


def scores(model, test, times):
    error, restless = held_out(model, test)
    return {"error": float(error), "restless": float(restless), "ms": 1e3 * float(np.median(times))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few updates, one seed, nothing written")
    quick = parser.parse_args().quick
    updates, seeds = (20, 1) if quick else (UPDATES, SEEDS)
    runs = {f"RBP, {name}": (lambda seed, name=name: train_rbp(name, seed, updates)) for name in SOLVERS}
    runs |= {"TBPTT chunked": lambda seed: train_tbptt(HORIZON, seed, updates)}
    # as many updates as the others
    runs |= {"TBPTT rolling": lambda seed: train_tbptt(1, seed, updates // HORIZON)}
    found = {name: [run(seed) for seed in range(seeds)] for name, run in runs.items()}
    for name, rows in found.items():
        said = {key: [row[key] and round(row[key], 4) for row in rows] for key in rows[0]}
        print(f"{name}, {HORIZON if name == 'TBPTT rolling' else 1} update(s) a batch: {said}", flush=True)
    settings = {"units": UNITS, "batch": BATCH, "updates": updates, "rate": RATE, "enough": ENOUGH, "seeds": seeds}
    document = {"product": "evergrad", "machine": machine(), "settings": settings, "results": found}
    if not quick:
        write_whole(RESULTS, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
