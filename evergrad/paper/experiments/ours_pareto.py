"""Ours: squared error of the gradient against multiply-adds a step, on a network trained on PTB and on one trained on copy."""

import dataclasses
from typing import Any

import numpy as np

from evergrad.paper.claims import NEW, Claim, verdict
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.experiments.lines import FIGURES
from evergrad.paper.experiments.noise import SMALLEST, lines_of, run_of


@dataclasses.dataclass(frozen=True)
class Extent:
    """What is measured at a budget."""

    steps: int
    repetitions: int
    ranks: tuple[int, ...]  # of OK, and copies of KF-RTRL
    windows: tuple[int, ...]
    signs: tuple[int, ...]  # windows that are measured with signs too
    triples: tuple[tuple[int, int], ...]  # rank and window of KTP
    horizons: tuple[int, ...]
    uoro_windows: tuple[int, ...]


_RANKS, _WINDOWS, _HORIZONS = (1, 2, 4, 8, 16, 32), (0, 4, 8, 16, 32), (1, 2, 5, 10, 25, 50, 100)
_TRIPLES = ((1, 0), (16, 0), (64, 0), (16, 16), (16, 32))
_DESK = Extent(300, 5, _RANKS, _WINDOWS, (0, 16), _TRIPLES, _HORIZONS, (0, 16, 32))
EXTENTS = {
    "quick": Extent(40, 2, (1, 2), (0, 4), (0,), ((2, 0), (2, 4)), (2, 5), (0, 4)),
    "desk": _DESK,
    "long": _DESK,
    "full": dataclasses.replace(_DESK, steps=1000, repetitions=20, signs=_WINDOWS),
}
SUBJECTS = {"ptb": "trained on PTB", "copy": "trained on copy"}
_TRAINED = {"ptb": FIGURES["fig2"].steps, "copy": FIGURES["fig1"].steps}  # by the paper


@dataclasses.dataclass(frozen=True)
class Family:
    """Estimators as the laboratory spells them. Where a parameter does not go one way, they are not `joined` by a line."""

    name: str
    members: list[str]
    joined: bool = True
    hollow: bool = False


def families(budget: str) -> list[Family]:
    e = EXTENTS[budget]
    sampling = [Family(f"OK sampling, window {k}", [f"ok:rank={r},window={k}" for r in e.ranks]) for k in e.windows]
    signs = [
        Family(f"OK signs, window {k}", [f"ok:rank={r},window={k},mix=signs" for r in e.ranks], hollow=True)
        for k in e.signs
    ]
    return [
        *sampling,
        *signs,
        Family("KF-RTRL-AVG", [f"kf:copies={c}" for c in e.ranks]),
        Family("KTP (rank, window)", [f"ktp:rank={r},window={k}" for r, k in e.triples], joined=False),
        Family("UORO (window)", [f"uoro:window={k}" for k in e.uoro_windows], joined=False),
        Family("TBPTT (its bias)", [f"tbptt:horizon={h}" for h in e.horizons]),
    ]


class Pareto(Experiment):
    name, title = "ours", "Ours: gradient error against multiply-adds a step"

    def lines(self, plan):
        return [line for which in SUBJECTS for line in lines_of(plan, which)]

    def measure(self, plan):
        runs = {which: run_of(plan, which) for which in SUBJECTS}
        return {which: _of(plan, which, run) for which, run in runs.items() if run is not None}

    def section(self, result, reference):
        pictures, grids, claims = [], [], []
        for which, found in result.measured.items():
            pictures.append(Picture(f"pareto-{which}", _figure(found, result.budget), _caption(which, found)))
            grids.append(_front(which, found))
            claims += _claims(which, found)
        remarks = [
            "TBPTT is of stride 1 here, a gradient at every step, and has no noise but a bias; it has no error at all where its "
            "horizon reaches to the start of the string. Whether a bias or a noise of the same size hurts more, this picture "
            "does not say: see Figures 1 and A.8."
        ]
        return Section(pictures, claims, grids, remarks)


