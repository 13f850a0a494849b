"""Figures 3 and A.2 to A.6: the cosine of estimates and exact gradient, weights frozen.

One stream. The networks are those that the other experiments have trained; the two of 512 units are trained here, with TBPTT,
which is what can be afforded. Texts are read without resets; copy strings have the length that the network has learned, and
steps whose exact gradient is below 1e-4 are left out, as in the paper.
"""

import dataclasses
from typing import Any

import numpy as np

from evergrad.experiments import fig1_copy, fig2_ptb
from evergrad.paper.claims import NEW, OPEN, Claim, judged
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.plan import Line, Plan
from evergrad.paper.setup import COPY, PTB, line, tbptt

SMALLEST = 1e-4
STEPS = {"quick": 40, "desk": 1000, "full": 1000}
STEPS_LARGE = {"quick": 40, "desk": 300, "full": 1000}  # for 512 units
REPETITIONS = {"quick": 3, "desk": 20, "full": 20}
REPETITIONS_LARGE = {"quick": 2, "desk": 5, "full": 20}
NETWORKS = {"quick": 2, "desk": 5, "full": 20}  # untrained, of different weights
STEPS_UNTRAINED = {"quick": 40, "desk": 1000, "full": 10_000}
SIZES = {"quick": (8, 16), "desk": (8, 16, 32, 64, 128, 256, 512), "full": (8, 16, 32, 64, 128, 256, 512)}
STEPS_SIZES, NETWORKS_SIZES = 100, {"quick": 2, "desk": 10, "full": 10}

UNTRAINED = {"2-OK": "ok:rank=2,window=0,mix=signs", "1-OK": "ok:rank=1,window=0,mix=signs"}
UNTRAINED |= {"2-KF-RTRL-AVG": "kf:copies=2", "KF-RTRL": "kf"}
TRAINED_PTB = {"8-OK, window 16 (ours)": "ok:rank=8,window=16", "8-OK": "ok:rank=8,window=0,mix=signs"}
TRAINED_PTB |= {"2-OK": "ok:rank=2,window=0,mix=signs", "8-KF-RTRL-AVG": "kf:copies=8"}
TRAINED_COPY = {"16-OK, window 16 (ours)": "ok:rank=16,window=16", "16-OK": "ok:rank=16,window=0,mix=signs"}
TRAINED_COPY |= {"8-OK": "ok:rank=8,window=0,mix=signs", "16-KF-RTRL-AVG": "kf:copies=16"}

LARGE_PTB, LARGE_COPY = "PTB, 512 units, by TBPTT-25", "copy, 512 units, by TBPTT-50"
LARGE_STEPS = {
    LARGE_PTB: {"quick": (200, 1), "desk": (20_000, 1), "full": (1_000_000, 1)},
    LARGE_COPY: {"quick": (200, 1), "desk": (60_000, 1), "full": (2_000_000, 1)},
}
PANELS = {  # key: title, estimators, which line and seed
    "fig3": ("Figure 3: trained on PTB, 256 units", TRAINED_PTB, "ptb", 0),
    "figA3": ("Figure A.3: trained on copy, 128 units", TRAINED_COPY, "copy", 0),
    "figA4": ("Figure A.4: the same with other trained weights", TRAINED_COPY, "copy", 1),
    "figA6-copy": ("Figure A.6: trained on copy, 512 units", TRAINED_COPY, LARGE_COPY, 0),
    "figA6-ptb": ("Figure A.6: trained on PTB, 512 units", TRAINED_PTB, LARGE_PTB, 0),
}


def trained(plan: Plan) -> dict[str, Line]:
    """The networks that are looked at."""
    copies = {each.label: each for each in fig1_copy.lines(plan) if not each.search}
    texts = {each.label: each for each in fig2_ptb.lines(plan) if not each.search}
    large = {"units": 512}
    return {
        "copy": copies[fig1_copy.OURS],
        "ptb": texts[fig2_ptb.OURS],
        LARGE_PTB: line(plan, LARGE_PTB, PTB | large, tbptt(25), LARGE_STEPS[LARGE_PTB]),
        LARGE_COPY: line(plan, LARGE_COPY, COPY | large, tbptt(50), LARGE_STEPS[LARGE_COPY]),
    }


