"""Figure A.1 and Table A.1: Penn Treebank with 64 streams; 8-OK still matches TBPTT-25.

The rate is the one that the search of Figure 2 chose for all of these.
"""

from evergrad.paper.claims import better
from evergrad.paper.experiment import Experiment, Picture, Section
from evergrad.paper.experiments.fig2_ptb import data_remark, held_out, table_claims
from evergrad.paper.figures import BAND, learning_curves
from evergrad.paper.setup import CHOSEN_RATE, PTB, line, ok, ours, tbptt

OURS, OK, TBPTT_5, TBPTT_25 = "8-OK, window 16 (ours)", "8-OK", "TBPTT-5", "TBPTT-25"
ESTIMATORS = {OURS: ours(8), OK: ok(8), TBPTT_5: tbptt(5), TBPTT_25: tbptt(25)}

FULL = (1_000_000, 5)
SIZES = {  # steps, seeds; a budget that is missing leaves the line out
    OURS: {"quick": (1_000, 1), "desk": (4_000, 1), "full": FULL},
    OK: {"full": FULL},
    TBPTT_5: {"quick": (1_000, 1), "desk": (4_000, 1), "full": FULL},
    TBPTT_25: {"quick": (1_000, 1), "desk": (4_000, 1), "full": FULL},
}
PUBLISHED = {OK: (1.69, 1.64), TBPTT_5: (1.72, 1.67), TBPTT_25: (1.68, 1.63)}  # valid, test


class Batch64(Experiment):
    name, title = "figA1", "Figure A.1 and Table A.1: Penn Treebank, 64 streams"

    def lines(self, plan):
        base = PTB | {"batch": 64}
        chosen = [label for label in ESTIMATORS if plan.budget in SIZES[label]]
        return [line(plan, label, base, ESTIMATORS[label], SIZES[label], rate=CHOSEN_RATE) for label in chosen]

    def measure(self, plan):
        return {"held_out": held_out(plan, self.name, self.lines(plan))}

    def section(self, result, reference):
        figure = learning_curves(
            result,
            x="steps (each one character of 64 streams)",
            y="validation (bits per character)",
            released=[],
            released_label="",
        )
        unit = {"higher": False, "digits": 2, "unit": "bits per character", "published_steps": FULL[0]}
        claims = [
            better(result, OURS, TBPTT_25, said="1.69 against 1.68 without a window: matches", margin=0.02, **unit),
            better(result, OURS, TBPTT_5, said="1.69 against 1.72 without a window", **unit),
            *(table_claims(result, PUBLISHED, FULL[0]) if result.document["data"] else []),
        ]
        return Section([Picture("ptb64", figure, f"Validation; {BAND}.")], claims, [], data_remark(result))
