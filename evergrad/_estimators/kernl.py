import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell
from evergrad._core.checks import refuse_unless
from evergrad._core.costs import Cost
from evergrad._core.influence import Influence, step_by_step
from evergrad._core.linearize import KroneckerMemory, initial_state, weight_gradient
from evergrad._estimators.windowed import Windowed, check_window, windows_of


class KeRNL(Windowed):
    """Kernel RNN learning: dh_j(t)/dh_i(s) is taken to be β_ji κ_i^{t−s}, and β and κ are learned from noise. Biased.

        e' = κ∘e + D ⊗ ĥ,  gradient = (δβ) ∘ e
        h̃' = f(h̃, x) + σξ,  φ' = κφ + ω,  ω' = κω + ξ,  ε = βω' − (h̃' − h')/σ,  β −= η εω'ᵀ,  κ −= η (εβ)∘φ'

    h̃ is a second network of the same weights with noise of its own, `noise` is σ and `rate` η, which counts noise in units
    of σ; κ starts at `decay` and stays in [0, 1], β starts as the identity. Each stream learns its own, and keeps them over
    resets. One state variable and one gate a unit (RNN, Leaky): for others the kernel would be a guess.
    Memory P + n², time n² a step. Reference: Roth, Kanitscheider & Fiete 2019.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=3, units=8, key=key), eg.Linear(8, 1, key=key))
        >>> learner = eg.Learner(model, eg.KeRNL(), optax.adam(1e-3))
    """

    rate: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    decay: float = eqx.field(static=True)
    window: int = eqx.field(static=True)

    recommended: ClassVar[str] = (
        "only one number a weight fits, and a kernel, learned from noise, that says where it goes."
    )

    @classmethod
    def choices(cls, cell):
        return windows_of(cls)

    def __init__(self, *, rate: float | int = 0.001, noise: float = 0.01, decay: float | int = 0.5, window: int = 0):
        call = f"KeRNL(rate={rate}, noise={noise}, decay={decay}, window={window})"
        refuse_unless(
            rate >= 0 and math.isfinite(rate), f"`{call}`: the rate at which the kernel learns is at least 0 (never)."
        )
        refuse_unless(
            noise > 0 and math.isfinite(noise), f"`{call}`: without noise nothing can be learned of the kernel."
        )
        refuse_unless(0 <= decay <= 1, f"`{call}`: decay, where κ starts, is from 0 (nothing lasts) to 1 (all does).")
        check_window(window, call)
        self.rate, self.noise, self.decay, self.window = float(rate), float(noise), float(decay), window

    @property
    def influence(self):
        return Kernel(self.rate, self.noise, self.decay)


class Kernels(eqx.Module):
    """What is known of one stream."""

    traces: Float[Array, "*lead p n"]  # e
    noisy: Float[Array, "*lead n"]  # h̃
    filtered: Float[Array, "*lead n"]  # ω
    slopes: Float[Array, "*lead n"]  # φ = dω/dκ
    spread: Float[Array, "*lead n n"]  # β
    decays: Float[Array, "*lead n"]  # κ


class Kernel(Influence):
    """β_ji κ_i^{t−s} in the place of H_t⋯H_{s+1}."""

    rate: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    decay: float = eqx.field(static=True)
    unbiased: ClassVar[bool] = False

    def check_fit(self, cell):
        fits = isinstance(cell, KroneckerCell) and cell.states == 1 and cell.gates == ("xh1",)
        refuse_unless(
            fits,
            f"`KeRNL` on {type(cell).__name__}: one kernel a unit stands for one state variable behind one gate that sees x, "
            "h and 1: use eg.RNN or eg.Leaky, or another estimator.",
        )

    def init(self, cell: Any):
        state = initial_state(cell)
        zeros, spread, decays = (
            jnp.zeros_like(state),
            jnp.eye(len(state), dtype=state.dtype),
            jnp.full_like(state, self.decay),
        )
        return Kernels(jnp.zeros_like(cell.weight), state, zeros, zeros, spread, decays)

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        return self.perturbed(carried, cell, memory, jax.random.normal(key, carried.noisy.shape, carried.noisy.dtype))

    def perturbed(self, known: Kernels, cell: Cell, memory: KroneckerMemory, noise: Float[Array, " n"]) -> Kernels:
        """One step with given noise."""
        kept, new = memory.alive * known.decays, jnp.outer(memory.regressor, memory.diagonals[0, 0])
        traces = kept[None] * known.traces + new
        quiet, noisy = self._both(known, cell, memory)
        noisy = noisy + self.noise * noise
        slopes = kept * known.slopes + memory.alive * known.filtered
        filtered = kept * known.filtered + noise
        error = known.spread @ filtered - (noisy - quiet) / self.noise
        spread = known.spread - self.rate * jnp.outer(error, filtered)
        decays = known.decays - self.rate * (error @ known.spread) * slopes
        return Kernels(traces, noisy, filtered, slopes, spread, jnp.clip(decays, 0, 1))

    def _both(self, known, cell, memory):
        """The network without noise and the one with it, a step further."""
        x, h = memory.regressor[: cell.inputs], memory.regressor[cell.inputs : -1]
        start = cell.initial()
        noisy = jnp.where(memory.alive == 0, start, known.noisy[None])
        return cell.step(h[None], x)[0], cell.step(noisy, x)[0]

    def cost(self, sizes, block):
        return Cost(0, 2 * sizes.n * sizes.q, 4 * sizes.parameters + 6 * sizes.n**2, 1.2 * sizes.parameters, 20)

    def contract(self, carried, cell: Any, delta):
        through = jnp.einsum("bj,bji->bi", delta, carried.spread)
        return weight_gradient(cell, jnp.einsum("bi,bpi->pi", through, carried.traces))

    def materialise(self, carried, cell: Any):
        return weight_gradient(cell, jnp.einsum("ji,pi->jpi", carried.spread, carried.traces))