class NoiseFigures(Experiment):
    name, title = "noise", "Figures 3 and A.2 to A.6: how noisy the estimates are"

    def lines(self, plan):
        return list(trained(plan).values())

    def measure(self, plan):
        found = {"figA2": _untrained(plan), "figA5": {str(n): _of_size(plan, n) for n in SIZES[plan.budget]}}
        lines = trained(plan)
        for key, (_, estimators, which, seed) in PANELS.items():
            runs = lines[which].runs()
            if seed < len(runs) and plan.finished(runs[seed]):
                found[key] = _trained(plan, key, runs[seed], estimators, large="512" in which)
        return found

    def section(self, result, reference):
        found = result.measured
        if not found:
            return Section(remarks=["Not measured yet: the training is not done."])
        pictures = [_along("figA2", "Figure A.2: untrained, PTB, 256 units", found["figA2"]["estimators"])]
        pictures += [_sizes(found["figA5"])]
        for key, (title, *_) in PANELS.items():
            if key in found:
                pictures.append(_along(key, f"{title} ({found[key]['subject']})", found[key]["estimators"]))
        return Section(pictures, _claims(found), _grids(found), _remarks(result))


def _estimators(plan: Plan, spelt: dict[str, str]) -> dict[str, Any]:
    from evergrad.lab.subject import parse_estimator

    made = {label: parse_estimator(text) for label, text in spelt.items()}
    return {label: type(e)(**_fewer(e)) for label, e in made.items()} if plan.quick else made


