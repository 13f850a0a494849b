"""Ours: squared error of the gradient against multiply-adds a step, on a network trained on PTB and on one trained on copy."""

from typing import Any

import numpy as np

from evergrad.paper.claims import NEW, Claim, judged
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.experiments import fig3_noise

STEPS = {"quick": 40, "desk": 300, "full": 1000}
REPETITIONS = {"quick": 2, "desk": 5, "full": 20}
RANKS = {"quick": (1, 2), "desk": (1, 2, 4, 8, 16, 32), "full": (1, 2, 4, 8, 16, 32)}
WINDOWS = {"quick": (0, 4), "desk": (0, 4, 8, 16, 32), "full": (0, 4, 8, 16, 32)}
SIGNS = {"quick": (0,), "desk": (0, 16), "full": (0, 4, 8, 16, 32)}  # windows that are measured with signs too
COPIES = {"quick": (1, 2), "desk": (1, 2, 4, 8, 16, 32), "full": (1, 2, 4, 8, 16, 32)}
TRIPLES = {"quick": ((2, 0), (2, 4)), "desk": ((1, 0), (16, 0), (64, 0), (16, 16), (16, 32))}
HORIZONS = {"quick": (2, 5), "desk": (1, 2, 5, 10, 25, 50, 100), "full": (1, 2, 5, 10, 25, 50, 100)}
UORO_WINDOWS = {"quick": (0, 4), "desk": (0, 16, 32), "full": (0, 16, 32)}
SUBJECTS = {"ptb": "trained on PTB", "copy": "trained on copy"}


def families(budget: str) -> dict[str, list[str]]:
    """Estimators as the laboratory spells them, by family."""
    made = {f"OK sampling, window {k}": [f"ok:rank={r},window={k}" for r in RANKS[budget]] for k in WINDOWS[budget]}
    made |= {
        f"OK signs, window {k}": [f"ok:rank={r},window={k},mix=signs" for r in RANKS[budget]] for k in SIGNS[budget]
    }
    made["KF-RTRL-AVG"] = [f"kf:copies={c}" for c in COPIES[budget]]
    made["KTP (rank, window)"] = [f"ktp:rank={r},window={k}" for r, k in TRIPLES.get(budget, TRIPLES["desk"])]
    made["UORO (window)"] = [f"uoro:window={k}" for k in UORO_WINDOWS[budget]]
    made["TBPTT (its bias)"] = [f"tbptt:horizon={h}" for h in HORIZONS[budget]]
    return made


class Pareto(Experiment):
    name, title = "ours", "Ours: gradient error against multiply-adds a step"

    def lines(self, plan):
        found = fig3_noise.trained(plan)
        return [found[which] for which in SUBJECTS]

    def measure(self, plan):
        found = {}
        lines = fig3_noise.trained(plan)
        for which in SUBJECTS:
            run = lines[which].runs()[0]
            if plan.finished(run):
                found[which] = _of(plan, which, run)
        return found

    def section(self, result, reference):
        pictures, grids, claims = [], [], []
        for which, found in result.measured.items():
            pictures.append(Picture(f"pareto-{which}", _figure(found, result.budget), _caption(which, found)))
            grids.append(_front(which, found))
            claims += _claims(which, found)
        remarks = [
            "TBPTT is of stride 1 here, a gradient at every step, and has no noise but a bias; it has no error at all where its "
            "horizon reaches to the start of the string. Whether a bias or a noise of the same size hurts more, this picture "
            "does not say: see Figures 1 and A.7."
        ]
        return Section(pictures, claims, grids, remarks)


def _of(plan, which, run) -> dict[str, Any]:
    from evergrad.lab.subject import of_run

    steps, repetitions = STEPS[plan.budget], REPETITIONS[plan.budget]
    points: dict[str, dict[str, float]] = {}
    subject = None
    for family, spelt in families(plan.budget).items():
        settings = plan.trained(run) | {"steps": steps, "repetitions": repetitions, "of": spelt}

        def measure(spelt=spelt):
            nonlocal subject
            subject = subject or of_run(plan.path(run), steps=steps)
            smallest = fig3_noise.SMALLEST if which == "copy" else 0.0
            return _points(subject, spelt, repetitions, smallest, plan.check)

        slug = "".join(c if c.isalnum() else "-" for c in family)
        points |= plan.measured(f"ours-{which}-{slug}", settings, measure)
    exact = plan.measured(f"ours-{which}-exact", {"run": run.id}, lambda: _exact_cost(plan.path(run)))
    return {"run": run.id, "step": plan.reached(run), "steps": steps, "repetitions": repetitions} | {
        "points": points,
        "exact": exact,
    }


