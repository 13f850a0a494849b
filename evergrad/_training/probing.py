"""How good the estimator of a run is, measured under way by forward-mode probes.

The run stands still meanwhile. On the steps that come next in its data, from the state that streams begin with and with the
weights as they are, the estimator's gradients are compared with exact ones along random directions, which are carried forward. The
run itself goes on as if nothing had been.
"""

import math
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from evergrad._core.checks import refuse_unless
from evergrad._core.model import Model
from evergrad._core.probes import NoGradient, check_probed, probe
from evergrad._core.sources import Data, Source
from evergrad._estimators.base import Estimator
from evergrad._training.settings import Settings

NAMES = ("probe_cosine", "probe_cosine_se", "probe_error", "probe_error_se")
_DIRECTIONS, _STEPS = 32, 100


def check(settings: Settings, estimator: Estimator, mesh: jax.sharding.Mesh | None) -> None:
    """Refuses a run that cannot be probed as it asks to be."""
    if settings.probe is None:
        said = settings.probe_directions is not None or settings.probe_steps is not None
        refuse_unless(
            not said, "--probe-directions and --probe-steps are about --probe: say --probe 1000 too, or neither."
        )
        return
    refuse_unless(mesh is None, "--probe measures on one device: leave out --devices, or --probe.")
    check_probed(estimator, f"--probe {settings.probe} --estimator {settings.estimator}")


def has_room(job: Any, step: int) -> bool:
    """Whether the data has enough steps after this one."""
    return job.task.steps is None or step + _steps(job.settings) <= job.task.steps


def probed(job: Any, model: Model, position: Any, step: int) -> dict[str, float | None]:
    """The figures of a report; None where no gradient was to be seen, for want of targets say, or no number can say it."""
    settings = job.settings
    data = emitted(job.source, position, _steps(settings))
    key = jax.random.fold_in(jax.random.key(settings.seed), step)
    try:
        found = _measured(model, job.learner.estimator, data, settings.probe_directions or _DIRECTIONS, key)
    except NoGradient:
        return dict.fromkeys(NAMES)
    figures = found.cosine, found.cosine_error, found.error, found.error_error
    return {name: value if math.isfinite(value) else None for name, value in zip(NAMES, figures, strict=True)}


def in_words(row: dict[str, Any]) -> list[str]:
    """What a report says of it, for people: nothing or one phrase."""
    if row.get("probe_cosine") is None:
        return []
    return [f"cosine {row['probe_cosine']:.3f} ± {row['probe_cosine_se']:.3f}"]


@eqx.filter_jit
def emitted(source: Source, position: Any, steps: int) -> Data:
    """What comes next, so many steps of it; a curriculum stays where it is."""

    def step(position, _):
        data, position = source.emit(position)
        return position, data

    return jax.lax.scan(step, position, length=steps)[1]


def _measured(model, estimator, data, directions, key: Array):
    given = data.x, data.y, data.reset
    return probe(model, {"it": estimator}, *given, weights=data.weight, probes=directions, key=key)["it"]


def _steps(settings):
    return settings.probe_steps or _STEPS
