"""Figure 1: the copy task, RHN 128, 16 streams. 16-OK against 16-KF-RTRL-AVG and TBPTT-50 and -80, and OK with a window."""

from typing import Any

from evergrad._core.not_none import not_none
from evergrad.paper.claims import NEW, against_released, at_the_end, better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.figures import BAND, learning_curves
from evergrad.paper.plan import Line, Plan
from evergrad.paper.rates import at_best_rate, best_of, rate_grid, with_rates
from evergrad.paper.results import released
from evergrad.paper.setup import COPY, kf, line, ok, ours, tbptt

OURS, OK, KF, TBPTT_50, TBPTT_80 = "16-OK, window 16 (ours)", "16-OK", "16-KF-RTRL-AVG", "TBPTT-50", "TBPTT-80"
ESTIMATORS = {OURS: ours(16), OK: ok(16), KF: kf(16), TBPTT_50: tbptt(50), TBPTT_80: tbptt(80)}

FULL = (2_000_000, 5)
SIZES = {  # steps, seeds
    OURS: {"quick": (4_000, 2), "desk": (200_000, 3), "full": FULL},
    OK: {"quick": (4_000, 1), "desk": (20_000, 1), "full": FULL},
    KF: {"quick": (4_000, 1), "desk": (20_000, 1), "full": FULL},
    TBPTT_50: {"quick": (4_000, 1), "desk": (200_000, 3), "full": FULL},
    TBPTT_80: {"quick": (4_000, 1), "desk": (200_000, 3), "full": FULL},
}
SEARCH = {"desk": (20_000, 1), "full": (200_000, 1)}  # for each of the four rates
SEARCHED = {"desk": (TBPTT_50, TBPTT_80), "full": tuple(ESTIMATORS)}
PUBLISHED = {OK: 42, KF: 32, TBPTT_50: 33, TBPTT_80: 33}


def lines(plan: Plan) -> list[Line]:
    found = [line(plan, label, COPY, estimator, SIZES[label]) for label, estimator in ESTIMATORS.items()]
    for label in SEARCHED.get(plan.budget, ()):
        found += with_rates(plan, label, COPY, ESTIMATORS[label], SIZES[label], SEARCH)
    return found


class CopyTask(Experiment):
    name, title = "fig1", "Figure 1: copy task, 16 streams"
    released = "copy_ok_n128_r16_b16"

    def lines(self, plan):
        return lines(plan)

    def section(self, result, reference):
        curves = released(reference, not_none(self.released))
        figure = learning_curves(
            result,
            x="steps (each one symbol of 16 streams)",
            y="string length T learned (symbols)",
            released=curves,
            released_label="released 16-OK runs",
        )
        steps, early = [50_000, 100_000, 200_000, 500_000, 2_000_000], [10_000, 20_000, 50_000, 100_000]
        unit: dict[str, Any] = {"higher": True, "digits": 1, "unit": "length"}
        compared: dict[str, Any] = {**unit, "published_steps": FULL[0]}
        opponents = (TBPTT_50, TBPTT_80)
        claims = [
            *against_released(result, OK, curves, early, **unit),
            *against_released(result, OURS, curves, steps, **unit),
            better(result, OK, KF, said="42 against 32", **compared),
            *at_best_rate(result, OK, dict.fromkeys(opponents, "42 against 33"), **compared),
            better(result, OURS, KF, said=NEW, **unit),
            *at_best_rate(result, OURS, dict.fromkeys(opponents, "42 against 33, without a window"), **compared),
            better(result, OURS, OK, said=NEW, margin=1.0, **unit),
            *(
                at_the_end(result, best_of(result, label), n, FULL[0], tolerance=3, **unit)
                for label, n in PUBLISHED.items()
            ),
        ]
        picture = Picture("copy", figure, f"Length learned; {BAND}.")
        return Section([picture], claims, rate_grid(result))
