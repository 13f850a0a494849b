"""Copying strings that grow: where a horizon that is long enough is cheaper."""

import dataclasses
from pathlib import Path

import jax

import evergrad as eg
from evergrad._core.checks import refuse_unless
from evergrad._demo.contest import Contest, Entrant
from evergrad._tasks.copy import SYMBOLS, Copy

UNITS, HORIZON = 64, 25


@dataclasses.dataclass(frozen=True)
class CopyContest(Contest):
    name, figure, column = "copy", "length now", "lengths"
    chunk, rate = 500, 10**-2.75

    @property
    def title(self):
        return (
            f"Read a string of bits, then say it; strings grow as they are learned. RHN {UNITS}, {self.batch} streams."
        )

    @property
    def entrants(self):
        ours = eg.OK(rank=8, window=8)
        return [
            Entrant(e) for e in (ours, eg.TBPTT(horizon=HORIZON, stride=1), eg.TBPTT(horizon=HORIZON, stride=HORIZON))
        ]

    @property
    def source(self):
        return Copy()

    def model(self, entrant, key):
        cell_key, readout_key = jax.random.split(key)
        return eg.Model(eg.RHN(SYMBOLS, UNITS, key=cell_key), eg.Softmax(UNITS, SYMBOLS, key=readout_key))

    def report(self, position, steps):
        return {"step": steps, "length": int(position.length), "bits": round(float(position.bits), 5)}, position

    def shown(self, report):
        return str(report["length"])

    def success(self, reports):
        """The length reached."""
        return reports[-1]["length"]

    def total(self, curves):
        return ", ".join(str(self.success(curve)) for curve in curves)

    def sentences(self, results):
        for result in results:
            lengths = ", ".join(map(str, result["seeds"]))
            every = "one update a step" if result["stride"] == 1 else f"one update in {result['stride']} steps"
            yield (
                f"{result['estimator']} copies strings of up to {lengths} bits after {self.steps:,} steps (one number a "
                f"seed): {every}, {result['reach']}, {result['milliseconds_a_step']:.2f} ms a step."
            )
        yield (
            f"What lies more than {HORIZON} steps back TBPTT with that horizon cannot assign credit to: much longer strings ask "
            "for a longer one. Up to there rolling TBPTT (stride 1) is the cheaper choice."
        )

    def draw(self, results, path: Path):
        from evergrad._training.plots import line_style, save, subplots

        figure, axes = subplots(figsize=(7, 4.2))
        for i, result in enumerate(results):
            label = f"{result['estimator']}, {result['milliseconds_a_step']:.2f} ms a step"
            for seed, curve in enumerate(result["curves"]):
                steps, lengths = [0] + [r["step"] for r in curve], [1] + [r["length"] for r in curve]
                axes.step(steps, lengths, where="post", label=label if seed == 0 else None, **line_style(i))
        axes.set(
            xlabel=f"steps of {self.batch} streams", ylabel="string length learned", title="Copy task at equal data"
        )
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", frameon=False)
        save(figure, path)


def copy_contest(steps: int | None, seeds: int) -> CopyContest:
    steps = 20_000 if steps is None else steps
    refuse_unless(steps >= CopyContest.chunk, f"--steps {steps}: give {CopyContest.chunk} or more.")
    return CopyContest(seeds=seeds, steps=steps // CopyContest.chunk * CopyContest.chunk)
