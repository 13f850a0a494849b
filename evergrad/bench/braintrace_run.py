"""braintrace's UORO, in an environment of its own: `python braintrace_run.py FILE`, a round for every line it reads.

FILE has the symbols to learn and the weights to start from, so that both sides train the same network. The
first line written holds the losses of the first round, each further one the seconds a step of a round, all as JSON.

Of what braintrace offers this is the fastest that works: `compile` with the batch within the graph (mapped over the batch,
as its guide prefers, UORO's random keys cannot be initialised in braintrace 0.2.6), gradients and Adam inside one compiled
loop, and a GRU with one `Linear` a gate in the reset-after form, which is ours; its own `GRUCell`, reset before, takes longer.
"""

import json
import sys
import time
import warnings

import brainstate
import braintools
import braintrace
import jax
import jax.numpy as jnp
import numpy as np


class Network(brainstate.nn.Module):
    """A GRU, reset after, and a readout. `rows` is the weight of `eg.GRU`: rows x, h, 1; columns r, z, aₓ, aₕ."""

    def __init__(self, rows, readout, bias):
        super().__init__()
        self.units, inputs = len(readout), len(rows) - len(readout) - 1
        both, x, h = slice(0, -1), slice(0, inputs), slice(inputs, -1)
        gates = zip((both, both, x, h), np.split(rows, 4, axis=1), strict=True)
        self.reset, self.update_gate, self.of_x, self.of_h = (_linear(w[part], w[-1]) for part, w in gates)
        self.readout = _linear(readout, bias)

    def init_state(self, batch_size=None, **_):
        self.h = brainstate.HiddenState(jnp.zeros((batch_size, self.units)))

    def update(self, x):
        h = self.h.value
        both = jnp.concatenate([x, h], axis=-1)
        reset, update = jax.nn.sigmoid(self.reset(both)), jax.nn.sigmoid(self.update_gate(both))
        self.h.value = (1 - update) * jnp.tanh(self.of_x(x) + reset * self.of_h(h)) + update * h
        return self.readout(self.h.value)


def _linear(weight, bias):
    return braintrace.nn.Linear(*weight.shape, w_init=jnp.asarray(weight), b_init=jnp.asarray(bias))


def loop(network, xs, ys, rate):
    """A compiled loop with an update at every step; returns the losses."""
    learner = braintrace.compile(network, braintrace.UORO, xs[0], batch_size=xs.shape[1])
    weights = network.states().subset(brainstate.ParamState)
    optimiser = braintools.optim.Adam(rate)
    optimiser.register_trainable_weights(weights)

    def loss(x, y):
        return braintools.metric.softmax_cross_entropy_with_integer_labels(learner(x), y).mean()

    def step(x, y):
        gradient, value = brainstate.transform.grad(loss, weights, return_value=True)(x, y)
        optimiser.update(gradient)
        return value

    return brainstate.transform.jit(lambda: brainstate.transform.for_loop(step, xs, ys))


def main(file):
    warnings.simplefilter("ignore")  # the readout has no influence to carry, which is as it should be
    given = np.load(file)
    xs = jax.nn.one_hot(given["xs"], len(given["rows"]) - len(given["readout"]) - 1)
    run = loop(
        Network(given["rows"], given["readout"], given["bias"]), xs, jnp.asarray(given["ys"]), float(given["rate"])
    )
    losses = jax.block_until_ready(run())  # compiles
    print(json.dumps(np.asarray(losses).tolist()), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(run())
        print(json.dumps((time.perf_counter() - start) / len(xs)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
