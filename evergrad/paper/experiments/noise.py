"""Figures 3 and A.2 to A.7: the cosine of estimates and exact gradient, weights frozen; and Theorem 1 on trained networks.

One stream. The trained networks are those of the TBPTT lines at their best rates, which are the oldest that can be afforded.
Texts are read without resets; copy strings have the length that the network has learned, and steps whose exact gradient is
below 1e-4 are left out, as in the paper.
"""

import dataclasses
from typing import Any

import numpy as np

from evergrad.paper.experiment import Experiment, Section
from evergrad.paper.experiments import noise_claims, noise_pictures
from evergrad.paper.experiments.fig2_ptb import data_remark
from evergrad.paper.experiments.lines import FIGURES, LARGE_COPY, LARGE_PTB, TBPTT_25, TBPTT_50
from evergrad.paper.experiments.panels import PANELS, UNTRAINED, Panel
from evergrad.paper.experiments.planned import of_row
from evergrad.paper.plan import PAPERS_START, Line, Plan, Run

SMALLEST = 1e-4
# by budget: [small networks, networks of 512 units]
STEPS = {"quick": (40, 40), "desk": (1000, 300), "long": (1000, 300), "full": (1000, 1000)}
REPETITIONS = {"quick": (3, 2), "desk": (20, 5), "long": (20, 5), "full": (20, 20)}
UNTRAINED_STEPS = {"quick": 40, "desk": 1000, "long": 1000, "full": 10_000}
UNTRAINED_NETWORKS = {"quick": 2, "desk": 5, "long": 5, "full": 20}
SIZES = {"quick": (8, 16)}
ALL_SIZES = (8, 16, 32, 64, 128, 256, 512)
SIZE_STEPS = 100
SIZE_NETWORKS = {"quick": {"ok": 2, "kf": 3}, "desk": {"ok": 10, "kf": 100}}  # the paper's numbers
BATCH = {"quick": (4, 40, 2), "desk": (8, 200, 3)}  # streams, steps, repetitions for the noise of the data
NETWORKS = {  # which line is looked at
    "copy": ("fig1", TBPTT_50),
    "ptb": ("fig2", TBPTT_25),
    "copy 512": ("noise", LARGE_COPY),
    "ptb 512": ("noise", LARGE_PTB),
}


def lines_of(plan: Plan, network: str) -> list[Line]:
    name, label = NETWORKS[network]
    return of_row(plan, name, FIGURES[name].row(label))


def run_of(plan: Plan, network: str, seed: int = 0) -> Run | None:
    """The network of a seed at its line's best rate, or the one rate there is, as far as it has been trained."""
    found = [line for line in lines_of(plan, network) if not line.search]
    runs = (max(found, key=lambda line: line.best).runs() if found else [])[seed : seed + 1]
    return next((run for run in runs if any(plan.path(run).glob("checkpoints/[0-9]*"))), None)


class NoiseFigures(Experiment):
    name, title = "noise", "Figures 3 and A.2 to A.7: how noisy the estimates are"

    def lines(self, plan):
        return [line for network in NETWORKS for line in lines_of(plan, network)]

    def measure(self, plan):
        found = {"figA2": _untrained(plan)}
        found["figA5"] = {str(n): _of_size(plan, n) for n in SIZES.get(plan.budget, ALL_SIZES)}
        for panel in PANELS:
            run = run_of(plan, panel.network, panel.seed)
            if run is not None:
                found[panel.key] = _trained(plan, panel, run)
        for network in ("copy", "ptb"):
            run = run_of(plan, network)
            if run is not None:
                found[f"batch-{network}"] = _batch(plan, network, run)
        return found

    def section(self, result, reference):
        found = result.measured
        if not found:
            return Section(remarks=["Not measured yet: the training is not done."])
        return Section(
            noise_pictures.pictures(found), noise_claims.claims(found), noise_claims.grids(found), _remarks(result)
        )


def _estimators(plan: Plan, spelt: dict[str, str]) -> dict[str, Any]:
    from evergrad.lab.subject import parse_estimator

    made = {label: parse_estimator(text) for label, text in spelt.items()}
    return {label: type(e)(**_fewer(e)) for label, e in made.items()} if plan.quick else made


