"""The non-linearities that a cell can be given by name."""

import jax
import jax.numpy as jnp

from evergrad._core.checks import refuse_unless

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


def check_activation(name: str, cell: str) -> None:
    refuse_unless(name in ACTIVATIONS, f'{cell}(activation="{name}"): choose {" or ".join(map(repr, ACTIVATIONS))}.')
