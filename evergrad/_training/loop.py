"""What a run does between the calls of the loop (`evergrad/_core/fitting.py`): reports and checkpoints."""

import dataclasses
import math
import signal
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evergrad._core import driver
from evergrad._core.checks import DivergedError, refuse_unless
from evergrad._core.fitting import Pace, advance, most_steps as most_steps
from evergrad._core.not_none import not_none
from evergrad._core.placing import here, shardings
from evergrad._core.sources import spread_axes
from evergrad._training import divergence, probing, standstill
from evergrad._training.build import Job
from evergrad._training.checkpoint import Checkpoints
from evergrad._training.display import Display, memory_mib
from evergrad._training.metrics import Metrics, Unwritten
from evergrad._training.signals import Stop
from evergrad._training.team import ALONE, Alone, Team


@dataclasses.dataclass
class Progress:
    """All that changes in a run. `back` is state and position at the last report, without the influence."""

    state: Any
    position: Any
    back: Any
    step: int = 0
    loss_sum: float = 0.0  # over the steps since the last report
    loss_steps: int = 0
    influence_resets: int = 0
    reset_here: bool = False  # the influence was reset since the last report

    def arrays(self) -> dict[str, Any]:
        return {"state": self.state, "position": self.position, "back": self.back}

    def notes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NOTES}


_NOTES = {"step": int, "loss_sum": float, "loss_steps": int, "influence_resets": int, "reset_here": bool}


def check_notes(step: int, notes: dict[str, Any]) -> None:
    """Refuses notes that no `Progress` at this step has written."""
    kinds = {name: type(value) for name, value in notes.items()}
    refuse_unless(kinds == _NOTES and notes["step"] == step, "its notes are damaged.")


# looks at a run under way, and says what it saw
Watch = Callable[[Job, Progress], str]


def begin(job: Job) -> Progress:
    state, position = job.start()
    return Progress(state, position, _kept(state, position))


def form(job: Job) -> dict[str, Any]:
    """The shapes of what a checkpoint holds, and where its arrays belong."""
    shapes = eqx.filter_eval_shape(lambda: begin(dataclasses.replace(job, mesh=None)).arrays())
    mesh = job.mesh
    if mesh is None:
        return shapes

    def axes(state):
        return driver.axes(state, job.learner.estimator, mesh)

    _, position = spread_axes(job.source, shapes["position"], mesh)
    slim, _ = shapes["back"]
    places = {"state": axes(shapes["state"]), "position": position, "back": (axes(slim), position)}

    def placed(a, place):
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place)

    arrays, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(jax.tree.map(placed, arrays, shardings(places, mesh)), rest)


def _kept(state, position):
    """Copies, since the loop gives its memory away."""
    slim = eqx.tree_at(lambda s: s.track, state, None)
    return jax.tree.map(lambda a: jnp.array(a, copy=True) if eqx.is_array(a) else a, (slim, position))


