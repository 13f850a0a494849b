"""An estimator of your own: KTP as the authors' released runs have it, with one vector a for all terms, on the copy task.

    python examples/shared_ktp.py --steps 11000
    python examples/shared_ktp.py --noise RUN      # how noisy both are, on the network of a run

G ≈ a ⊗ Σ bᵢ ⊗ cᵢ, and D ≈ Σ dᵢ ⊗ d̃ᵢ by the paper's signs. `eg.KTP` gives every term an a of its own, as the paper's text has it.
"""

import argparse
import dataclasses
import math
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

import evergrad as eg
from evergrad._training.build import make_job, make_optimiser
from evergrad._training.resolve import resolve
from evergrad.extend import (
    Influence,
    Window,
    compress,
    initial_state,
    step_by_step,
    transition,
    unit_svd,
    weight_gradient,
)
from evergrad.lab.noise import measure
from evergrad.lab.subject import of_run
from evergrad.lab.summary import summarise
from evergrad.paper.plan import PAPERS_START
from evergrad.paper.setup import RELEASED_RATE


class SharedKTP(eg.Estimator):
    rank: int = eqx.field(static=True)
    window: int = eqx.field(static=True, default=0)

    @property
    def past(self):
        return Window(self.window)

    @property
    def influence(self):
        return SharedTriples(self.rank)


class SharedTriples(Influence):
    rank: int = eqx.field(static=True)
    unbiased: ClassVar[bool] = True
    needs_kronecker: ClassVar[bool] = True

    def init(self, cell):
        (p, q), m, dtype = cell.weight.shape, initial_state(cell).size, cell.weight.dtype
        return jnp.zeros(p, dtype), jnp.zeros((self.rank, m), dtype), jnp.zeros((self.rank, q), dtype)

    def absorb(self, carried, cells, memories, key):
        return step_by_step(self._step, carried, cells, memories, key)

    def _step(self, carried, cell, memory, key):
        a, b, c = carried
        rank_key, sign_key = jax.random.split(key)
        left, values, right = unit_svd(memory.diagonals)
        z = compress(values.reshape(-1), self.rank, "signs", rank_key).reshape(*values.shape, self.rank)
        d = jnp.einsum("inr,ain->ran", z, left).reshape(self.rank, -1)
        d_gates = jnp.einsum("inr,ign->rgn", z, right).reshape(self.rank, -1)
        one, two = jax.random.split(sign_key)
        s1, s2 = jax.random.rademacher(one, (), b.dtype), jax.random.rademacher(two, (self.rank,), b.dtype)
        b = jax.vmap(transition(cell, memory).matvec)(b)
        a, b, c = _shared_out(a, b, c)
        h, d, d_gates = _shared_out(memory.regressor, d, d_gates)
        return a + s1 * h, b + s2[:, None] * d, c + (s1 * s2)[:, None] * d_gates

    def contract(self, carried, cell, delta):
        a, b, c = carried
        return weight_gradient(cell, jnp.einsum("zp,zr,zrq->pq", a, jnp.einsum("zm,zrm->zr", delta, b), c))

    def materialise(self, carried, cell):
        a, b, c = carried
        return weight_gradient(cell, jnp.einsum("p,rm,rq->mpq", a, b, c))


def _shared_out(a, b, c):
    """The same product, its norm shared out evenly: a third to a, the rest to every b and c alike."""
    sizes = jnp.linalg.norm(b, axis=1), jnp.linalg.norm(c, axis=1)
    length, rest = jnp.linalg.norm(a), jnp.linalg.norm(sizes[0] * sizes[1])
    alive = (length > 0) & (rest > 0)
    of_a = jnp.where(alive, (length * rest) ** (1 / 3) / jnp.where(alive, length, 1), 0)
    ratio = jnp.sqrt(jnp.where(sizes[0] > 0, sizes[1] / jnp.where(sizes[0] > 0, sizes[0], 1), 0))
    others = jnp.where(alive, 1 / jnp.sqrt(jnp.where(alive, of_a, 1)), 0)
    inverse = jnp.where(ratio > 0, 1 / jnp.where(ratio > 0, ratio, 1), 0)
    return of_a * a, others * ratio[:, None] * b, others * inverse[:, None] * c


def train(steps: int, report: int) -> None:
    """As `evergrad paper run fig4` trains KTP-16."""
    settings = resolve(
        "copy", {"batch": 256, "estimator": "ktp", "rank": 16, "learning_rate": RELEASED_RATE} | PAPERS_START
    )
    job = make_job(settings)
    learner = eg.Learner(job.learner.model, SharedKTP(rank=16), make_optimiser(job.settings), clip=settings.clip)
    state, position = dataclasses.replace(job, learner=learner).start()
    for done in range(report, steps + 1, report):
        state, position, losses = learner.follow(state, job.task.source, position, report)
        print(
            f"step {done:,}: length {int(position.length)}, {losses.mean() / math.log(2):.4f} bits per symbol",
            flush=True,
        )


def noise(run: Path) -> None:
    subject = of_run(run, steps=200)
    for name, estimator in {"KTP": eg.KTP(rank=16), "shared": SharedKTP(rank=16)}.items():
        found = measure(subject.model, {name: estimator}, subject.data, repetitions=30, key=jax.random.key(0))[name]
        row = summarise(found, smallest=1e-4)
        print(f"{name}: cosine {row['cosine']:.3f}, error²/gradient² {row['relative_error']:.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=11_000)
    parser.add_argument("--report", type=int, default=1_000, help="steps from line to line")
    parser.add_argument("--noise", type=Path, metavar="RUN", help="folder of a run whose network to measure on")
    options = parser.parse_args()
    noise(options.noise) if options.noise else train(options.steps, options.report)
