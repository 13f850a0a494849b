"""Figure A.7: is an unbiased gradient worth it? 1- and 16-U-OK against 1- and 16-B-OK on the copy task.

Rank 16 with 16 streams, rank 1 with 256, as in the paper.
"""

from evergrad.paper.claims import better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.figures import BAND, learning_curves
from evergrad.paper.setup import COPY, line, ok

U16, B16, U1, B1 = "16-U-OK", "16-B-OK", "1-U-OK, 256 streams", "1-B-OK, 256 streams"
FULL = (2_000_000, 5)
SIZES = {  # steps, seeds
    U16: {"quick": (3_000, 1), "desk": (10_000, 1), "full": FULL},
    B16: {"quick": (3_000, 1), "desk": (10_000, 1), "full": FULL},
    U1: {"quick": (3_000, 1), "desk": (3_000, 1), "full": FULL},
    B1: {"quick": (3_000, 1), "desk": (3_000, 1), "full": FULL},
}
LEAST = 12  # a string of 7 or less is over before rank 16 has to leave anything out


class Bias(Experiment):
    name, title = "figA7", "Figure A.7: unbiased against biased OK on the copy task"

    def lines(self, plan):
        many = COPY | {"batch": 256}
        return [
            line(plan, U16, COPY, ok(16), SIZES[U16]),
            line(plan, B16, COPY, ok(16, mix="truncate"), SIZES[B16]),
            line(plan, U1, many, ok(1), SIZES[U1]),
            line(plan, B1, many, ok(1, mix="truncate"), SIZES[B1]),
        ]

    def section(self, result, reference):
        figure = learning_curves(
            result,
            x="steps (each one symbol of 16 or 256 streams)",
            y="string length T learned (symbols)",
            released=[],
            released_label="",
        )
        unit = {"higher": True, "digits": 1, "unit": "length", "published_steps": FULL[0]}
        claims = [
            better(result, B16, U16, said="almost as good", margin=2.0, least=LEAST, **unit),
            better(result, U1, B1, said="far better", **unit),
        ]
        return Section([Picture("bias", figure, f"Length learned; {BAND}.")], claims)
