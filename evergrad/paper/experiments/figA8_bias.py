"""Figure A.8: is an unbiased gradient worth it? 1- and 16-U-OK against 1- and 16-B-OK on the copy task.

Rank 16 with 16 streams, rank 1 with 256, as in the paper.
"""

from evergrad.paper.claims import LENGTH, better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.experiments.common import drawn
from evergrad.paper.experiments.lines import B1, B16, FIGURES, U1, U16
from evergrad.paper.experiments.planned import lines
from evergrad.paper.figures import Look, caption, learning_curves

SMALLEST = 12  # a string of 7 or less is over before rank 16 has to leave anything out
FAR = 5  # symbols that "far worse" takes


class Bias(Experiment):
    name, title = "figA8", "Figure A.8: unbiased against biased OK on the copy task"

    def lines(self, plan):
        return lines(plan, self.name)

    def section(self, result, reference):
        traces = drawn(result)
        figure = learning_curves(traces, Look("steps (each one symbol of 16 or 256 streams)"))
        how = {"unit": LENGTH, "budget": FIGURES[self.name].steps, "figure": "Figure A.8"}
        u16, b16, u1, b1 = (result.best(label) for label in (U16, B16, U1, B1))
        almost, far = "16-B-OK learns almost as well as 16-OK", "1-OK learns far better than 1-B-OK"
        claims = [
            better(
                b16, u16, names=(B16, U16), said="almost as good", plain=almost, as_good=2.0, smallest=SMALLEST, **how
            ),
            better(u1, b1, names=(U1, B1), said="far better", plain=far, by=FAR, **how),
        ]
        what = "Figure A.8. Length of the strings learned, RHN 128, with the unbiased and the biased reduction."
        return Section([Picture("bias", figure, caption(what, traces))], claims)
