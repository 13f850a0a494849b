"""Figure 1: the copy task, RHN 128, 16 streams. 16-OK against 16-KF-RTRL-AVG and TBPTT-50 and -80, and OK with a window."""

from evergrad._core.not_none import not_none
from evergrad.paper.claims import LENGTH, NEW, against_released, at_the_end, better
from evergrad.paper.curves import released
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.experiments.common import drawn, own_rate, rate_grid, released_grid
from evergrad.paper.experiments.lines import EXACT, FIGURES, KF_16, OK_16, OURS_16, ROLLING, TBPTT_50, TBPTT_80
from evergrad.paper.experiments.planned import lines
from evergrad.paper.figures import Look, caption, learning_curves
from evergrad.paper.results import of_released

PUBLISHED = {OK_16: 42, KF_16: 32, TBPTT_50: 33, TBPTT_80: 33}
BASELINES = (KF_16, TBPTT_50, TBPTT_80)
STEPS = [10_000, 20_000, 30_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000]
FIGURE = "Figure 1"


class CopyTask(Experiment):
    name, title = "fig1", "Figure 1: copy task, 16 streams"
    released = "copy_ok_n128_r16_b16"

    def lines(self, plan):
        return lines(plan, self.name)

    def section(self, result, reference):
        theirs = of_released("released 16-OK", "copy", released(reference, not_none(self.released)))
        traces = drawn(result, (OURS_16, OK_16))
        look = Look("steps (each one symbol of 16 streams)", early=30_000)
        picture = Picture(
            "copy",
            learning_curves(traces, look, theirs=theirs),
            caption(
                "Figure 1. Length of the strings learned, RHN 128, 16 streams; grey points: the authors' runs.", traces
            ),
        )
        same_rate = [trace for label in (OURS_16, OK_16) if (trace := own_rate(result, label))]
        grids = [*released_grid(same_rate, theirs, STEPS, LENGTH), *rate_grid(result, LENGTH)]
        return Section([picture], _claims(result, theirs), grids)


def _claims(result, theirs):
    how = {"unit": LENGTH, "budget": FIGURES["fig1"].steps, "figure": FIGURE}
    best = {label: result.best(label) for label in (OK_16, OURS_16, KF_16, TBPTT_50, TBPTT_80, ROLLING, EXACT)}

    def against(one, two, said, plain="", **more):
        return better(best[one], best[two], names=(one, two), said=said, plain=plain, **how | more)

    window = "42 against 33, without a window"
    headline = "our OK with a window learns longer copy strings than TBPTT"
    return [
        *(
            better(
                theirs,
                best[label],
                names=("released 16-OK", label),
                said="42 against 33",
                plain=f"the authors' OK runs learn longer copy strings than our {label} in as many steps",
                **how,
            )
            for label in (TBPTT_50, TBPTT_80)
        ),
        against(OURS_16, TBPTT_50, window, headline),
        against(OURS_16, TBPTT_80, window),
        *(
            better(
                own_rate(result, OURS_16),
                best[label],
                names=(f"{OURS_16} at the released rate", label),
                said=window,
                plain=f"at the authors' rate our OK with a window learns longer copy strings than {label}",
                **how,
            )
            for label in (TBPTT_50, TBPTT_80)
        ),
        against(OK_16, KF_16, "42 against 32", "OK learns longer copy strings than KF-RTRL"),
        against(OK_16, TBPTT_50, "42 against 33"),
        against(OK_16, TBPTT_80, "42 against 33"),
        *(against_released(own_rate(result, label), theirs, name=label, **how) for label in (OURS_16, OK_16)),
        *(
            at_the_end(best[label], n, tolerance=3, both_sides=label in BASELINES, name=label, **how)
            for label, n in PUBLISHED.items()
        ),
        against(OURS_16, EXACT, "noise does not harm learning", as_good=2.0),
        against(OURS_16, ROLLING, NEW, "so it does beside rolling TBPTT-50, which updates at every step too"),
        against(OURS_16, KF_16, NEW),
        better(
            own_rate(result, OURS_16), own_rate(result, OK_16), names=(OURS_16, OK_16), said=NEW, as_good=1.0, **how
        ),
    ]