def _fewer(estimator):
    small = {f.name: getattr(estimator, f.name) for f in dataclasses.fields(estimator)}
    return {k: max(1, v // 4) if k in ("rank", "copies") and v > 2 else v for k, v in small.items()}


def _trained(plan: Plan, panel: Panel, run: Run) -> dict[str, Any]:
    from evergrad.lab.report import noise_of
    from evergrad.lab.subject import of_run

    steps, repetitions = STEPS[plan.budget][panel.large], REPETITIONS[plan.budget][panel.large]

    def measure():
        subject = of_run(plan.path(run), steps=steps)
        rows = noise_of(
            subject,
            _estimators(plan, panel.estimators),
            repetitions=repetitions,
            smallest=SMALLEST if run.task == "copy" else 0.0,
            with_injected=not plan.quick or panel.key == "fig3",
            told=plan.check,
        )
        return {"subject": subject.words, "estimators": rows}

    looked = {"steps": steps, "repetitions": repetitions}
    made = plan.measured(f"noise-{panel.key}", plan.trained(run) | looked | panel.estimators, measure)
    return made | looked | _learned(plan, run)


def _learned(plan, run):
    curve = plan.curve(run, plan.reached(run))
    return {"trained": plan.reached(run), "learned": float(curve.values[-1]), "seed": run.settings["seed"]}


def _batch(plan, network, run):
    """OK's noise beside that of the data, on a trained network."""
    import jax

    from evergrad.lab.batch_noise import beside_the_data
    from evergrad.lab.subject import of_run

    streams, steps, repetitions = BATCH.get(plan.budget, BATCH["desk"])
    estimators = next(panel.estimators for panel in PANELS if panel.network == network)

    def measure():
        subject = of_run(plan.path(run), steps=steps, batch=streams)
        made = _estimators(plan, estimators)
        found = beside_the_data(subject, made, repetitions=repetitions, key=jax.random.key(0), told=plan.check)
        return {"subject": subject.words} | found

    settings = plan.trained(run) | {"batch": (streams, steps, repetitions)} | estimators
    return plan.measured(f"noise-batch-{network}", settings, measure) | _learned(plan, run)


def _different_networks(plan, units, steps, networks, estimators):
    """One draw on each of several untrained networks: cosines [network, step] of every estimator."""
    import jax

    from evergrad._training.resolve import resolve
    from evergrad.lab.noise import measure
    from evergrad.lab.subject import untrained

    cosines = {label: [] for label in estimators}
    for seed in range(networks):
        settings = resolve("text", {"units": units, "data": plan.data, "seed": seed} | PAPERS_START)
        subject = untrained(settings, steps=steps)
        made, key = _estimators(plan, estimators), jax.random.key(seed)
        found = measure(subject.model, made, subject.data, repetitions=1, key=key, told=plan.check)
        for label, noise in found.items():
            cosines[label].append(noise.cosines()[0])
    return {label: np.array(each) for label, each in cosines.items()}


def _untrained(plan):
    units, steps = 32 if plan.quick else 256, UNTRAINED_STEPS[plan.budget]
    networks = UNTRAINED_NETWORKS[plan.budget]

    def measure():
        from evergrad.lab.summary import curve

        cosines = _different_networks(plan, units, steps, networks, UNTRAINED)
        everything = np.ones(steps, bool)
        return {
            "subject": f"{units} units, {networks} networks",
            "estimators": {k: {"cosine": float(c.mean()), "curve": curve(c, everything)} for k, c in cosines.items()},
        }

    looked = {"steps": steps, "networks": networks}
    settings = {"units": units, **looked, "data": plan.data, **UNTRAINED}
    return plan.measured("noise-figA2", settings, measure) | looked


def _of_size(plan, units):
    """The cosine of every network after some steps; seed by seed the same signs at all sizes, so they are compared in pairs."""
    networks = SIZE_NETWORKS.get(plan.budget, SIZE_NETWORKS["desk"])

    def measure():
        found = {}
        for kind, count in networks.items():
            of_kind = {label: text for label, text in UNTRAINED.items() if text.startswith(kind)}
            cosines = _different_networks(plan, units, SIZE_STEPS, count, of_kind)
            found |= {label: {"cosines": [round(float(v), 6) for v in c[:, -1]]} for label, c in cosines.items()}
        return found

    settings = {"units": units, "steps": SIZE_STEPS, "networks": networks, "data": plan.data, **UNTRAINED}
    return plan.measured(f"noise-figA5-{units}", settings, measure)


def _remarks(result):
    return [
        "One stream; a text is read without resets. The networks were trained with TBPTT, or as each table says.",
        "The injected noise and its bound are of one step and in units of ‖G‖²; the bound is Theorem 2's optimum for OK and "
        "the sign trick's variance for KF-RTRL. It is a mean over three places of the sequence only, so it is rough; on copy "
        "it depends on where in a string they are.",
        noise_claims.YOUNG_IN_WORDS,
        "The paper took 10,000 steps of 20 untrained networks in Figure A.2.",
        *data_remark(result),
    ]
