"""One thread that owns the model: what is asked of it is done in the order in which it came, and answered when it is kept."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evergrad._core.checks import InputError
from evergrad.serve.actions import ACTIONS
from evergrad.serve.journal import Event
from evergrad.serve.keeper import Keeper

TOGETHER = 512  # jobs that are kept by one write
REMEMBERED = 4096  # newest answers, of which times are told


class Job(NamedTuple):
    """Samples for one action; `answer(predictions, error)` is called once, from the engine's thread."""

    action: str
    samples: Sequence[tuple[dict[str, Any], Any, Any]]  # x, y and key
    answer: Callable[[list[Any] | None, Exception | None], None]
    asked: float


class Busy(RuntimeError):
    """More was asked than can be done."""


class Engine:
    """Of a model that a keeper keeps."""

    def __init__(self, keeper: Keeper, *, waiting: int = 10_000):
        self.keeper, self.started = keeper, time.time()
        self.samples = dict.fromkeys(ACTIONS, 0)
        self.refused = 0
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._jobs: queue.Queue[Job | None] = queue.Queue(waiting)
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="evergrad-engine", daemon=True)
        self._thread.start()

    def submit(self, action: str, samples: Sequence[tuple[dict[str, Any], Any, Any]], answer: Callable) -> None:
        """Raises Busy if too much is waiting already."""
        self.check()
        try:
            self._jobs.put_nowait(Job(action, samples, answer, time.perf_counter()))
        except queue.Full:
            raise Busy(f"{self._jobs.maxsize:,} requests are waiting: ask again later, or less often.") from None

    def check(self) -> None:
        """Raises what has ended the work, if anything has."""
        if self._broken is not None:
            raise self._broken

    @property
    def model(self) -> Any:
        return self.keeper.model

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    @property
    def well(self) -> bool:
        return self._broken is None and self._thread.is_alive()

    def quantiles(self, *levels: float) -> list[float]:
        """Of the seconds from question to answer, of the newest answers."""
        times = sorted(self._seconds)
        return [times[min(int(level * len(times)), len(times) - 1)] if times else 0.0 for level in levels]

    def stop(self) -> None:
        """After all that was asked; the model is on the disk then."""
        self._jobs.put(None)
        self._thread.join()
        self.keeper.close(checkpoint=self._broken is None)

    def _work(self):
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < TOGETHER and (more := self._at_once()) is not None:
                jobs.append(more)
            self._do(jobs)

    def _at_once(self):
        """A job that is waiting; one that ends the work is left for later."""
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return None
        if job is None:
            self._jobs.put(None)
        return job

    def _do(self, jobs):
        number, events, answers = self.keeper.number, [], []
        for job in jobs:
            predictions, error = [], None
            for x, y, key in job.samples:
                try:
                    predictions.append(ACTIONS[job.action].apply(self.model, x, y, key))
                except Exception as problem:  # of this sample: the model is as it was
                    error = problem
                    self.refused += 1
                    break
                events.append(Event(number + len(events) + 1, job.action, x, y, key))
            answers.append((job, predictions, error))
        try:
            self.keeper.keep(events)
        except Exception as problem:  # the disk is full, say: what was done cannot be promised
            self._broken = InputError(
                f"the service cannot write to {self.keeper.folder} ({problem}), and has stopped learning."
            )
            answers = [(job, None, self._broken) for job, _, _ in answers]
        for job, predictions, error in answers:
            self.samples[job.action] += len(predictions or ())
            self._seconds.append(time.perf_counter() - job.asked)
            job.answer(predictions, error)
