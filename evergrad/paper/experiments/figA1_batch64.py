"""Figure A.1 and Table A.1: Penn Treebank with 64 streams; 8-OK still matches TBPTT-25."""

from evergrad.paper.claims import BITS, better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.experiments.common import drawn, rate_grid
from evergrad.paper.experiments.fig2_ptb import both_ways, data_remark, evaluated, table_claims
from evergrad.paper.experiments.lines import FIGURES, OK_8, OURS_8, TBPTT_5, TBPTT_25
from evergrad.paper.experiments.planned import lines
from evergrad.paper.figures import Look, caption, learning_curves

PUBLISHED = {OK_8: (1.69, 1.64), TBPTT_5: (1.72, 1.67), TBPTT_25: (1.68, 1.63)}  # valid, test


class Batch64(Experiment):
    name, title = "figA1", "Figure A.1 and Table A.1: Penn Treebank, 64 streams"

    def lines(self, plan):
        return lines(plan, self.name)

    def measure(self, plan):
        return {"held_out": evaluated(plan, self.name, self.lines(plan))}

    def section(self, result, reference):
        traces, budget = drawn(result), FIGURES[self.name].steps
        figure = learning_curves(traces, Look("steps (each one character of 64 streams)"))
        how = {"unit": BITS, "budget": budget, "figure": "Figure A.1"}
        ours, short, long = (result.best(label) for label in (OURS_8, TBPTT_5, TBPTT_25))
        said, plain = "1.69 against 1.68 without a window: matches", "with 64 streams OK is as good as TBPTT-25 too"
        claims = [
            better(ours, long, names=(OURS_8, TBPTT_25), said=said, plain=plain, as_good=0.02, **how),
            better(ours, short, names=(OURS_8, TBPTT_5), said="1.69 against 1.72 without a window", **how),
            *(table_claims(result, PUBLISHED, "Table A.1", budget) if result.document["data"] else []),
        ]
        picture = Picture("ptb64", figure, caption("Figure A.1. Validation, RHN 256, 64 streams.", traces))
        return Section([picture], claims, [*rate_grid(result, BITS), *both_ways(result)], data_remark(result))
