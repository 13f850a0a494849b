"""Bits per character of a trained network on text that it has not seen, its state carried on, or reset as in training."""

from pathlib import Path
from typing import Any, cast

from evergrad._tasks.text import bits_per_symbol
from evergrad._training.folder import open_run
from evergrad._training.run import load

CARRIED, RESET = "carried", "reset"  # the state: never reset, or at every place where training resets it


def held_out(path: Path) -> dict[str, Any] | None:
    """Of a run's last checkpoint: {way: {valid_bpc, test_bpc}}, and its step; None before there is one."""
    folder = open_run(path)
    if not any(folder.checkpoints.glob("[0-9]*")):
        return None
    job, progress = load(folder)
    every = {CARRIED: None, RESET: folder.settings.reset_every}
    task = cast(Any, job.task)
    texts = {"valid_bpc": task.valid, "test_bpc": task.test}
    figures = {
        way: {name: bits_per_symbol(progress.state.model, text, reset_every=n) for name, text in texts.items()}
        for way, n in every.items()
    }
    return {"step": progress.step} | figures