class Loop:
    """All processes of a team go through it in step; what depends on a clock or a signal is agreed on first."""

    def __init__(
        self,
        job: Job,
        progress: Progress,
        checkpoints: Checkpoints,
        metrics: Metrics | Unwritten,
        display: Display,
        stop: Stop,
        team: Alone | Team = ALONE,
        watch: "Watch | None" = None,
    ):
        self.job, self.progress, self.checkpoints = job, progress, checkpoints
        self.metrics, self.display, self.stop, self.team, self.watch = metrics, display, stop, team, watch
        # the same for all calls of a run, also when it is resumed with other steps
        self._room = most_steps(job.settings.batch, job.settings.report)
        self._saved, self._saved_at = progress.step, time.monotonic()
        self._reported_at, self._reported_step = time.monotonic(), progress.step
        self._suspect = False  # the last call's loss was explosive: no state to keep
        self._compiled = False

    def run(self) -> None:
        """Until the last step, or until a signal asks to stop. There is a checkpoint of where it ends."""
        settings, now = self.job.settings, self.progress
        last = not_none(settings.steps)
        self.display.start(now.step, last)
        agreed: dict[str, Any] = {"room": self._room, "stopped": self._stopped, "agree": self.team.from_first}
        try:
            advance(self.job.learner, self.job.source, now, last, [self], **agreed)
            self._save()
            self.checkpoints.wait()
        finally:
            self.display.stop()

    def _stopped(self):
        """Whether a signal has asked any process to stop, or nobody reads what it shows any more."""
        asked = self.stop.signal or self.display.unread
        signals = [each for each in self.team.gather(asked) if each is not None]
        self.stop.signal = signal.Signals(signals[0]) if signals else None
        return bool(signals)

    def until(self) -> int:
        """Steps to the next report, checkpoint or look."""
        step, settings = self.progress.step, self.job.settings
        everything = settings.report, settings.checkpoint_every, settings.reach_every
        return min(each - step % each for each in everything if each is not None)

    def _look(self):
        """At how far back the gradient looks, if it is time, and if somebody has come to look."""
        every, now = self.job.settings.reach_every, self.progress
        if self.watch is not None and every is not None and now.step > 0 and now.step % every == 0:
            self.display.say(f"step {now.step:,}: {self.watch(self.job, now)}")

    def moved(self, losses: np.ndarray, pace: Pace) -> None:
        """After every call: what it adds to the report, the report if one is due, and the checkpoint."""
        now, settings, task = self.progress, self.job.settings, self.job.task
        if not self._compiled:
            self._compiled, self._reported_at, self._reported_step = True, time.monotonic(), now.step
        total = float(np.asarray(losses, np.float64).mean(axis=1).sum())
        now.loss_sum += total
        now.loss_steps += len(losses)
        self._suspect = task.scale * total / len(losses) > task.explosive
        loss = task.figures(now.position, now.loss_sum / now.loss_steps, now.loss_steps)["loss"]
        if now.step % settings.report == 0 or now.step == settings.steps:
            self._report()
        self.display.moved(now.step, pace.steps_per_second, loss, self.metrics.last)
        self._look()
        if self.team.from_first(self._checkpoint_due()) and not self._suspect:
            self._save()

    def _report(self):
        now, task = self.progress, self.job.task
        figures = task.figures(now.position, now.loss_sum / now.loss_steps, now.loss_steps)
        if figures["loss"] is not None and figures["loss"] > task.explosive:
            raise DivergedError(f"the loss exploded to {figures['loss']:.3g} {task.unit}", now.state, None)
        norm = divergence.influence_norm(now.state)
        row = {"step": now.step, **figures, **self._validated(), **self._probed()}
        bad = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        if bad:
            raise DivergedError(f"{bad[0]} became {row[bad[0]]}", now.state, None)
        row |= {"influence_norm": norm, "influence_resets": now.influence_resets}
        speed, last = self._speed(), self.metrics.last
        self.metrics.report(row, speed)
        self.display.report(row, speed)
        if standstill.is_due(now.step, last["step"] if last else 0):
            self._warn(row)
        now.position = task.reported(now.position)
        now.loss_sum, now.loss_steps, now.reset_here = 0.0, 0, False
        now.back = _kept(now.state, now.position)

    def _warn(self, row):
        said = standstill.warning(self.job.task, self.job.settings, row)
        if said is not None:
            self.display.say(said)

    def _speed(self):
        """Since the last report of this process, without the first call, which compiles."""
        now, step = time.monotonic(), self.progress.step
        seconds, steps = now - self._reported_at, step - self._reported_step
        self._reported_at, self._reported_step = now, step
        return {"seconds": seconds, "steps_per_second": steps / seconds if steps else 0.0, "memory_mib": memory_mib()}

    def _validated(self):
        """Figures measured now: at the first report, at every multiple of `valid_every` and at the end."""
        settings, step, last = self.job.settings, self.progress.step, self.metrics.last
        every = settings.valid_every
        if every is None:
            return {}
        if last is None or step == settings.steps or self._is_multiple(every):
            model = self.progress.state.model
            return self.job.task.validate(model if self.job.mesh is None else here(model))
        return {}

    def _probed(self) -> dict[str, Any]:
        """Figures measured now: at the first report and at every multiple of `probe`, as long as there are steps to look at."""
        now, every, last = self.progress, self.job.settings.probe, self.metrics.last
        if every is None:
            return {}
        if (last is None or self._is_multiple(every)) and probing.has_room(self.job, now.step):
            return probing.probed(self.job, now.state.model, now.position, now.step)
        return {}

    def _is_multiple(self, every):
        """Whether this is the first report at or after one."""
        step = self.progress.step
        return step // every > (step - self.job.settings.report) // every

    def _checkpoint_due(self):
        settings, step = self.job.settings, self.progress.step
        every = settings.checkpoint_every
        by_steps = every is not None and step // every > self._saved // every
        return by_steps or time.monotonic() - self._saved_at >= settings.checkpoint_seconds

    def _save(self):
        step = self.progress.step
        if step == 0 or step in self.checkpoints.steps():
            return
        self.metrics.make_durable()
        self.checkpoints.save(step, self.progress.arrays(), self.progress.notes())
        self._saved, self._saved_at = step, time.monotonic()

    def diverged(self, error: DivergedError) -> bool:
        """Goes back to the last report with zero influence, if that was asked for and has not just been tried."""
        now, learner = self.progress, self.job.learner
        what, step = _what_happened(error)
        if self.job.settings.on_divergence == "stop" or now.reset_here:
            self.checkpoints.wait()
            raise divergence.Diverged(self._why(what, step, error.state)) from None
        slim, now.position = now.back
        now.state = divergence.without_influence(learner, slim)
        now.step = int(now.state.time)
        now.loss_sum, now.loss_steps, now.reset_here = 0.0, 0, True
        now.influence_resets += 1
        now.back = _kept(now.state, now.position)
        self._suspect = False
        again = f"on from step {now.step:,} with zero influence (reset number {now.influence_resets})"
        self.display.say(f"{what} at step {step:,}: {again}")
        return True

    def _why(self, what, step, state):
        now, learner = self.progress, self.job.learner
        _, position = now.back
        norms = {
            "influence": divergence.influence_norm(state),
            "gradient": divergence.gradient_norm(learner, state, self.job.source, position),
        }
        again = ", again, with the influence just reset," if now.reset_here else ""
        return divergence.explanation(learner, step, what + again, norms, self.job.settings)


def _what_happened(error):
    """In words, and at which step."""
    time = int(error.state.time)
    if error.losses is None:
        return str(error), time
    bad = ~np.isfinite(error.losses).all(axis=1)
    if not bad.any():
        return "the weights became non-finite", time - 1
    return "the loss became non-finite", time - len(bad) + int(bad.argmax())