def _fewer(estimator):
    """Ranks that stay below the few regressors of the networks of a quick budget."""
    small = {f.name: getattr(estimator, f.name) for f in dataclasses.fields(estimator)}
    return {k: max(1, v // 4) if k in ("rank", "copies") and v > 2 else v for k, v in small.items()}


def _trained(plan, key, run, spelt, *, large):
    from evergrad.lab.report import noise_of
    from evergrad.lab.subject import of_run

    steps = (STEPS_LARGE if large else STEPS)[plan.budget]
    repetitions = (REPETITIONS_LARGE if large else REPETITIONS)[plan.budget]
    smallest = SMALLEST if run.task == "copy" else 0.0

    def measure():
        subject = of_run(plan.path(run), steps=steps)
        rows = noise_of(
            subject,
            _estimators(plan, spelt),
            repetitions=repetitions,
            smallest=smallest,
            with_injected=not plan.quick or key == "fig3",
            told=plan.check,
        )
        return {"subject": subject.words, "estimators": rows}

    settings = {"run": run.id, "step": plan.reached(run), "steps": steps, "repetitions": repetitions, **spelt}
    return plan.measured(f"noise-{key}", settings, measure)


def _different_networks(plan, units, steps, networks):
    """One draw on each of several untrained networks: cosines [network, step] of every estimator."""
    import jax

    from evergrad.lab.noise import measure
    from evergrad.lab.subject import untrained
    from evergrad.training.resolve import resolve

    cosines = {label: [] for label in UNTRAINED}
    for seed in range(networks):
        settings = resolve("text", {"units": units, "data": plan.data, "seed": seed})
        subject = untrained(settings, steps=steps)
        found = measure(
            subject.model,
            _estimators(plan, UNTRAINED),
            subject.data,
            repetitions=1,
            key=jax.random.key(seed),
            told=plan.check,
        )
        for label, noise in found.items():
            cosines[label].append(noise.cosines()[0])
    return {label: np.array(each) for label, each in cosines.items()}


def _untrained(plan):
    units, steps, networks = 32 if plan.quick else 256, STEPS_UNTRAINED[plan.budget], NETWORKS[plan.budget]

    def measure():
        from evergrad.lab.summary import curve

        cosines = _different_networks(plan, units, steps, networks)
        everything = np.ones(steps, bool)
        return {
            "subject": f"{units} units, {networks} networks",
            "estimators": {k: {"cosine": float(c.mean()), "curve": curve(c, everything)} for k, c in cosines.items()},
        }

    settings = {"units": units, "steps": steps, "networks": networks, "data": plan.data, **UNTRAINED}
    return plan.measured("noise-figA2", settings, measure)


def _of_size(plan, units):
    networks = NETWORKS_SIZES[plan.budget]

    def measure():
        cosines = _different_networks(plan, units, STEPS_SIZES, networks)
        return {k: {"cosine": float(c[:, -1].mean()), "spread": float(c[:, -1].std())} for k, c in cosines.items()}

    settings = {"units": units, "steps": STEPS_SIZES, "networks": networks, "data": plan.data, **UNTRAINED}
    return plan.measured(f"noise-figA5-{units}", settings, measure)


def _along(key, title, rows):
    from evergrad.lab.summary import draw_cosines
    from evergrad.plots import plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    draw_cosines(axes, rows)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return Picture(
        key, figure, f"{title}. Mean and one standard deviation over repetitions, averaged over short stretches."
    )


def _sizes(found):
    from evergrad.plots import line_style, marker, plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    sizes = [int(n) for n in found]
    for i, label in enumerate(UNTRAINED):
        cosine = [found[str(n)][label]["cosine"] for n in sizes]
        spread = [found[str(n)][label]["spread"] for n in sizes]
        beside = [n * 2 ** (0.08 * (i - (len(UNTRAINED) - 1) / 2)) for n in sizes]  # so that no bar hides another
        axes.errorbar(beside, cosine, spread, label=label, marker=marker(i), capsize=3, **line_style(i))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_xlabel("units")
    axes.set_ylabel(f"cosine after {STEPS_SIZES} steps")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    return Picture("figA5", figure, "Figure A.5: untrained networks of different size. Mean and standard deviation.")


def _claims(found):
    untrained = found["figA2"]["estimators"]["2-OK"]["cosine"]
    claims = [Claim("untrained: cosine of 2-OK ≈ 1", "almost exactly 1", f"{untrained:.4f}", judged(untrained > 0.99))]
    lowest = min(row["2-OK"]["cosine"] for row in found["figA5"].values())
    claims.append(
        Claim("untrained, all sizes: 2-OK ≈ 1", "size does not matter", f"lowest {lowest:.4f}", judged(lowest > 0.99))
    )
    pairs = {"fig3": ("8-OK", "8-KF-RTRL-AVG"), "figA3": ("16-OK", "16-KF-RTRL-AVG")}
    pairs |= {"figA4": pairs["figA3"], "figA6-copy": pairs["figA3"], "figA6-ptb": pairs["fig3"]}
    for key, (ok, kf) in pairs.items():
        if key == "figA6-ptb":
            claims.append(_same(found, key, ok, kf))
        else:
            claims.append(_above(found, key, f"{PANELS[key][0]}: cosine of {ok} above {kf}", "far above", ok, kf))
        claims.append(
            _above(found, key, f"{PANELS[key][0]}: our window above {ok}", NEW, f"{ok}, window 16 (ours)", ok)
        )
    return claims


def _same(found, key, one, two):
    what, said = f"{PANELS[key][0]}: {one} and {two} have the same cosine", "almost the same"
    if key not in found:
        return Claim(what, said, "not trained yet", OPEN)
    first, second = (found[key]["estimators"][name]["cosine"] for name in (one, two))
    return Claim(what, said, f"{first:.4f} against {second:.4f}", judged(abs(first - second) < 0.05))


def _above(found, key, what, said, one, two):
    if key not in found:
        return Claim(what, said, "not trained yet", OPEN)
    first, second = (round(found[key]["estimators"][name]["cosine"], 4) for name in (one, two))
    if first == second:
        return Claim(what, said, f"{first:.4f}, both", OPEN)
    return Claim(what, said, f"{first:.4f} against {second:.4f}", judged(first > second))


def _grids(found):
    head = ("estimator", "cosine", "error²/gradient²", "bias z", "injected a step", "own bound")
    grids = []
    for key, (title, *_) in PANELS.items():
        if key in found:
            rows = [(name, *_numbers(row)) for name, row in found[key]["estimators"].items()]
            grids.append(Grid(f"{title}: {found[key]['subject']}", head, rows))
    return grids


def _numbers(row):
    z = row["bias_z"]
    shown = [f"{row['cosine']:.4f}", f"{row['relative_error']:.3g}", "–" if z is None else f"{z:.1f}"]
    return (*shown, *("–" if row[key] is None else f"{row[key]:.2g}" for key in ("injected", "bound")))


def _remarks(result):
    remarks = [
        "One stream; a text is read without resets. The networks of 512 units were trained with TBPTT.",
        "The injected noise and its bound are of one step and in units of ‖G‖²; the bound is Theorem 2's optimum for OK and "
        "the sign trick's variance for KF-RTRL.",
        "The paper trained its networks for 1 to 2 million steps and the copy ones to length 40; ours had the steps that "
        "each picture names, so they are the same measurement of younger networks.",
    ]
    return remarks + fig2_ptb.data_remark(result)