def _of(plan, which, run) -> dict[str, Any]:
    from evergrad.lab.subject import of_run

    steps, repetitions = EXTENTS[plan.budget].steps, EXTENTS[plan.budget].repetitions
    points: dict[str, dict[str, float]] = {}
    subject = None
    for family in families(plan.budget):
        settings = plan.trained(run) | {"steps": steps, "repetitions": repetitions, "of": family.members}

        def measure(spelt=family.members):
            nonlocal subject
            subject = subject or of_run(plan.path(run), steps=steps)
            smallest = SMALLEST if which == "copy" else 0.0
            return _points(subject, spelt, repetitions, smallest, plan.check)

        slug = "".join(c if c.isalnum() else "-" for c in family.name)
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
    from evergrad._training.plots import line_style, marker, subplots

    figure, axes = subplots(figsize=(8, 7))
    for i, family in enumerate(families(budget)):
        here = [found["points"][text] for text in family.members]
        xs, ys = [p["multiply_adds"] for p in here], [max(p["error"], _FLOOR) for p in here]
        style = line_style(i) | ({"markerfacecolor": "none", "markersize": 9} if family.hollow else {"markersize": 5})
        style |= {} if family.joined else {"linestyle": "none"}
        axes.loglog(xs, ys, label=family.name, marker=marker(i), linewidth=1.2, **style)
        at = max((j for j, y in enumerate(ys) if y > _FLOOR), default=-1)  # the end of a line, where lines are apart
        at = at if family.joined else 0
        left = family.joined and ys[-1] == _FLOOR  # where the right side is crowded
        how = {"ha": "right" if left else "left", "textcoords": "offset points", "fontsize": 7, "color": style["color"]}
        how["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
        axes.annotate(family.name, (xs[at], ys[at]), (-6 if left else 4, -10 if family.hollow else 4), **how)
    axes.set_xlim(right=10 * max(p["multiply_adds"] for p in found["points"].values()))
    axes.axvline(found["exact"], color="0.4", linewidth=1, label="exact RTRL, window n (no error)")
    axes.set_xlabel("multiply-adds a step and stream, beyond the forward pass")
    axes.set_ylabel("squared error of the gradient / its squared norm")
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
    """Of a trained network, so judged like all else that is said of one: not below a tenth of the paper's training."""
    points, share = found["points"], found["step"] / _TRAINED[which]
    claims = []
    pairs = [("ok:rank=8,window=16", "ok:rank=8,window=0,mix=signs", "quieter than the paper's 8-OK")]
    pairs += [("ok:rank=8,window=16", "kf:copies=8", "quieter than 8-KF-RTRL-AVG")]
    for one, two, what in pairs:
        if one in points and two in points:
            first, second = points[one]["error"], points[two]["error"]
            ours = f"{first:.3g} against {second:.3g}, at {_share(points, one, two)} of the multiply-adds"
            plain = (
                f"with a window of 16 OK is quieter at a fifth of the cost ({SUBJECTS[which]})"
                if "paper" in what
                else ""
            )
            made = _judged(first < second, share)
            claims.append(Claim(f"{SUBJECTS[which]}: {one} is {what}", NEW, ours, made, share=share, plain=plain))
    return [*claims, *_copies(which, points, share), *_uoro(which, points, share), _sampling(which, points, share)]


def _judged(good, share):
    return verdict(1.0 if good else -1.0, share=share)


def _copies(which, points, share):
    """Averaging c copies of KF-RTRL divides its noise by c: the power fitted through all of them."""
    found = {int(text.rpartition("=")[2]): p["error"] for text, p in points.items() if text.startswith("kf:copies=")}
    if len(found) < 3:
        return []
    power = float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
    ours = f"copies^{power:.2f} ({found[min(found)]:.3g} with {min(found)}, {found[max(found)]:.3g} with {max(found)})"
    what = f"{SUBJECTS[which]}: KF-RTRL-AVG's squared error falls as 1/copies (to 0.1 in the power)"
    return [Claim(what, "by a factor of r", ours, _judged(abs(power + 1) <= 0.1, share), "Section 3.6", share)]


def _uoro(which, points, share):
    one, two = "kf:copies=1", "uoro:window=0"
    if one not in points or two not in points:
        return []
    kf, uoro = points[one]["error"], points[two]["error"]
    ours = f"squared error {kf:.3g} against {uoro:.3g} of the gradient's"
    what = f"{SUBJECTS[which]}: KF-RTRL is quieter than UORO, by a factor of 10 or more"
    return [Claim(what, "significantly less noise", ours, _judged(uoro >= 10 * kf, share), "Section 3.6", share)]


def _sampling(which, points, share):
    """The squared error with signs over that with sampling, at all ranks and windows that have both."""
    pairs = {text: text.removesuffix(",mix=signs") for text in points if text.endswith(",mix=signs")}
    ratios = [points[signs]["error"] / points[sampling]["error"] for signs, sampling in pairs.items()]
    middle, above = float(np.median(ratios)), sum(ratio > 1 for ratio in ratios)
    ours = (
        f"{middle:.2f} times in the middle, {min(ratios):.2f} to {max(ratios):.2f}; larger in {above} of {len(ratios)} pairs of "
        "rank and window (it takes five sixths of them to say so)"
    )
    what = f"{SUBJECTS[which]}: signs make a larger squared error than sampling"
    return Claim(what, NEW, ours, _judged(above >= 5 / 6 * len(ratios), share), share=share)


def _share(points, one, two):
    return f"{points[one]['multiply_adds'] / points[two]['multiply_adds']:.0%}"
