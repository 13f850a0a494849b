"""The demo on a terminal, in plain lines elsewhere, and what it leaves behind."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evergrad._core.files import write_whole
from evergrad._core.machine import machine
from evergrad._demo.contest import Contest
from evergrad._demo.race import Racer, race


def run_demo(contest: Contest, out: Path, console: Console) -> None:
    """Trains everyone, draws the picture, writes the figures beside it, and says what has come out."""
    began = time.monotonic()
    console.print(Text(contest.title))
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            racers = race(contest, lambda racers, seed: live.update(_table(contest, racers, seed)))
    else:
        racers = race(contest, lambda racers, seed: _say(contest, racers, seed, console))
        console.print(_table(contest, racers, contest.seeds - 1))
    results = [racer.result() for racer in racers]
    picture, figures = out / f"{contest.name}.png", out / f"{contest.name}.json"
    contest.draw(results, picture)
    write_whole(figures, json.dumps(_document(contest, results), indent=1, ensure_ascii=False) + "\n")
    for sentence in contest.sentences(results):
        console.print(Text(f"- {sentence}"))
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    console.print(Text(f"All of it took {minutes} min {seconds} s. Picture: {picture}, figures: {figures}"))


def _document(contest, results):
    about = {"task": contest.name, "title": contest.title, "steps": contest.steps, "seeds": contest.seeds}
    about |= {"streams": contest.batch, "optimiser": f"adam {contest.rate:.3g}, clip {contest.clip:g}"}
    return {"product": "evergrad", **about, "machine": machine(), "results": results}


def _table(contest: Contest, racers: list[Racer], seed: int) -> Table:
    view = Table(title=f"seed {seed + 1} of {contest.seeds}", title_justify="left")
    for column in ("estimator", "steps", contest.figure, contest.column, "ms a step"):
        view.add_column(column, justify="left" if column in ("estimator", "steps") else "right", no_wrap=True)
    for racer in racers:
        last = contest.shown(racer.curves[-1][-1]) if racer.curves[-1] else ""
        spent = "compiling" if racer.milliseconds is None else f"{racer.milliseconds:.2f}"
        view.add_row(racer.entrant.label, _bar(racer.steps, contest.steps), last, contest.total(racer.finished), spent)
    return view


def _bar(done: int, steps: int) -> str:
    filled = round(10 * done / steps)
    return "█" * filled + "░" * (10 - filled)


def _say(contest: Contest, racers: list[Racer], seed: int, console: Console) -> None:
    """A plain line now and then where nothing can be redrawn."""
    step, every = racers[-1].steps, max(1, contest.steps // contest.chunk // 4) * contest.chunk
    if step and racers[0].steps == step and step % every == 0:
        now = "; ".join(f"{r.entrant.label} {contest.shown(r.curves[-1][-1])}" for r in racers)
        where = f"seed {seed + 1} of {contest.seeds}, step {step:,} of {contest.steps:,}"
        console.print(Text(f"{where}: {now}"), soft_wrap=True)
