"""Lemma 2: rank-2 approximators of a rank-3 tensor whose variance goes to zero, so that there is no best one.

X = x₁⊗x₂⊗y₃ + x₁⊗y₂⊗x₃ + y₁⊗x₂⊗x₃ (the paper prints x₂ for the last factor) and, for a random sign s,

    Xₙ = x₁⊗x₂⊗(y₃ − s·n·x₃) + (s·x₁ + y₁/n)⊗(x₂ + s·y₂/n)⊗n·x₃  =  X + (s/n) y₁⊗y₂⊗x₃
"""

import numpy as np

from evergrad.paper.claims import NEW, Claim, fact
from evergrad.paper.experiment import Experiment, Picture, Section

SIZE, SEED = 5, 0
PLACES = {"quick": (1, 10, 100, 1000), "desk": (1, 3, 10, 30, 100, 300, 1000), "full": (1, 3, 10, 30, 100, 300, 1000)}
PLACES["long"] = PLACES["desk"]


def product(a, b, c):
    return np.einsum("i,j,k->ijk", a, b, c)


def target(x, y):
    return product(x[0], x[1], y[2]) + product(x[0], y[1], x[2]) + product(y[0], x[1], x[2])


def discriminant(tensor):
    """Cayley's hyperdeterminant of a tensor of multilinear rank 2, over its norm to the fourth.

    Such a tensor is a sum of two real products only where this is above 0, and takes three where it is 0.
    """
    core = tensor
    for mode in range(3):
        u, _, _ = np.linalg.svd(np.moveaxis(tensor, mode, 0).reshape(len(tensor), -1))
        core = np.moveaxis(np.tensordot(u[:, :2].T, core, (1, mode)), 0, mode)
    first, second = np.linalg.det(core[0]), np.linalg.det(core[1])
    mixed = np.linalg.det(core[0] + core[1]) - first - second
    return float((mixed**2 - 4 * first * second) / np.linalg.norm(tensor) ** 4)


def approximator(x, y, n, sign):
    first = product(x[0], x[1], y[2] - sign * n * x[2])
    return first + product(sign * x[0] + y[0] / n, x[1] + sign * y[1] / n, n * x[2])


class TensorLemma(Experiment):
    name, title = "lemma2", "Lemma 2: no best rank-2 approximator of a tensor"
    shrinks = False

    def measure(self, plan):
        settings = {"size": SIZE, "seed": SEED, "places": PLACES[plan.budget], "with": "discriminant"}
        return plan.measured("lemma2-variance", settings, lambda: sequence(PLACES[plan.budget]))

    def section(self, result, reference):
        found = result.measured
        n, variance = np.array(found["n"]), np.array(found["variance"])
        slope = float(np.polyfit(np.log(n), np.log(variance), 1)[0])
        own, near = found["discriminant"]
        claims = [
            Claim(
                "Xₙ is a sum of two products, X is not, so no Xₙ is without variance",
                "rank 2, and more than 2",
                f"hyperdeterminant {near:.2g} at n = {n[0]}, {own:.1e} of X (above 0: rank 2; 0: rank 3)",
                fact(near > 1e-6 and abs(own) < 1e-12),
                "Lemma 2",
                plain="a tensor has no best rank-2 approximator",
            ),
            Claim(
                "E[Xₙ] = X", "exactly", f"largest difference {found['bias']:.1e}", fact(found["bias"] < 1e-9), "Lemma 2"
            ),
            Claim(
                "Var[Xₙ] → 0 as 1/n²",
                "n^-2",
                f"n^{slope:.3f}, {variance[-1]:.2g} at n = {n[-1]:,}",
                fact(abs(slope + 2) < 0.01),
                "Lemma 2",
            ),
            Claim(
                "the two terms of Xₙ grow without bound",
                NEW,
                f"norm of a term {found['term'][0]:.3g} at n = {n[0]}, {found['term'][-1]:.3g} at n = {n[-1]:,}",
                fact(found["term"][-1] > 10 * found["term"][0]),
            ),
        ]
        return Section(
            [
                Picture(
                    "lemma2",
                    _figure(n, variance, found["term"]),
                    f"Lemma 2: the variance of Xₙ, both signs enumerated, a tensor of {SIZE} x {SIZE} x {SIZE}.",
                )
            ],
            claims,
        )


def sequence(places):
    """For each n: the variance over both signs, and the size of a term; and the largest bias."""
    rng = np.random.default_rng(SEED)
    x, y = rng.normal(size=(2, 3, SIZE))
    truth = target(x, y)
    variance, term, bias = [], [], 0.0
    for n in places:
        draws = [approximator(x, y, n, sign) for sign in (-1, 1)]
        variance.append(float(np.mean([((draw - truth) ** 2).sum() for draw in draws])))
        bias = max(bias, float(np.abs(np.mean(draws, axis=0) - truth).max()))
        term.append(float(np.linalg.norm(product(x[0], x[1], y[2] - n * x[2]))))
    ranks = [discriminant(tensor) for tensor in (truth, approximator(x, y, places[0], 1))]
    return {"n": list(places), "variance": variance, "term": term, "bias": bias, "discriminant": ranks}


def _figure(n, variance, term):
    from evergrad._training.plots import line_style, subplots

    figure, axes = subplots(figsize=(8, 4.6))
    axes.loglog(n, variance, marker="o", label="variance of Xₙ (squared norm)", **line_style(0))
    axes.loglog(n, variance[0] / n**2.0, color="0.75", linewidth=5, zorder=1, label="the first one / n²")
    axes.loglog(n, term, marker="s", label="norm of one of its two terms", **line_style(1))
    axes.set_xlabel("n, the place in the sequence")
    axes.set_ylabel("squared norm, norm (no unit)")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure
