"""Figures 3 and A.2 to A.6: the cosine of estimates and exact gradient, weights frozen.

One stream. The networks are those that the other experiments have trained; the two of 512 units are trained here, with TBPTT,
which is what can be afforded. Texts are read without resets; copy strings have the length that the network has learned, and
steps whose exact gradient is below 1e-4 are left out, as in the paper.
"""

import dataclasses
from typing import Any

import numpy as np

from evergrad.paper.claims import NEW, OPEN, Claim, judged
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.experiments import fig1_copy, fig2_ptb
from evergrad.paper.plan import PAPERS_START, Line, Plan
from evergrad.paper.setup import COPY, PTB, line, tbptt

SMALLEST = 1e-4
STEPS = {"quick": 40, "desk": 1000, "full": 1000}
STEPS_LARGE = {"quick": 40, "desk": 300, "full": 1000}  # for 512 units
REPETITIONS = {"quick": 3, "desk": 20, "full": 20}
REPETITIONS_LARGE = {"quick": 2, "desk": 5, "full": 20}
NETWORKS = {"quick": 2, "desk": 5, "full": 20}  # untrained, of different weights
STEPS_UNTRAINED = {"quick": 40, "desk": 1000, "full": 10_000}
SIZES = {"quick": (8, 16), "desk": (8, 16, 32, 64, 128, 256, 512), "full": (8, 16, 32, 64, 128, 256, 512)}
STEPS_SIZES, NETWORKS_SIZES = 100, {"quick": 2, "desk": 10, "full": 100}  # the paper: 10 for OK, 100 for KF

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
LONG, STRINGS = 1_000_000, 40  # steps, and the length of copy strings, that the paper's networks had learned
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
        pictures = [_along("figA2", "Figure A.2: untrained, PTB, 256 units", found["figA2"], "networks")]
        pictures += [_sizes(found["figA5"])]
        for key, (title, *_) in PANELS.items():
            if key in found:
                pictures.append(_along(key, f"{title} ({found[key]['subject']})", found[key], "repetitions"))
        return Section(pictures, _claims(found, result.budget), _grids(found), _remarks(result))


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

    looked = {"steps": steps, "repetitions": repetitions}
    learned = {"trained": plan.reached(run), "learned": plan.figure_at(run, plan.reached(run))}
    return plan.measured(f"noise-{key}", plan.trained(run) | looked | spelt, measure) | looked | learned


def _different_networks(plan, units, steps, networks):
    """One draw on each of several untrained networks: cosines [network, step] of every estimator."""
    import jax

    from evergrad._training.resolve import resolve
    from evergrad.lab.noise import measure
    from evergrad.lab.subject import untrained

    cosines = {label: [] for label in UNTRAINED}
    for seed in range(networks):
        settings = resolve("text", {"units": units, "data": plan.data, "seed": seed} | PAPERS_START)
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

    looked = {"steps": steps, "networks": networks}
    settings = {"units": units, **looked, "data": plan.data, **UNTRAINED}
    return plan.measured("noise-figA2", settings, measure) | looked


def _of_size(plan, units):
    networks = NETWORKS_SIZES[plan.budget]

    def measure():
        cosines = _different_networks(plan, units, STEPS_SIZES, networks)
        return {k: {"cosine": float(c[:, -1].mean()), "spread": float(c[:, -1].std())} for k, c in cosines.items()}

    settings = {"units": units, "steps": STEPS_SIZES, "networks": networks, "data": plan.data, **UNTRAINED}
    return plan.measured(f"noise-figA5-{units}", settings, measure)


def _along(key, title, found, over):
    from evergrad._training.plots import plt
    from evergrad.lab.summary import draw_cosines

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    draw_cosines(axes, found["estimators"])
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    what = f"Mean and one standard deviation over {found[over]} {over}, averaged over short stretches"
    return Picture(key, figure, f"{title}. {what} of {found['steps']:,} steps.")


def _sizes(found):
    from evergrad._training.plots import line_style, marker, plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    sizes = [int(n) for n in found]
    for i, label in enumerate(UNTRAINED):
        cosine = [found[str(n)][label]["cosine"] for n in sizes]
        spread = [found[str(n)][label]["spread"] for n in sizes]
        beside = [n * 2 ** (0.08 * (i - (len(UNTRAINED) - 1) / 2)) for n in sizes]  # so that no bar hides another
        reach = [spread, [min(s, 1 - c) for s, c in zip(spread, cosine, strict=True)]]  # there is no cosine above 1
        axes.errorbar(beside, cosine, reach, label=label, marker=marker(i), capsize=3, **line_style(i))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_xlabel("units")
    axes.set_ylabel(f"cosine after {STEPS_SIZES} steps")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    return Picture("figA5", figure, "Figure A.5: untrained networks of different size. Mean and standard deviation.")


