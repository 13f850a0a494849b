"""Theorem 2, and the examples of section 3.6: the optimal unbiased low-rank approximation, drawn many times.

A Kronecker product u ⊗ A is here the outer product of the vectors u and vec A, so a sum of them is a matrix, and Theorem 1 is
Theorem 2 for it; what OK injects into the influence of trained networks is measured with the noise figures.
"""

import math
from typing import Any, cast

import numpy as np

from evergrad.paper.claims import Claim, fact
from evergrad.paper.experiment import Experiment, Section

SHAPE, RANKS, SEED = (12, 9), (1, 2, 4, 8), 0
DRAWS = {"quick": 500, "desk": 20_000, "long": 20_000, "full": 20_000}
CUT = 4  # standard errors that a measured variance, or mean, may be off by
ROUNDING = 1e-5


class Theorems(Experiment):
    name, title = "theorems", "Theorem 2 and section 3.6: the least noise that a rank allows"
    shrinks = False

    def measure(self, plan):
        draws = DRAWS[plan.budget]
        settings = {"shape": SHAPE, "ranks": RANKS, "seed": SEED, "draws": draws}
        return plan.measured("theorems-variance", settings, lambda: {"random": random(draws), "cases": cases(draws)})

    def section(self, result, reference):
        claims = [_optimum(method, found) for method, found in result.measured["random"].items()]
        return Section(claims=claims + _cases(result.measured["cases"]))


def random(draws: int) -> dict[str, list[dict[str, float]]]:
    """A random matrix, approximated at several ranks in both ways."""
    matrix = np.random.default_rng(SEED).normal(size=SHAPE) * np.geomspace(1, 0.01, SHAPE[1])
    return {method: [drawn(matrix, rank, draws, method) for rank in RANKS] for method in ("signs", "sampling")}


def drawn(matrix: np.ndarray, rank: int, draws: int, method: str) -> dict[str, float]:
    """The variance over many draws with its standard error, the optimum, and the mean's distance from the matrix."""
    import jax

    from evergrad._core.low_rank import optimal_low_rank, optimal_variance

    def one(key):
        left, right = optimal_low_rank(jax.numpy.asarray(matrix), rank, key=key, method=method)
        return left @ right.T

    keys = jax.random.split(jax.random.fold_in(jax.random.key(SEED), rank), draws)
    found = np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)
    squares = ((found - matrix) ** 2).sum((1, 2))
    mean_error = ((found.mean(0) - matrix) ** 2).sum()
    return {
        "rank": rank,
        "variance": float(squares.mean()),
        "error": float(squares.std() / math.sqrt(draws)),
        "optimum": float(optimal_variance(jax.numpy.asarray(matrix), rank)),
        "bias": float(mean_error * draws / max(squares.mean(), 1e-12)),  # 1 in the mean where there is none
    }


def sign_trick(terms: list[tuple[np.ndarray, np.ndarray]], fresh: tuple[np.ndarray, np.ndarray]) -> float:
    """The variance of averaging the terms, each mixed with a share of the fresh one by a random sign, norms balanced.

    Of r copies of KF-RTRL each holds r times its term of the sum and meets the whole of what is fresh.
    """
    r, total = len(terms), 0.0
    for u, a in terms:
        old, new = r * np.outer(u, a), np.outer(*fresh)
        total += 2 * np.linalg.norm(old) * np.linalg.norm(new) + 2 * float((old * new).sum())
    return float(total / r**2)


def cases(draws: int) -> dict[str, dict[str, Any]]:
    """The two extreme cases of section 3.6 for rank 1, and its example for rank 2."""
    basis = np.linalg.qr(np.random.default_rng(SEED).normal(size=(8, 8)))[0]
    u, h, v, a, d, b = *basis[:3], *basis[3:6]
    parallel = [(u, a)], (u, d)
    orthogonal = [(u, a)], (h, d)
    uneven = [(10 * u, a), (v, b)], (h, d)
    made = {"parallel": parallel, "orthogonal": orthogonal, "uneven": uneven}
    found = {}
    for name, (terms, fresh) in made.items():
        matrix = cast(np.ndarray, sum(np.outer(*term) for term in (*terms, fresh)))
        found[name] = drawn(matrix, len(terms), draws, "signs") | {"sign_trick": sign_trick(terms, fresh)}
    return found


def _optimum(method, found):
    ours = "; ".join(
        f"rank {each['rank']}: {each['variance']:.4g} ± {each['error']:.1g}, optimum {each['optimum']:.4g}"
        for each in found
    )
    met = all(abs(e["variance"] - e["optimum"]) <= CUT * e["error"] + ROUNDING * e["optimum"] for e in found)
    unbiased = all(each["bias"] < CUT**2 for each in found)
    plain = "the optimal low-rank approximation has the variance that Theorem 2 gives it" if method == "signs" else ""
    what = f"the approximation with {method} is unbiased and has the minimum variance"
    return Claim(what, "s₁²/k − s₂", ours, fact(met and unbiased), "Theorem 2", plain=plain)


def _cases(found):
    same, apart, uneven = (found[name] for name in ("parallel", "orthogonal", "uneven"))
    rows = [
        ("u = h: 1-OK has no noise, the sign trick has ‖A + D‖² = 2", "0 and 2", same, _is(same, 0.0, 2.0)),
        ("u ⊥ h, A ⊥ D: 1-OK and the sign trick are as noisy", "no difference", apart, _is(apart, 2.0, 2.0)),
        (
            "terms of norm 10, 1 and 1 at rank 2: OK mixes the small ones alone",
            "order 1 against order 10/2",
            uneven,
            uneven["variance"] < 0.5 * uneven["sign_trick"] and abs(uneven["variance"] - 2.0) < 0.1,
        ),
    ]
    plain = "OK is never noisier than the sign trick, and far quieter in the paper's examples"
    return [
        Claim(
            what,
            said,
            f"OK {case['variance']:.3g}, sign trick {case['sign_trick']:.3g} (squared norms)",
            fact(bool(good)),
            "Section 3.6",
            plain=plain if i == 0 else "",
        )
        for i, (what, said, case, good) in enumerate(rows)
    ]


def _is(case, ours, theirs):
    near = abs(case["variance"] - ours) < 0.02 + CUT * case["error"]
    return near and abs(case["sign_trick"] - theirs) < 1e-9
