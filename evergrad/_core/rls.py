"""A readout that is always the least-squares solution of all it has seen."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._core.checks import check_vector_targets, refuse_unless, whole_number
from evergrad._core.parameters import Frozen
from evergrad._core.readouts import Readout

_WOUND_UP = 1e6  # times its start, the inverse information does not grow further
_UNWOUND = 1e3  # times its start, is what it is brought back to then


class RLS(Readout):
    """Recursive least squares on φ = (h, 1): after t steps, whatever their order of size,

        W = argmin Σ_τ λ^(t−τ) ‖y_τ − Wᵀφ_τ‖² + λ^t ridge ‖W‖²,    λ = forgetting

    It is not trained by the optimiser: it learns by itself at every step, from the error made before it, and the cell, if it
    is trained, gets the derivative of that error. Beside `eg.Fixed` it is the readout of a reservoir. The bias is inside φ.

    Kept is a square root S of the inverse information, S Sᵀ = P, by Potter's update, so that P stays positive definite
    in float32 too. Streams of a step are taken one after the other, and λ counts once a step. Where nothing comes along some
    direction for long and λ < 1 (a dead unit, two units that do the same), P is kept from growing beyond 10⁶ times its start: the
    weight of which least is known is held where it is with the strength of ridge/1000, and all others go on forgetting.
    Memory and time (n + 1)² a stream and step.
    Reference: Haykin, Adaptive Filter Theory; Potter 1963; FORCE: Sussillo & Abbott 2009.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=8, key=key, initial="orthogonal:0.9"), eg.RLS(8, 1))
        >>> learner = eg.Learner(model, eg.Fixed(), optax.sgd(0.0))  # a reservoir
        >>> xs = jax.random.normal(key, (60, 1, 1))
        >>> state, out = learner.run(learner.init(batch=1, key=key), xs[1:], xs[:-1])
        >>> bool(out.losses[-20:].mean() < 0.3 * out.losses[:20].mean())
        True
    """

    units: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    forgetting: float = eqx.field(static=True)
    ridge: float = eqx.field(static=True)
    solution: Frozen  # W [n + 1, outputs]
    root: Frozen  # S [n + 1, n + 1]
    targets: ClassVar[str] = "numbers"

    def __init__(
        self,
        units: int,
        outputs: int,
        forgetting: float = 1.0,
        *,
        ridge: float = 1.0,
        key: Array | None = None,
        initial: str = "normal",
    ):
        """`key` and `initial` are taken for the sake of other readouts, and not used: W starts at zero."""
        call = f"RLS(units={units}, outputs={outputs}, forgetting={forgetting}, ridge={ridge})"
        whole_number(units, 1, call, "units", "the size of the hidden state")
        whole_number(outputs, 1, call, "outputs", "the number of entries of y")
        refuse_unless(0 < forgetting <= 1, f"`{call}`: forgetting is above 0 and at most 1, which forgets nothing.")
        refuse_unless(ridge > 0, f"`{call}`: ridge is above 0; it is what W is held back by at the start.")
        self.units, self.outputs, self.forgetting, self.ridge = units, outputs, forgetting, ridge
        dtype = jnp.result_type(float)
        self.solution = Frozen(jnp.zeros((units + 1, outputs), dtype))
        self.root = Frozen(jnp.eye(units + 1, dtype=dtype) / jnp.sqrt(jnp.asarray(ridge, dtype)))

    @property
    def weight(self) -> Float[Array, "n outputs"]:
        return self.solution.value[:-1]

    @property
    def bias(self) -> Float[Array, " outputs"]:
        return self.solution.value[-1]

    def predict(self, z):
        return z

    def loss(self, z: Float[Array, " outputs"], y: Float[Array, " outputs"]) -> Float[Array, ""]:
        return jnp.sum((z - y) ** 2)

    def check(self, y, lead, weights):
        check_vector_targets(y, lead, self.outputs, weights)

    def taught(self, h: Float[Array, "B n"], y: Float[Array, "B outputs"], weight: Float[Array, " B"]) -> "RLS":
        """After the targets of a step; those of weight 0 are missing. A weight counts as so many equal samples."""
        root = self._unwound() if self.forgetting < 1 else self.root.value
        forget = jnp.where(jnp.any(weight != 0) & ~self._wound_up(root), jnp.asarray(self.forgetting, h.dtype), 1)
        forgotten = self.solution.value, root / jnp.sqrt(forget)

        def one(carry, sample):
            h, y, weight = sample
            solution, root = carry
            return _learned(solution, root, jnp.append(h, jnp.ones((), h.dtype)), y, weight), None

        solution, root = jax.lax.scan(one, forgotten, (h, y, weight))[0]
        return eqx.tree_at(lambda r: (r.solution.value, r.root.value), self, (solution, root))

    def _unwound(self):
        """S, after a target for the weight that least is known of, if that is too little: the one that it has."""
        root = self.root.value
        sought = jax.nn.one_hot(jnp.argmax(jnp.sum(root**2, axis=1)), len(root), dtype=root.dtype)
        held = _learned(self.solution.value, root, sought, sought @ self.solution.value, self.ridge / _UNWOUND)[1]
        return jnp.where(self._wound_up(root), held, root)

    def _wound_up(self, root):
        return jnp.max(jnp.sum(root**2, axis=1)) > _WOUND_UP / self.ridge


def _learned(solution, root, features, y, weight):
    """Potter's update of W and S by one sample."""
    scale = jnp.sqrt(jnp.maximum(weight, 0))
    features, y = scale * features, scale * jnp.where(weight == 0, 0, y)
    along = root.T @ features
    size = 1 + along @ along
    gain = root @ along / size
    solution = solution + jnp.outer(gain, y - features @ solution)
    return solution, root - jnp.outer(gain, along) * (size / (size + jnp.sqrt(size)))
