"""`make demo`: the copy task learned with OK and with TBPTT, side by side, from the same data budget."""

import argparse
import json
import time
from pathlib import Path

import jax
import matplotlib
import optax
from rich.console import Console
from rich.live import Live
from rich.table import Table

import evergrad as eg
from evergrad.files import write_whole, written_whole
from evergrad.tasks import Copy
from evergrad.tasks.copy import SYMBOLS

UNITS, BATCH, CHUNK, LEARNING_RATE, CLIP = 64, 16, 500, 10**-2.75, 1.0
ESTIMATORS = {
    "OK(rank=8, window=8)": eg.OK(rank=8, window=8),
    "TBPTT(horizon=25)": eg.TBPTT(horizon=25, stride=25),
}


class Racer:
    """One learner on its own copy streams, and what it has shown so far."""

    def __init__(self, name: str, estimator: eg.Estimator, seed: int):
        keys = jax.random.split(jax.random.key(seed), 4)
        model = eg.Model(eg.RHN(SYMBOLS, UNITS, key=keys[0]), eg.Softmax(UNITS, SYMBOLS, key=keys[1]))
        self.name, self.estimator = name, estimator
        self.learner = eg.Learner(model, estimator, optax.adam(LEARNING_RATE), clip=CLIP)
        self.task = Copy()
        self.state = self.learner.init(batch=BATCH, key=keys[2])
        self.position = self.task.start(batch=BATCH, key=keys[3])
        self.steps, self.seconds, self.reports = 0, 0.0, []

    def advance(self) -> None:
        begin = time.perf_counter()
        self.state, self.position, _ = self.learner.follow(self.state, self.task, self.position, CHUNK)
        self.seconds += time.perf_counter() - begin
        self.steps += CHUNK
        self.reports.append(
            {
                "estimator": self.name,
                "step": self.steps,
                "characters": self.steps * BATCH,
                "length": int(self.position.length),
                "loss": round(float(self.position.bits), 5),
                "seconds": round(self.seconds, 2),
            }
        )


def table(racers: list[Racer], steps: int) -> Table:
    view = Table(title=f"copy task, RHN {UNITS}, {BATCH} streams: the longest string learned so far")
    for column in ("estimator", "progress", "step", "length", "bits", "steps/s"):
        view.add_column(column, justify="left" if column in ("estimator", "progress") else "right", no_wrap=True)
    for racer in racers:
        last = racer.reports[-1] if racer.reports else {"length": 1, "loss": 1.0}
        done = round(10 * racer.steps / steps)
        speed = f"{racer.steps / racer.seconds:.0f}" if racer.seconds else "compiling"
        view.add_row(
            racer.name,
            "█" * done + "░" * (10 - done),
            f"{racer.steps:,}",
            str(last["length"]),
            f"{last['loss']:.3f}",
            speed,
        )
    return view


def draw(racers: list[Racer], path: Path) -> None:
    """Length learned against characters seen, both curves."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for racer, colour, style in zip(racers, ("#0072B2", "#D55E00"), ("-", "--"), strict=True):
        seen = [0] + [r["characters"] / 1000 for r in racer.reports]
        axes.step(
            seen, [1] + [r["length"] for r in racer.reports], style, where="post", color=colour, lw=2, label=racer.name
        )
    axes.set(xlabel="characters seen (thousands)", ylabel="string length learned", title="Copy task at equal data")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", frameon=False)
    axes.grid(alpha=0.3)
    with written_whole(path) as beside:
        figure.savefig(beside, dpi=150, format="png")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where the picture and the metrics go")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each learner")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    racers = [Racer(name, estimator, options.seed) for name, estimator in ESTIMATORS.items()]
    # a chunk of each in turn: both see the machine in the same mood
    if console.is_terminal:
        with Live(table(racers, options.steps), console=console, refresh_per_second=4) as live:
            race(racers, options.steps, lambda: live.update(table(racers, options.steps)))
    else:
        race(racers, options.steps, lambda: say(racers, options.steps))
        console.print(table(racers, options.steps))
    lines = (json.dumps(report) + "\n" for racer in racers for report in racer.reports)
    write_whole(options.out / "metrics.jsonl", "".join(lines))
    draw(racers, options.out / "copy.png")
    for racer in racers:
        last = racer.reports[-1]
        console.print(
            f"{racer.name} copies strings of up to {last['length']} bits after {last['characters']:,} characters "
            f"({1000 * racer.seconds / racer.steps:.2f} ms a step, compilation included)."
        )
    console.print(f"The picture is {options.out / 'copy.png'}, the metrics are {options.out / 'metrics.jsonl'}.")


def race(racers, steps, show) -> None:
    while racers[-1].steps < steps:
        for racer in racers:
            racer.advance()
            show()


def say(racers, steps) -> None:
    """A plain line now and then where nothing can be redrawn."""
    if racers[0].steps == racers[-1].steps and racers[0].steps % (10 * CHUNK) == 0:
        done = ", ".join(f"{r.name} at length {r.reports[-1]['length']}" for r in racers)
        print(f"step {racers[0].steps:,} of {steps:,}: {done}", flush=True)


if __name__ == "__main__":
    main()
