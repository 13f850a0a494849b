"""The cue and the question: who can assign credit to a cue that lies beyond the remembered steps."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

import evergrad as eg
from evergrad._core.checks import refuse_unless
from evergrad._demo.contest import Contest, Entrant, times
from evergrad._tasks.cue import CUES, INPUTS, Cue, unasked

UNITS, RANK, WINDOW = 32, 8, 16
_FULL = 2 * WINDOW - 1  # steps that a full window holds
_SHORTEST = 40  # gap that leaves room for a horizon between the window and the gap
_STEPS_PER_GAP = 35


@dataclasses.dataclass(frozen=True)
class CueContest(Contest):
    gap: int
    gap_to: int

    name, figure, column = "cue", "wrong now", "answer"
    chunk, rate = 250, 3e-3

    @property
    def title(self):
        return (
            f"A cue, and {self.gap} to {self.gap_to} steps later the question which of two it was. LSTM {UNITS} "
            f"(chrono:{self.gap_to}; MinGRU where said), {self.batch} streams, Adam {self.rate:g}: the same for all."
        )

    @property
    def entrants(self):
        below, above = self.gap * 4 // 5, self.gap_to + 8
        rolling = [eg.TBPTT(horizon=horizon, stride=1) for horizon in (_FULL, below, above)]
        dense = (eg.OK(rank=RANK, window=WINDOW), *rolling, eg.TBPTT(horizon=above, stride=above))
        return [*(Entrant(each) for each in dense), Entrant(eg.RTRL(), "MinGRU")]

    @property
    def source(self):
        return Cue(gap=self.gap, gap_to=self.gap_to)

    def model(self, entrant, key):
        cell_key, readout_key = jax.random.split(key)
        kind = eg.LSTM if entrant.cell is None else getattr(eg, entrant.cell)
        cell = kind(INPUTS, UNITS, key=cell_key, initial=f"chrono:{self.gap_to}")
        return eg.Model(cell, eg.Softmax(UNITS, CUES, key=readout_key))

    def report(self, position, steps):
        asked, wrong = int(position.asked), int(position.wrong)
        return {"step": steps, "asked": asked, "wrong": wrong / asked if asked else None}, unasked(position)

    def shown(self, report):
        return "–" if report["wrong"] is None else f"{100 * report['wrong']:.0f} %"

    def success(self, reports):
        """The step after which at most one answer in a hundred was wrong; None if not in the last two reports."""
        good = [report["wrong"] is not None and report["wrong"] <= 0.01 for report in reports]
        bad = [report["step"] for report, fine in zip(reports, good, strict=True) if not fine]
        return max(bad, default=0) if all(good[-2:]) else None

    def total(self, curves):
        return f"{sum(self.success(curve) is not None for curve in curves)} of {len(curves)}" if curves else ""

    def sentences(self, results):
        return [*(self._about(result) for result in results), *self._compared(*results)]

    def _about(self, result):
        starts = [step for step in result["seeds"] if step is not None]
        from_step = f" (at most 1 % wrong after step {max(starts):,})" if starts else ""
        chunked = f"an update every {result['stride']} steps"
        every = "an update at every step at which a stream is asked" if result["stride"] == 1 else chunked
        return (
            f"{result['estimator']} answers in {_of(result)} seeds{from_step}: {every}, {result['reach']}, "
            f"{result['milliseconds_a_step']:.2f} ms a step."
        )

    def _compared(self, ok, same, below, above, chunked, exact):
        """What the figures say, whichever way they fell out."""
        ours, spent = _count(ok), ok["milliseconds_a_step"]
        yield (
            f"With as many remembered steps as OK's window at its fullest ({_FULL}) TBPTT answers in {_of(same)} seeds, "
            f"with a horizon just below the gap in {_of(below)}, OK in {_of(ok)}. TBPTT cannot assign credit to a cue "
            "beyond its horizon."
            if ours > max(_count(same), _count(below))
            else f"This time nothing was shown: OK answers in {_of(ok)} seeds, TBPTT with {_FULL} remembered steps in "
            f"{_of(same)}, with a horizon below the gap in {_of(below)}. More --steps may be needed."
        )
        yield (
            f"A horizon beyond the gap answers in {_of(above)} seeds, at {times(above['milliseconds_a_step'], spent)} the "
            f"time of OK's step; one below the gap costs {times(below['milliseconds_a_step'], spent)}, the remembered "
            f"steps alone {times(same['milliseconds_a_step'], spent)}. Where a short horizon would do, it is cheaper."
        )
        yield (
            f"Chunked TBPTT costs {times(chunked['milliseconds_a_step'], spent)} and updates {self.steps // chunked['stride']} times in "
            f"all, where the others do at every step with a question: it answers in {_of(chunked)} seeds so far."
        )
        yield (
            f"Where units do not see each other (MinGRU, another cell of as many units) the exact gradient costs "
            f"{times(exact['milliseconds_a_step'], spent)} the time of OK's step, and answers in {_of(exact)} seeds."
        )

    def draw(self, results, path: Path):
        from evergrad._training.plots import line_style, save, subplots

        figure, (curves, costs) = subplots(1, 2, figsize=(10.5, 4.4), width_ratios=(3, 2))
        for i, result in enumerate(results):
            label = f"{result['estimator']}: {_of(result)} seeds answer"
            _draw_curves(curves, result["curves"], line_style(i), label)
            costs.barh(i, result["milliseconds_a_step"], color=line_style(i)["color"])
            costs.text(result["milliseconds_a_step"], i, f" {result['milliseconds_a_step']:.2f}", va="center")
        curves.axhline(0.5, color="grey", lw=0.8)
        curves.set(xlabel="steps", ylabel="share of wrong answers", ylim=(-0.03, 1), title="Who answers")
        curves.legend(loc="upper right", frameon=False, fontsize=8)
        costs.set_yticks(
            range(len(results)), [result["estimator"].replace("(", "\n(") for result in results], fontsize=8
        )
        costs.invert_yaxis()
        costs.margins(x=0.2)
        costs.set(xlabel="milliseconds a step", title="What a step costs")
        figure.suptitle(
            f"Cue, and a question {self.gap} to {self.gap_to} steps later: LSTM {UNITS}, {self.batch} streams, seeds 0 to {self.seeds - 1}"
        )
        save(figure, path)


def _draw_curves(axes: Any, curves: list, style: dict, label: str) -> None:
    """Every seed thin, their mean thick."""
    points = [[(r["step"], r["wrong"]) for r in curve if r["wrong"] is not None] for curve in curves]
    for each in points:
        axes.plot(*zip(*each, strict=True), lw=0.6, alpha=0.5, color=style["color"])
    steps = [step for step, _ in points[0]]
    means = [sum(dict(each).get(step, 0.5) for each in points) / len(points) for step in steps]
    axes.plot(steps, means, lw=2, label=label, **style)


def _count(result: dict[str, Any]) -> int:
    return sum(step is not None for step in result["seeds"])


def _of(result: dict[str, Any]) -> str:
    return f"{_count(result)} of {len(result['seeds'])}"


def cue_contest(gap: int, gap_to: int | None, steps: int | None, seeds: int) -> CueContest:
    """With usual values for what is not said."""
    refuse_unless(
        gap >= _SHORTEST,
        f"--gap {gap} is less than {_SHORTEST}: OK's window remembers up to {_FULL} steps as they are, so a shorter gap "
        "would show nothing of what lies beyond.",
    )
    gap_to = gap * 3 // 2 if gap_to is None else gap_to
    refuse_unless(gap_to >= gap, f"--gap-to {gap_to} is less than --gap {gap}: it is the longest gap.")
    steps = _STEPS_PER_GAP * gap_to if steps is None else steps
    refuse_unless(steps >= 2 * CueContest.chunk, f"--steps {steps}: give {2 * CueContest.chunk} or more.")
    return CueContest(seeds=seeds, steps=steps // CueContest.chunk * CueContest.chunk, gap=gap, gap_to=gap_to)