def _points(subject, spelt, repetitions, smallest, told):
    from evergrad.lab.report import noise_of
    from evergrad.lab.subject import parse_estimator

    estimators = {text: parse_estimator(text) for text in spelt}
    rows = noise_of(subject, estimators, repetitions=repetitions, smallest=smallest, with_injected=False, told=told)
    return {
        text: {"error": row["relative_error"], "multiply_adds": row["multiply_adds"], "cosine": row["cosine"]}
        for text, row in rows.items()
    }


def _exact_cost(path):
    """Multiply-adds of exact RTRL with a window of n."""
    import evergrad as eg
    from evergrad._core.planner import multiply_adds
    from evergrad.lab.subject import of_run

    cell = of_run(path, steps=2).model.cell
    return multiply_adds(eg.RTRL(window=cell.units), cell)


_FLOOR = 1e-14  # below this is rounding


def _figure(found, budget):
    from evergrad._training.plots import line_style, marker, plt

    figure, axes = plt.subplots(figsize=(8, 6.4), layout="constrained")
    for i, (family, spelt) in enumerate(families(budget).items()):
        here = [found["points"][text] for text in spelt]
        xs, ys = [p["multiply_adds"] for p in here], [max(p["error"], _FLOOR) for p in here]
        style = line_style(i) | (
            {"markerfacecolor": "none", "markersize": 9} if "signs" in family else {"markersize": 5}
        )
        style |= {"linestyle": "none"} if "window)" in family else {}  # its parameters do not go one way
        axes.loglog(xs, ys, label=family, marker=marker(i), linewidth=1.2, **style)
    axes.axvline(found["exact"], color="0.4", linewidth=1, label="exact RTRL, window n (no error)")
    axes.set_xlabel("multiply-adds a step and stream, beyond the forward pass")
    axes.set_ylabel("squared error of the gradient / its squared norm")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _caption(which, found):
    return (
        f"An RHN {SUBJECTS[which]}, {found['step']:,} steps of training; {found['steps']} steps with frozen weights, "
        f"{found['repetitions']} repetitions. Down and left is better; along a line the rank, the copies or the horizon grows; "
        f"what is below {_FLOOR:g} is rounding and drawn there."
    )


def _front(which, found):
    """The estimators that no other beats in both error and cost."""
    points = sorted(found["points"].items(), key=lambda item: item[1]["multiply_adds"])
    rows, best = [], float("inf")
    for text, point in points:
        if point["error"] < best:
            best = point["error"]
            numbers = f"{point['multiply_adds']:.3g}", f"{point['error']:.3g}", f"{point['cosine']:.4f}"
            rows.append((text, *numbers))
    return Grid(
        f"The Pareto front, {SUBJECTS[which]}", ("estimator", "multiply-adds", "error²/gradient²", "cosine"), rows
    )


def _claims(which, found):
    points = found["points"]
    claims = []
    pairs = [("ok:rank=8,window=16", "ok:rank=8,window=0,mix=signs", "quieter than the paper's 8-OK")]
    pairs += [("ok:rank=8,window=16", "kf:copies=8", "quieter than 8-KF-RTRL-AVG")]
    for one, two, what in pairs:
        if one in points and two in points:
            first, second = points[one]["error"], points[two]["error"]
            ours = f"{first:.3g} against {second:.3g}, at {_share(points, one, two)} of the multiply-adds"
            claims.append(Claim(f"{SUBJECTS[which]}: {one} is {what}", NEW, ours, judged(first < second)))
    return [*claims, _sampling(which, points)]


def _sampling(which, points):
    """The squared error with signs over that with sampling, at all ranks and windows that have both."""
    pairs = {text: text.removesuffix(",mix=signs") for text in points if text.endswith(",mix=signs")}
    ratios = [points[signs]["error"] / points[sampling]["error"] for signs, sampling in pairs.items()]
    middle, above = float(np.median(ratios)), sum(ratio > 1 for ratio in ratios)
    ours = (
        f"{middle:.2f} times in the middle, {min(ratios):.2f} to {max(ratios):.2f}; larger in {above} of {len(ratios)} pairs of "
        "rank and window (it takes five sixths of them to say so)"
    )
    what = f"{SUBJECTS[which]}: signs make a larger squared error than sampling"
    return Claim(what, NEW, ours, judged(above >= 5 / 6 * len(ratios)))


def _share(points, one, two):
    return f"{points[one]['multiply_adds'] / points[two]['multiply_adds']:.0%}"
