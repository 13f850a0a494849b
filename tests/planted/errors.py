"""Errors to plant, and the test that must fail with each: every oracle of the field that the estimators are held to.

`make planted` plants them, one at a time, in a copy of the package, and runs that test. Here is the list; what each file holds and
which test is meant is checked by tests/planted/test_planted.py.
"""

from tests.planted.cells import DEPTH, KNOWN, UNIT_LOCAL
from tests.planted.estimating import CRITICS, CUTS, NARROW, RANDOM
from tests.planted.kind import Planted
from tests.planted.local import SPARSE, WITHIN_UNITS
from tests.planted.measuring import MEASURED, PUBLIC, RESERVOIRS
from tests.planted.reaching import DEMO_SAYS, FOLLOWED, MORE_OF_THE_ARENA, REACHED, REWARDS
from tests.planted.streams import STREAMS

ARENA = "tests/arena/test_arena.py::"

ARENA_SAYS = [
    Planted(
        "copy with and without a gap asks for what was shown a lag before",
        ARENA + "test_what_is_to_be_said_again_was_shown_a_lag_before[3-5]",
        "_tasks/repeat.py",
        "jnp.where(says, at - self.lag, at)",
        "jnp.where(says, at - self.lag + 1, at)",
        "the bit after it",
    ),
    Planted(
        "error 0 is the optimum, 1 is knowing nothing",
        ARENA + "test_every_task_can_be_made_for_a_lag_and_knows_its_levels[add]",
        "arena/challenges.py",
        "return (loss - self.optimum) / (self.ignorance - self.optimum)",
        "return loss / self.ignorance",
        "measured from 0",
    ),
    Planted(
        "the rival is rolling TBPTT of no less time a step",
        ARENA + "test_the_rival_is_rolling_tbptt_of_no_less_time_a_step",
        "arena/results.py",
        "if not_none(each.milliseconds) >= row.milliseconds]",
        "if not_none(each.milliseconds) <= row.milliseconds]",
        "a rival that takes less time",
    ),
    Planted(
        "what was not shown is not said",
        ARENA + "test_what_was_not_shown_is_not_said",
        "arena/results.py",
        "if self.line.at[lag].learned and not other.learned]",
        "if self.line.at[lag].learned]",
        "lags at which both have learned",
    ),
    Planted(
        "the Pareto front has nobody who is slower and learns less",
        ARENA + "test_the_front_has_nobody_who_is_slower_and_learns_less",
        "arena/results.py",
        "if not best or not_none(line.reached) > not_none(best[-1].reached):",
        "if not best or not_none(line.reached) >= not_none(best[-1].reached):",
        "who is slower and learns as much",
    ),
    Planted(
        "who diverged knows less than nothing",
        ARENA + "test_an_error_is_of_the_last_reports_and_divergence_is_worse_than_nothing",
        "arena/results.py",
        'return [2.0 if trial["error"] is None',
        'return [0.0 if trial["error"] is None',
        "who diverged has learned",
    ),
]

GROUPS = {
    "What stays within units": WITHIN_UNITS,
    "SnAp-n": SPARSE,
    "Random factors": RANDOM,
    "Half the bytes": NARROW,
    "Random cuts": CUTS,
    "Critics and kernels": CRITICS,
    "What is measured and bounded": MEASURED,
    "Reservoirs and least squares": RESERVOIRS,
    "Cells whose units do not see each other": UNIT_LOCAL,
    "Depth": DEPTH,
    "Slips of public code that are not above": PUBLIC,
    "Tasks with a known optimum": KNOWN,
    "Stream learners": STREAMS,
    "The arena": ARENA_SAYS + MORE_OF_THE_ARENA,
    "How far a gradient looks": REACHED,
    "The demo": DEMO_SAYS,
    "Gradients for losses of your own": FOLLOWED,
    "Learning from rewards": REWARDS,
}
ERRORS = [each for group in GROUPS.values() for each in group]
