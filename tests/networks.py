"""Networks built of linear maps, small enough for exact oracles."""

import equinox as eqx
import jax
import jax.numpy as jnp

import evergrad as eg

SYMBOLS = 3


def _wide_awake(module):
    """Weights large enough that gates are at work."""
    return jax.tree.map(lambda a: 1.5 * a if eqx.is_inexact_array(a) else a, module)


def _keys(count):
    return jax.random.split(jax.random.key(0), count)


def lstm_on_gru():
    one, two = _keys(2)
    return _wide_awake(eg.Stack(eg.GRU(SYMBOLS, 3, key=one), eg.LSTM(3, 2, key=two)))


def three_rhns():
    sizes = [(SYMBOLS, 2), (2, 3), (3, 2)]
    return _wide_awake(
        eg.Stack(*(eg.RHN(*s, key=k, initial="fan_in") for s, k in zip(sizes, _keys(3), strict=True)), see="all")
    )


def encoder_gru_norm_lstm():
    """An encoder in front, the GRU of two maps, a layer norm between the layers."""
    one, two, three = _keys(3)
    encoder = eqx.nn.MLP(SYMBOLS, 3, 4, 1, activation=jnp.tanh, key=one)
    layers = encoder, eg.GRU(3, 3, key=two, reset="before"), eqx.nn.LayerNorm(3), eg.LSTM(3, 2, key=three)
    return _wide_awake(eg.Stack(*layers))


def deep_rhn():
    return _wide_awake(eg.RHN(SYMBOLS, 3, key=jax.random.key(0), depth=3, initial="fan_in"))


def wide_lstm():
    return _wide_awake(eg.LSTM(SYMBOLS, 3, key=jax.random.key(0), peepholes=True, projection=2))


class Twice(eg.Cell):
    """One map used twice in a step, as W @ v, and a matrix of the cell's own in the ordinary way."""

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    inward: jax.Array
    shared: eqx.nn.Linear

    def __init__(self, inputs, units, *, key):
        one, two = jax.random.split(key)
        self.inputs, self.units = inputs, units
        self.inward = jax.random.normal(one, (inputs, units))
        self.shared = eqx.nn.Linear(units, units, key=two)

    def initial(self):
        return jnp.zeros(self.units, self.inward.dtype)

    def step(self, state, x):
        first = jnp.tanh(self.shared(state) + eg.dense(x, self.inward))
        return 0.5 * state + 0.5 * jnp.tanh(self.shared(first))

    def output(self, state):
        return state


def map_used_twice():
    return _wide_awake(Twice(SYMBOLS, 4, key=jax.random.key(0)))


class Foreign(eqx.Module):
    """A minimal gated unit as somebody else would write it, who knows nothing of this library."""

    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)
    gate: eqx.nn.Linear
    candidate: eqx.nn.Linear
    norm: eqx.nn.RMSNorm

    def __init__(self, input_size, hidden_size, *, key):
        one, two = jax.random.split(key)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.gate = eqx.nn.Linear(input_size + hidden_size, hidden_size, key=one)
        self.candidate = eqx.nn.Linear(input_size + hidden_size, hidden_size, key=two)
        self.norm = eqx.nn.RMSNorm(hidden_size)

    def __call__(self, x, hidden):
        forget = jax.nn.sigmoid(self.gate(jnp.concatenate([x, hidden])))
        new = jnp.tanh(self.norm(self.candidate(jnp.concatenate([x, forget * hidden]))))
        return (1 - forget) * hidden + forget * new


def foreign_module():
    return _wide_awake(eg.from_equinox(Foreign(SYMBOLS, 3, key=jax.random.key(0))))


NETWORKS = {
    make.__name__: make
    for make in (
        lstm_on_gru,
        three_rhns,
        encoder_gru_norm_lstm,
        deep_rhn,
        wide_lstm,
        map_used_twice,
        foreign_module,
    )
}
