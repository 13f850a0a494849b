"""Verdicts and tables of the noise figures."""

import numpy as np

from evergrad.paper.claims import NEW, OPEN, Claim, fact, verdict
from evergrad.paper.experiment import Grid
from evergrad.paper.experiments.panels import PANEL, PANELS, UNTRAINED, Panel

STRINGS, STEPS = 40, 1_000_000  # what the paper's networks had learned: strings on copy, steps on text
GROWN = 0.5  # of that; below it a network is young, in every figure
FAR = 0.1  # how much above a cosine is to be called far above
SMALL = 0.1  # a difference of cosines below it is a small one
_TASKS = {"copy": "copy", "text": "Penn Treebank"}
YOUNG_IN_WORDS = (
    f"The paper's networks had learned copy strings of {STRINGS}, or read {STEPS:,} characters a stream. One rule for all of these "
    f"figures: a network with less than {GROWN:.0%} of that is young, and what is said of trained networks, by the paper or by us, is then open."
)


def age(panel: Panel, row: dict) -> float:
    """How much of what the paper's network had learned this one has."""
    return row["learned"] / STRINGS if panel.task == "copy" else row["trained"] / STEPS


def claims(found: dict) -> list[Claim]:
    made = [_untrained(found["figA2"]), *_sizes(found["figA5"])]
    for panel in PANELS:
        if panel.key != "figA7":
            plain = f"on trained networks ({_TASKS[panel.task]}) OK's gradient is far closer to the exact one than KF-RTRL's"
            plain = "so it is at 512 units on copy" if panel.large else plain
            made.append(_above(found, panel, panel.kf, "far above", FAR, plain))
    made += [_alike(found, label, "figA4", "figA3", "whatever the weights") for label in _pair("figA3")]
    made += [_alike(found, label, "figA6", "figA3", "as with 128 units") for label in _pair("figA3")]
    made.append(_advantage_gone(found))
    made += [claim for panel in PANELS for claim in _theorem_1(found, panel)]
    made += [_beside_the_data(found, network) for network in ("copy", "ptb") if f"batch-{network}" in found]
    made += [_above(found, panel, panel.ok, NEW, 0.0, "", one=panel.ours) for panel in PANELS if panel.key in found]
    return made


def _pair(key):
    return PANEL[key].ok, PANEL[key].kf


def _untrained(found):
    cosine = found["estimators"]["2-OK"]["cosine"]
    what, plain = "untrained: cosine of 2-OK ≈ 1 (above 0.99)", "two terms suffice before training"
    return Claim(what, "almost exactly 1", f"{cosine:.4f}", fact(cosine > 0.99), "Figure A.2", plain=plain)


def _sizes(found):
    means = [np.mean(row["2-OK"].get("cosines", row["2-OK"].get("cosine"))) for row in found.values()]
    what, plain = "untrained, all sizes: 2-OK ≈ 1 (above 0.99)", "the size of an untrained network does not matter"
    lowest = Claim(
        what, "size does not matter", f"lowest {min(means):.4f}", fact(min(means) > 0.99), "Figure A.5", plain=plain
    )
    return [lowest, *(_whatever_the_size(found, label) for label, text in UNTRAINED.items() if text.startswith("kf"))]


def _whatever_the_size(found, label):
    """Cosines of the smallest and the largest network, seed by seed, to two standard errors of the difference."""
    sizes = sorted(int(n) for n, row in found.items() if "cosines" in row[label])
    what, said = f"untrained: the cosine of {label} is the same at all sizes", "size does not matter"
    if len(sizes) < 2:
        return Claim(what, said, "measured without pairing the seeds", OPEN, "Figure A.5")
    small, large = (np.array(found[str(n)][label]["cosines"]) for n in (sizes[0], sizes[-1]))
    apart = small - large
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    ours = f"{small.mean():.3f} with {sizes[0]} units, {large.mean():.3f} with {sizes[-1]}; the difference over {len(apart)} pairs is "
    ours += f"{apart.mean():.3f} ± {error:.3f}"
    whole = sizes[-1] == max(map(int, found))
    ours += "" if whole else "; larger networks were measured without pairs"
    made = verdict(2 * error - abs(apart.mean()), least=-1e-12, share=1.0 if whole else 0.0)
    return Claim(what, said, ours, made, "Figure A.5")


def _above(found, panel, two, said, by, plain, *, one=None):
    one = one or panel.ok
    far = f" by {by:g} or more" if by else ""
    what = f"{panel.title}: cosine of {one} above {two}{far}"
    if panel.key not in found:
        return Claim(what, said, "not trained yet", OPEN, panel.figure, 0.0, plain)
    rows, share = found[panel.key]["estimators"], age(panel, found[panel.key])
    first, second = (round(rows[name]["cosine"], 4) for name in (one, two))
    young = share < GROWN
    made = verdict(first - second, least=by, share=0.0 if young else 1.0)
    ours = f"{first:.4f} against {second:.4f}, {_network(panel, found)}" + (": young" if young else "")
    return Claim(what, said, ours, made, panel.figure, share, plain)


