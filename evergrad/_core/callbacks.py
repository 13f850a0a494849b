"""Callbacks for `Learner.fit`: functions of its progress, called every so many steps."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless, whole_number
from evergrad._core.fitting import Progress
from evergrad._core.saving import copy, save


class Log:
    """Says how it goes, in a line. `extra` is a function of the progress that gives a dict of further figures.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> xs = ys = jnp.ones((20, 2, 1))
        >>> state, _ = learner.fit(learner.init(batch=2, key=key), (xs, ys), 20, callbacks=[eg.Log(20, say=lambda line: print(line[:10]))])
        step 20/20
    """

    def __init__(
        self,
        every: int | None = None,
        *,
        say: Callable[[str], Any] = print,
        extra: Callable[[Progress], dict[str, Any]] | None = None,
    ):
        _check_every(every, "Log")
        self.every, self._say, self._extra = every, say, extra

    def __call__(self, now: Progress) -> None:
        figures = {} if self._extra is None else self._extra(now)
        shown = "".join(f"  {name} {value:.4g}" for name, value in figures.items())
        rate = f"  {now.steps_per_second:,.0f} steps/s" if now.steps_per_second else ""
        self._say(f"step {now.step:,}/{now.steps:,}  loss {now.loss:.4f}{shown}{rate}")


class Checkpoint:
    """Saves the state to a file, which is always whole; `eg.load(path, learner)` has it again. `{step}` in the name keeps all.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> xs = ys = jnp.ones((20, 2, 1))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     state, _ = learner.fit(
        ...         learner.init(batch=2, key=key), (xs, ys), 20, callbacks=[eg.Checkpoint(f"{folder}/{{step}}.npz", every=10)]
        ...     )
        ...     print(sorted(path.name for path in Path(folder).iterdir()))
        ['10.npz', '20.npz']
    """

    def __init__(self, path: str | Path, every: int | None = None):
        _check_every(every, f"Checkpoint({str(path)!r})")
        self.path, self.every = str(path), every

    def __call__(self, now: Progress) -> None:
        save(self.path.replace("{step}", str(now.step)), now.state)


class EarlyStop:
    """Stops when the loss has not fallen by more than `least` for `patience` calls in a row, and keeps the `best` model.

    `of` is a function of the progress that gives what is to fall, a validation loss, say; by default the training loss.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> xs = ys = jnp.ones((20, 2, 1))
        >>> early = eg.EarlyStop(patience=3, every=5)
        >>> state, _ = learner.fit(learner.init(batch=2, key=key), (xs, ys), 20, callbacks=[early])
        >>> early.best_step
        20
        >>> early.best.cell.units  # the model that was best
        4
    """

    def __init__(
        self,
        patience: int = 5,
        every: int | None = None,
        *,
        of: Callable[[Progress], float] | None = None,
        least: float = 0.0,
    ):
        _check_every(every, f"EarlyStop(patience={patience})")
        whole_number(patience, 1, f"EarlyStop(patience={patience})", "patience", "calls in a row without progress")
        self.patience, self.every, self._of, self._least = patience, every, of, least
        self.best: Any = None
        self.best_loss, self.best_step, self._waited = math.inf, 0, 0

    def __call__(self, now: Progress) -> None:
        loss = now.loss if self._of is None else float(self._of(now))
        if loss < self.best_loss - self._least:
            self.best, self.best_loss, self.best_step, self._waited = copy(now.state.model), loss, now.step, 0
            return
        self._waited += 1
        if self._waited >= self.patience:
            now.stop()


class TensorBoard:
    """Writes loss and speed to TensorBoard event files in a folder; `extra` is as with `Log`.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> xs = ys = jnp.ones((20, 2, 1))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     state, _ = learner.fit(learner.init(batch=2, key=key), (xs, ys), 20, callbacks=[eg.TensorBoard(folder, every=10)])
        ...     print(len(list(Path(folder).iterdir())), "file")
        1 file
    """

    def __init__(
        self,
        folder: str | Path,
        every: int | None = None,
        *,
        extra: Callable[[Progress], dict[str, Any]] | None = None,
    ):
        _check_every(every, f"TensorBoard({str(folder)!r})")
        self.every, self._extra, self._writer = every, extra, summary_writer("eg.TensorBoard")(str(folder))

    def __call__(self, now: Progress) -> None:
        figures = {"loss": now.loss} | ({} if self._extra is None else self._extra(now))
        if now.steps_per_second:
            figures["steps_per_second"] = now.steps_per_second
        for name, value in figures.items():
            self._writer.add_scalar(name, value, now.step)
        # what is flushed reaches the file some time later, and what is closed now
        written = self._writer.close if now.step == now.steps else self._writer.flush
        written()


def summary_writer(who: str) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise InputError(f"{who} needs tensorboardX: install `evergrad[tensorboard]`.") from None
    return SummaryWriter


def _check_every(every: Any, call: str) -> None:
    if every is not None:
        refuse_unless(not isinstance(every, str), f"`{call}`: every is a number of steps.")
        whole_number(every, 1, call, "every", "the steps from one call to the next")