def _claims(found, budget):
    untrained = found["figA2"]["estimators"]["2-OK"]["cosine"]
    claims = [Claim("untrained: cosine of 2-OK ≈ 1", "almost exactly 1", f"{untrained:.4f}", judged(untrained > 0.99))]
    lowest = min(row["2-OK"]["cosine"] for row in found["figA5"].values())
    claims.append(
        Claim("untrained, all sizes: 2-OK ≈ 1", "size does not matter", f"lowest {lowest:.4f}", judged(lowest > 0.99))
    )
    claims += [
        _whatever_the_size(found["figA5"], label, NETWORKS_SIZES[budget]) for label in UNTRAINED if "OK" not in label
    ]
    pairs = {"fig3": ("8-OK", "8-KF-RTRL-AVG"), "figA3": ("16-OK", "16-KF-RTRL-AVG")}
    pairs |= {"figA4": pairs["figA3"], "figA6-copy": pairs["figA3"]}
    for key, (ok, kf) in pairs.items():
        claims.append(_above(found, key, f"{PANELS[key][0]}: cosine of {ok} above {kf}", "far above", ok, kf))
    claims += [_alike(found, label, "figA4", "figA3", "whatever the weights", 0.1) for label in pairs["figA3"]]
    claims += [_alike(found, label, "figA6-copy", "figA3", "as with 128", 0.1) for label in pairs["figA3"]]
    claims.append(_advantage_gone(found, "figA6-ptb", *pairs["fig3"]))
    for key in PANELS:
        ok = "8-OK" if key in ("fig3", "figA6-ptb") else "16-OK"
        what = f"{PANELS[key][0]}: our window above {ok}"
        claims.append(_above(found, key, what, NEW, f"{ok}, window 16 (ours)", ok))
    return claims


def _whatever_the_size(found, label, networks):
    """Cosines of the smallest and the largest network, to two standard errors."""
    ends = [found[n][label] for n in (min(found, key=int), max(found, key=int))]
    error = np.hypot(*(end["spread"] for end in ends)) / np.sqrt(networks)
    (small, large), sizes = (end["cosine"] for end in ends), sorted(map(int, found))
    ours = f"{small:.3f} with {sizes[0]} units, {large:.3f} with {sizes[-1]} (standard error {error:.3f})"
    what = f"untrained: the cosine of {label} is the same at all sizes"
    return Claim(what, "size does not matter", ours, judged(abs(small - large) < 2 * error))


def _too_young(found, key):
    """In words, where a network of 512 units has learned too little for the paper's claims about it; else nothing."""
    if not key.startswith("figA6"):
        return ""
    length, trained = found[key]["learned"], found[key]["trained"]
    if "copy" in PANELS[key][0]:
        return f": only length {length:g} of {STRINGS}" if length < STRINGS / 2 else ""
    return f": only {trained:,} steps of training of {LONG:,}" if trained < LONG / 2 else ""


def _cosines(found, *places):
    return [round(found[key]["estimators"][name]["cosine"], 4) for key, name in places]


def _alike(found, label, key, other, how, margin):
    what, said = f"{PANELS[key][0]}: the cosine of {label} {how}", "only a small difference"
    if key not in found or other not in found:
        return Claim(what, said, "not trained yet", OPEN)
    here, there = _cosines(found, (key, label), (other, label))
    young = _too_young(found, key)
    verdict = OPEN if young else judged(abs(here - there) < margin)
    return Claim(
        what, said, f"{here:.4f} against {there:.4f} (a small difference is one below {margin:g}){young}", verdict
    )


def _advantage_gone(found, key, ok, kf):
    what, said = f"{PANELS[key][0]}: the advantage of {ok} over {kf} vanishes", "almost completely"
    if key not in found or "fig3" not in found:
        return Claim(what, said, "not trained yet", OPEN)
    here, there = (np.subtract(*_cosines(found, (k, ok), (k, kf))) for k in (key, "fig3"))
    young = _too_young(found, key)
    ours = f"an advantage of {here:.3f} with 512 units, {there:.3f} with 256{young}"
    return Claim(what, said, ours, OPEN if young else judged(here < there / 4))


def _above(found, key, what, said, one, two):
    if key not in found:
        return Claim(what, said, "not trained yet", OPEN)
    first, second = _cosines(found, (key, one), (key, two))
    if first == second:
        return Claim(what, said, f"{first:.4f}, both", OPEN)
    young = _too_young(found, key) if said != NEW else ""
    return Claim(what, said, f"{first:.4f} against {second:.4f}{young}", OPEN if young else judged(first > second))


def _grids(found):
    head = ("estimator", "cosine", "error²/gradient²", "bias z", "injected a step", "own bound")
    grids = []
    for key, (title, *_) in PANELS.items():
        if key in found:
            rows = [(name, *_numbers(row)) for name, row in found[key]["estimators"].items()]
            grids.append(Grid(f"{title}: {found[key]['subject']}", head, rows))
    return grids


def _numbers(row):
    from evergrad.lab.summary import injected_in_words

    z = row["bias_z"]
    shown = [f"{row['cosine']:.4f}", f"{row['relative_error']:.3g}", "–" if z is None else f"{z:.1f}"]
    return (*shown, *injected_in_words(row))


def _remarks(result):
    remarks = [
        "One stream; a text is read without resets. The networks of 512 units were trained with TBPTT.",
        "The injected noise and its bound are of one step and in units of ‖G‖²; the bound is Theorem 2's optimum for OK and "
        "the sign trick's variance for KF-RTRL.",
        "The paper trained its networks for 1 to 2 million steps and the copy ones to length 40; ours had the steps that "
        "each picture names, so they are the same measurement of younger networks. It took 10,000 steps of 20 untrained "
        "networks in Figure A.2, and 100 networks for the KF lines of Figure A.5 (10 here).",
        "The injected noise is a mean over three places of the sequence only, so it is rough; on copy it depends on where "
        "in a string they are.",
    ]
    return remarks + fig2_ptb.data_remark(result)