def _network(panel, found):
    row = found[panel.key]
    return f"length {row['learned']:.0f} of {STRINGS}" if panel.task == "copy" else f"{row['trained']:,} steps"


def _alike(found, label, key, other, how):
    panel = PANEL[key]
    what, said = f"{panel.title}: the cosine of {label} {how} (to {SMALL:g})", "only a small difference"
    if key not in found or other not in found:
        return Claim(what, said, "not trained yet", OPEN, panel.figure, 0.0)
    here, there = (found[k]["estimators"][label]["cosine"] for k in (key, other))
    share = min(age(PANEL[k], found[k]) for k in (key, other))
    made = verdict(SMALL - abs(here - there), least=1e-12, share=1.0 if share >= GROWN else 0.0)
    young = "" if share >= GROWN else ": young"
    return Claim(what, said, f"{here:.4f} against {there:.4f}{young}", made, panel.figure, share)


def _advantage_gone(found):
    panel = PANEL["figA7"]
    what = f"{panel.title}: the advantage of {panel.ok} over {panel.kf} falls below a quarter of that with 256 units"
    said, plain = "vanishes almost completely", "at 512 units on Penn Treebank OK's advantage over KF-RTRL vanishes"
    if "figA7" not in found or "fig3" not in found:
        return Claim(what, said, "not trained yet", OPEN, panel.figure, 0.0, plain)
    here, there = (
        found[key]["estimators"][panel.ok]["cosine"] - found[key]["estimators"][panel.kf]["cosine"]
        for key in ("figA7", "fig3")
    )
    share = min(age(PANEL[key], found[key]) for key in ("figA7", "fig3"))
    made = verdict(there / 4 - here, least=1e-12, share=1.0 if share >= GROWN else 0.0)
    ours = f"an advantage of {here:.3f} with 512 units, {there:.3f} with 256, {_network(panel, found)}"
    return Claim(what, said, ours + ("" if share >= GROWN else ": young"), made, panel.figure, share, plain)


def _theorem_1(found, panel):
    """The noise that a fold injects against the least that the format allows; true of networks of any age."""
    rows = found[panel.key]["estimators"] if panel.key in found else {}
    row = rows.get(panel.ok, {})
    if row.get("injected") is None or row.get("bound") is None:
        return []
    error = row.get("injected_error")
    ours = (
        f"{row['injected']:.3g}"
        + ("" if error is None else f" ± {error:.1g}")
        + f" against {row['bound']:.3g} of ‖G‖² a step"
    )
    what, said = f"{panel.title}: {panel.ok} injects the least noise that the format allows", "the optimum"
    plain = (
        "the noise that OK injects into trained networks is the least that its format allows"
        if panel.key == "figA3"
        else ""
    )
    if error is None:
        return [Claim(what, said, ours + "; measured without its standard error", OPEN, "Theorem 1", plain=plain)]
    return [Claim(what, said, ours, fact(row["verdict"] == "met"), "Theorem 1", plain=plain)]


def _beside_the_data(found, network):
    """The paper's posit: OK's noise is below that of the data, at any number of streams."""
    panel = next(panel for panel in PANELS if panel.network == network)
    row = found[f"batch-{network}"]
    ratios = {name: noise / row["data"] for name, noise in row["estimators"].items()}
    ours = "; ".join(f"{name} {ratio:.2g}" for name, ratio in ratios.items())
    ours += f" times the variance over {row['streams']} streams, mean over {row['steps']} steps ({row['subject']})"
    what = f"{panel.title}: the noise of {panel.ok} is below that of the data"
    plain = f"OK's noise is smaller than the noise of the data ({_TASKS[panel.task]})"
    share = age(panel, row)
    made = verdict(1 - ratios[panel.ok], share=1.0 if share >= GROWN else 0.0)
    young = "" if share >= GROWN else ": young"
    return Claim(
        what, "smaller than that of stochastic gradient descent", ours + young, made, "Section 4", share, plain
    )


def grids(found: dict) -> list[Grid]:
    head = ("estimator", "cosine", "error²/gradient²", "bias z", "injected a step", "own bound")
    return [
        Grid(
            f"{panel.figure}, {panel.title}: {found[panel.key]['subject']}",
            head,
            [(name, *_numbers(row)) for name, row in found[panel.key]["estimators"].items()],
        )
        for panel in PANELS
        if panel.key in found
    ]


def _numbers(row):
    from evergrad.lab.summary import injected_in_words

    z = row["bias_z"]
    shown = [f"{row['cosine']:.4f}", f"{row['relative_error']:.3g}", "–" if z is None else f"{z:.1f}"]
    return (*shown, *injected_in_words(row))
