"""How weights start.

An initialisation is named by a text, "name" or "name:number", the same in Python and on the command line. It knows no
cell: a cell says what each of its gates is for (`KroneckerCell.roles`).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core import room
from evergrad._core.checks import InputError, is_traced, refuse_unless
from evergrad._core.not_none import not_none

# what a gate is for: σ(z) is the share of its old state that a unit keeps; σ(z) is the share of the new that it takes
# in, where that is a gate of its own; σ(z) is that share and 1 − σ(z) what is kept; z is what is new; anything else
KEEP, WRITE, UPDATE, CANDIDATE, OTHER = "keep", "write", "update", "candidate", "other"

INITIAL = {
    "normal": "N(0, 0.01²), the paper's",
    "fan_in": "uniform within ±1/√units",
    "forget:B": "fan_in, with the bias B for gates that keep",
    "chrono:T": "fan_in, with biases for memories of 1 to T steps",
    "orthogonal:R": "fan_in, with recurrent weights of the candidate of spectral radius R",
}
_FORMS = {form.partition(":")[0]: form for form in INITIAL}
_BOUNDS = {"forget": -math.inf, "chrono": 2.0, "orthogonal": 0.0}  # what the number must be above
_USUAL = {"forget": 1.0, "orthogonal": 1.0}  # the number where none is given


@dataclasses.dataclass(frozen=True)
class Initial:
    """An initialisation, read from its text."""

    text: str
    name: str
    number: float | None

    @property
    def spread(self) -> str:
        """How weights are drawn that no number is about."""
        return "normal" if self.name == "normal" else "fan_in"


def read_initial(text: str) -> Initial:
    """Refuses a text that names no initialisation."""
    name, colon, number = text.partition(":")
    refuse_unless(name in _FORMS, f'initial="{text}" is unknown: choose {_choices()}.')
    if name not in _BOUNDS:
        refuse_unless(not colon, f'initial="{text}": "{name}" takes no number.')
        return Initial(text, name, None)
    return Initial(text, name, _number(text, name, number) if colon else _usual(text, name))


def _number(text, name, number):
    above = f" above {_BOUNDS[name]:g}" if math.isfinite(_BOUNDS[name]) else ""
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    refuse_unless(
        math.isfinite(value) and value > _BOUNDS[name],
        f'initial="{text}": in "{_FORMS[name]}" ({INITIAL[_FORMS[name]]}) the number must be finite{above}.',
    )
    return value


def _usual(text, name):
    if name not in _USUAL:
        raise InputError(
            f'initial="{text}" needs a time scale, the longest lag in steps that a task may have: "{name}:100", say.'
        )
    return _USUAL[name]


def _choices():
    *most, last = (f'"{form}" ({words})' for form, words in INITIAL.items())
    return f"{', '.join(most)} or {last}"


def initial_weight(
    initial: str, shape: tuple[int, int], fan_in: int, *, key: jax.Array
) -> Float[Array, "rows columns"]:
    """Of an affine map without gates, for which only "normal" and "fan_in" mean something."""
    read = read_initial(initial)
    refuse_unless(
        read.number is None,
        f'initial="{initial}" is about gates, and there are none here: choose "normal" or "fan_in".',
    )
    return _drawn(read.spread, shape, fan_in, key)


def initial_gates(
    initial: str,
    shape: tuple[int, int],
    units: int,
    roles: tuple[str, ...],
    *,
    cell: str,
    key: jax.Array,
    fan_in: int | None = None,
) -> Float[Array, "p gn"]:
    """Of a cell whose gates have these roles; the last row is the biases, the `units` above it see h.

    `fan_in` is how many numbers a gate is fed with, if not the units.

    "forget:B" is the bias B for gates that keep, so that a unit forgets with a time constant of about exp(B) + 1.
    "chrono:T" (Tallec & Ollivier 2018) draws u uniformly from 1 to T − 1 for each unit: log u is the bias of the gate
    that keeps and −log u that of the gate that writes. Where one gate does both (RHN, GRU) it gets log u, and what is
    written, 1 − σ(log u) = σ(−log u), follows; −log u if it is the one that says what is written (minGRU). "orthogonal:R" makes the candidate's weights for h R times a random
    orthogonal matrix, whose eigenvalues all have the modulus R.
    """
    read = read_initial(initial)
    weight = _drawn(read.spread, shape, fan_in or units, key)
    if read.number is None:
        return weight
    wanted = CANDIDATE if read.name == "orthogonal" else KEEP
    refuse_unless(
        wanted in roles or (wanted == KEEP and UPDATE in roles),
        f'{cell}(initial="{initial}"): {_FORMS[read.name]} is about the gates with the role "{wanted}", and {cell} has '
        f"none ({_remedy(cell, wanted, roles)}).",
    )
    return _INITIALISERS[read.name](weight.reshape(shape[0], len(roles), units), roles, read.number, key).reshape(shape)


def _remedy(cell, wanted, roles):
    if roles:
        return 'use "orthogonal:R", or a cell with gates such as an LSTM'
    return f'say what its gates are for in `{cell}.roles`, "{wanted}" among them'


def _drawn(spread, shape, fan_in, key):
    if not is_traced(key):
        needed = math.prod(shape) * jnp.result_type(float).itemsize
        room.require(needed, f"an array of {shape[0]:,} x {shape[1]:,} weights", "use fewer units, inputs or outputs")
    if spread == "normal":
        return 0.01 * jax.random.normal(key, shape)
    bound = jnp.asarray(fan_in, jnp.result_type(float)) ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _forget(weight, roles, bias, key):
    return _with_biases(weight, roles, {KEEP: bias, UPDATE: -bias})


def _chrono(weight, roles, longest, key):
    u = _spans(longest, weight.shape[-1], key)
    return _with_biases(weight, roles, {KEEP: jnp.log(u), WRITE: -jnp.log(u), UPDATE: -jnp.log(u)})


def _spans(longest, units, key):
    return jax.random.uniform(jax.random.fold_in(key, 1), (units,), minval=1.0, maxval=longest - 1)


def _with_biases(weight, roles, biases):
    for gate, role in enumerate(roles):
        weight = weight.at[-1, gate].set(biases[role]) if role in biases else weight
    return weight


def _orthogonal(weight, roles, radius, key):
    units = weight.shape[-1]
    for gate in (gate for gate, role in enumerate(roles) if role == CANDIDATE):
        square = jax.random.orthogonal(jax.random.fold_in(key, 1 + gate), units)
        weight = weight.at[-1 - units : -1, gate].set(radius * square)
    return weight


_INITIALISERS = {"forget": _forget, "chrono": _chrono, "orthogonal": _orthogonal}


def initial_keep(initial: str, units: int, *, key: jax.Array) -> Float[Array, " n"] | None:
    """For units with a decay of their own in the place of a gate: the share of the old state that each keeps.

    The share that a gate with the bias of `initial_gates` would keep: σ(B) for "forget:B", u/(1 + u) for "chrono:T".
    None where the initialisation is not about that.
    """
    read = read_initial(initial)
    if read.name == "forget":
        return jnp.full(units, jax.nn.sigmoid(not_none(read.number)))
    if read.name == "chrono":
        return jax.nn.sigmoid(jnp.log(_spans(read.number, units, key)))
    return None
