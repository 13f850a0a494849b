from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._cells.forms import ByForm
from evergrad._cells.initial import CANDIDATE, KEEP, initial_gates
from evergrad._core.checks import refuse_unless, require_key, whole_number


def _two_sigmoids(z: Array) -> Array:
    return 2 * jax.nn.sigmoid(z) - 1


_SQUASH = {"sigmoid": _two_sigmoids, "tanh": jnp.tanh}


def _check_squash(squash: str) -> None:
    refuse_unless(squash in _SQUASH, f'RHN(squash="{squash}"): choose "sigmoid" (2σ−1, the paper\'s) or "tanh".')


class RHN(KroneckerCell, metaclass=ByForm):
    """Recurrent highway network of depth one: h' = f·h + (1−f)·c, f = σ(z²), c = squash(z¹).

    `squash` is "sigmoid" for the 2σ−1 of the paper's runs, or "tanh". Starts at N(0, 0.01²), as those runs do. With
    `depth=2` or more a step makes so many such transitions, each with weights of its own: a `DeepRHN`.
    Reference: Zilly et al. 2017.

    Examples:
        >>> eg.RHN(inputs=3, units=8, key=key).weight.shape  # two gates
        (12, 16)
        >>> type(eg.RHN(inputs=3, units=8, depth=2, key=key)).__name__
        'DeepRHN'
    """

    gates: ClassVar[tuple[str, ...]] = ("xh1", "xh1")  # candidate, carry gate
    roles: ClassVar[tuple[str, ...]] = (CANDIDATE, KEEP)
    squash: str = eqx.field(static=True)

    def __init__(self, inputs, units, *, key=None, initial="normal", mask=None, squash="sigmoid", depth=1):
        _check_squash(squash)
        KroneckerCell.__init__(self, inputs, units, key=key, initial=initial, mask=mask)
        self.squash = squash

    @staticmethod
    def form(options: dict[str, Any]) -> type[Cell] | None:
        depth = options.get("depth", 1)
        whole_number(depth, 1, f"RHN(depth={depth})", "depth", "the transitions within a step")
        return DeepRHN if depth > 1 else None

    def activate(self, z, state):
        (h,) = state
        return (_highway(h, z[0], z[1], self.squash),)


class DeepRHN(Cell):
    """A recurrent highway network of some transitions a step: s⁰ = h, sˡ = f·sˡ⁻¹ + (1−f)·c, h' = sᴸ. Zilly et al. 2017.

    The first transition sees (x, s, 1) and the others (s, 1): one linear map each.
    """

    inputs: int = eqx.field(static=True)
    units: int = eqx.field(static=True)
    squash: str = eqx.field(static=True)
    weights: tuple[Float[Array, "p 2n"], ...]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array | None = None,
        initial: str = "normal",
        squash: str = "sigmoid",
        depth: int = 2,
    ):
        call = f"RHN(inputs={inputs}, units={units}, depth={depth})"
        whole_number(inputs, 1, call, "inputs", "the number of symbols or of entries of x")
        whole_number(units, 1, call, "units", "the size of the hidden state")
        _check_squash(squash)
        self.inputs, self.units, self.squash = inputs, units, squash
        rows = [inputs + units + 1] + [units + 1] * (depth - 1)
        keys = jax.random.split(require_key(key, call), depth)
        drawn = zip(rows, keys, strict=True)
        self.weights = tuple(
            initial_gates(initial, (p, 2 * units), units, RHN.roles, cell="RHN", key=key) for p, key in drawn
        )

    def initial(self) -> Float[Array, " n"]:
        return jnp.zeros(self.units, self.weights[0].dtype)

    def step(self, state: Float[Array, " n"], x: Float[Array, " inputs"]) -> Float[Array, " n"]:
        one = jnp.ones(1, state.dtype)
        for level, weight in enumerate(self.weights):
            seen = [x, state, one] if level == 0 else [state, one]
            candidate, carry = jnp.split(jnp.concatenate(seen) @ weight, 2)
            state = _highway(state, candidate, carry, self.squash)
        return state

    def output(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        return state


def _highway(h: Array, candidate: Array, carry: Array, squash: str) -> Array:
    carry = jax.nn.sigmoid(carry)
    return carry * h + (1 - carry) * _SQUASH[squash](candidate)
