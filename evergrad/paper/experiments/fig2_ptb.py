"""Figure 2 and Table 2: character-level Penn Treebank, RHN 256, 32 streams. 8-OK, 8-KF-RTRL-AVG, TBPTT-5 and -25."""

from typing import Any

from evergrad._core.not_none import not_none
from evergrad.paper.claims import NEW, Claim, against_released, at_the_end, better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.figures import BAND, learning_curves
from evergrad.paper.plan import Line, Plan
from evergrad.paper.rates import at_best_rate, best_of, rate_grid, with_rates
from evergrad.paper.results import Result, released
from evergrad.paper.setup import PTB, kf, line, ok, ours, tbptt

OURS, OK, KF, TBPTT_5, TBPTT_25 = "8-OK, window 16 (ours)", "8-OK", "8-KF-RTRL-AVG", "TBPTT-5", "TBPTT-25"
ESTIMATORS = {OURS: ours(8), OK: ok(8), KF: kf(8), TBPTT_5: tbptt(5), TBPTT_25: tbptt(25)}

FULL = (1_000_000, 5)
SIZES = {  # steps, seeds
    OURS: {"quick": (1_000, 2), "desk": (49_000, 1), "full": FULL},
    OK: {"quick": (1_000, 1), "desk": (2_000, 1), "full": FULL},
    KF: {"quick": (1_000, 1), "desk": (2_000, 1), "full": FULL},
    TBPTT_5: {"quick": (1_000, 1), "desk": (49_000, 2), "full": FULL},
    TBPTT_25: {"quick": (1_000, 1), "desk": (49_000, 2), "full": FULL},
}
BEST = {"desk": (49_000, 1), "full": FULL}  # with the rate that the search has chosen
BEST_OURS = BEST | {"desk": (30_000, 1)}
SEARCH = {"desk": (4_000, 1), "full": (100_000, 1)}  # for each of the four rates; multiples of valid_every
SEARCHED = {"desk": (OURS, TBPTT_5, TBPTT_25), "full": tuple(ESTIMATORS)}
PUBLISHED = {KF: (1.82, 1.77), OK: (1.74, 1.69), TBPTT_5: (1.78, 1.73), TBPTT_25: (1.73, 1.69)}  # valid, test
AT_BEST = {TBPTT_5: "1.74 against 1.78, without a window", TBPTT_25: "1.74 against 1.73, without a window"}
SYMBOLS = 50


def lines(plan: Plan) -> list[Line]:
    found = [line(plan, label, PTB, estimator, SIZES[label]) for label, estimator in ESTIMATORS.items()]
    for label in SEARCHED.get(plan.budget, ()):
        best = BEST_OURS if label == OURS else BEST
        found += with_rates(plan, label, PTB, ESTIMATORS[label], best, SEARCH)
    return found


def held_out(plan: Plan, name: str, found: list[Line]) -> dict[str, Any]:
    """Bits per character on the valid and test text at the end of every finished run, by its id."""
    from evergrad._training.evaluation import evaluate
    from evergrad._training.folder import open_run

    figures = {}
    for run in (run for each in found if not each.search for run in each.runs()):
        if plan.finished(run) and not plan.diverged(run).exists():

            def measure(run=run):
                return evaluate(open_run(plan.path(run)), None, steps=1)

            figures[run.id] = plan.measured(f"{name}-heldout-{run.id}", plan.trained(run), measure)
    return figures


def table_claims(result: Result, published: dict[str, tuple[float, float]], steps: int) -> list[Claim]:
    """Both columns of a table of held-out bits per character, with the best of the rates that were tried."""

    def read(label, which):
        line = result.line(label)
        figures = result.measured.get("held_out", {})
        return [figures[run["id"]][which] for run in line["runs"] if run["id"] in figures] if line else []

    same = {"tolerance": 0.01, "higher": False, "digits": 2, "unit": "bits per character"}
    return [
        at_the_end(result, label, value, steps, read=lambda w=w, label=label: read(label, w), what=f"{part} ", **same)
        for label, both in ((best_of(result, name), both) for name, both in published.items())
        for part, w, value in zip(("valid", "test"), ("valid_bpc", "test_bpc"), both, strict=True)
    ]


def data_remark(result: Result) -> list[str]:
    if result.document["data"] is None:
        return ["No --data was given: this is the text that comes with Python, and the numbers cannot be compared."]
    return []


def weights_remark() -> str:
    """The column of the table that no run can decide."""
    n = PTB["units"]
    recurrent, cell, readout = 2 * n * n, 2 * n * (n + SYMBOLS + 1), SYMBOLS * (n + 1)
    return (
        f"The paper's table gives every network 133K weights and does not say how they are counted; this one has {recurrent:,} "
        f"recurrent weights, {cell:,} with those of the inputs and biases, and {readout:,} more in its readout."
    )


class CharPtb(Experiment):
    name, title = "fig2", "Figure 2 and Table 2: character-level Penn Treebank, 32 streams"
    released = "ptb_ok_n256_r8_b32"

    def lines(self, plan):
        return lines(plan)

    def measure(self, plan):
        return {"held_out": held_out(plan, self.name, self.lines(plan))}

    def section(self, result, reference):
        comparable = result.document["data"] is not None
        curves = released(reference, not_none(self.released)) if comparable else []
        figure = learning_curves(
            result,
            x="steps (each one character of 32 streams)",
            y="validation (bits per character)",
            released=curves,
            released_label="released 8-OK runs",
        )
        unit: dict[str, Any] = {"higher": False, "digits": 2, "unit": "bits per character"}
        steps = [9_000, 19_000, 29_000, 39_000, 49_000, 99_000, 199_000, 499_000, 999_000]
        compared: dict[str, Any] = {**unit, "published_steps": FULL[0]}
        claims = [
            *(against_released(result, OURS, curves, steps, **unit) if comparable else []),
            better(result, OK, KF, said="1.74 against 1.82", **compared),
            better(result, TBPTT_5, KF, said="1.78 against 1.82", **compared),
            better(result, OURS, KF, said=NEW, **unit),
            *at_best_rate(result, OURS, AT_BEST, margin=0.02, **compared),
            *(table_claims(result, PUBLISHED, FULL[0]) if comparable else []),
        ]
        picture = Picture("ptb", figure, f"Validation; {BAND}.")
        remarks = [
            f"Ours is validated every {PTB['valid_every']:,} steps; figures in between are interpolated.",
            weights_remark(),
        ]
        return Section([picture], claims, rate_grid(result), remarks + data_remark(result))
