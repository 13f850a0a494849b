"""Figure 4: KTP on the copy task, 256 streams: KTP-16, KF-RTRL-16-APPROX, KF-RTRL, TBPTT, and KTP with a window.

The paper does not say which horizons its two TBPTT lines have, nor, in its text, which line is which after KTP: "from top
to bottom as in the legend" the lengths are 17, 33, 32, 30, 25. 25 and 50 are our choice, and so is 33 for KF-RTRL and 32 for
its approximation, since the text says that the latter performs "almost as well as the original".
"""

from evergrad._core.not_none import not_none
from evergrad.paper.claims import LENGTH, NEW, against_released, at_the_end, better
from evergrad.paper.curves import released
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.experiments.common import drawn, own_rate, rate_grid, released_grid
from evergrad.paper.experiments.lines import APPROX, FIGURES, KF, KTP, KTP_1, KTP_16, TBPTT_25, TBPTT_50
from evergrad.paper.experiments.planned import lines
from evergrad.paper.figures import Look, caption, learning_curves
from evergrad.paper.results import of_released

PUBLISHED = {KTP: 17, KF: 33, APPROX: 32, TBPTT_50: 30, TBPTT_25: 25}
STEPS = [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000]


class TripleProduct(Experiment):
    name, title = "fig4", "Figure 4: Kronecker triple product on the copy task, 256 streams"
    released = "copy_ktp_n128_r16_b256"

    def lines(self, plan):
        return lines(plan, self.name)

    def section(self, result, reference):
        theirs = of_released("released KTP-16", "copy", released(reference, not_none(self.released)))
        traces = drawn(result, (KTP,))
        look = Look("steps (each one symbol of 256 streams)", log=True)
        what = "Figure 4. Length of the strings learned, RHN 128, 256 streams; grey points: the authors' runs."
        picture = Picture("ktp", learning_curves(traces, look, theirs=theirs), caption(what, traces))
        same_rate = [trace for label in (KTP, KTP_1) if (trace := own_rate(result, label))]
        grids = [*released_grid(same_rate, theirs, STEPS, LENGTH), *rate_grid(result, LENGTH)]
        remarks = [
            "The released KTP runs share one vector a among all r terms; here every term has its own.",
            "The paper gives no horizons for this figure's TBPTT lines; 25 and 50 are ours. Nor does its text say which of its "
            "lengths is whose, but for KTP's: 33 is taken for KF-RTRL's and 32 for its approximation's.",
        ]
        return Section([picture], _claims(result, theirs), grids, remarks)


def _claims(result, theirs):
    how = {"unit": LENGTH, "budget": FIGURES["fig4"].steps, "figure": "Figure 4"}
    best = {label: result.best(label) for label in (*PUBLISHED, KTP_16)}

    def against(one, two, said, plain="", **more):
        return better(best[one], best[two], names=(one, two), said=said, plain=plain, **how | more)

    others, almost = "17 for KTP, 25 to 33 for the others", "approximating D hardly harms KF-RTRL"
    return [
        against(APPROX, KF, "almost as good", almost, as_good=1.5, smallest=5),
        *(
            better(best[label], theirs, names=(label, "released KTP-16"), said=others, plain=plain, **how)
            for label, plain in ((TBPTT_50, "TBPTT learns longer strings than KTP"), (TBPTT_25, ""))
        ),
        *(against(label, KTP, others) for label in (KF, TBPTT_25, TBPTT_50)),
        against_released(own_rate(result, KTP), theirs, name=KTP, **how),
        *(
            at_the_end(best[label], n, tolerance=3, both_sides=label != KTP, name=label, **how)
            for label, n in PUBLISHED.items()
        ),
        better(own_rate(result, KTP_16), own_rate(result, KTP), names=(KTP_16, KTP), said=NEW, **how),
    ]
