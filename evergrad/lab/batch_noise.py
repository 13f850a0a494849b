"""The noise of an estimator beside the noise of the data: both are divided by the number of streams, so either will do.

At every step, B streams have exact gradients g_b with mean ḡ. The noise of the data is the variance of ḡ, estimated from
the streams themselves: (mean ‖g_b‖² − ‖ḡ‖²) / (B − 1). That of an estimator is ‖ĝ − ḡ‖² of the same batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from evergrad._core.checks import refuse_unless
from evergrad._estimators import TBPTT, Estimator
from evergrad.lab.noise import measure
from evergrad.lab.subject import Subject


def beside_the_data(
    subject: Subject,
    estimators: Mapping[str, Estimator],
    *,
    repetitions: int,
    key: Array,
    told: Callable[[str, int], Any] = lambda name, steps: None,
) -> dict[str, Any]:
    """Squared norms of a batch's gradient, of the data's noise in it, and of each estimator's; means over steps."""
    streams = subject.data.reset.shape[1]
    refuse_unless(streams > 1, f"a batch of {streams} stream has no variance over streams: take more.")
    found = measure(subject.model, estimators, subject.data, repetitions=repetitions, key=key, told=told)
    whole = next(iter(found.values())).truth.mean()
    each = np.mean([_alone(subject, b, key, told) for b in range(streams)])
    return {
        "streams": streams,
        "steps": len(subject.data.reset),
        "gradient": float(whole),
        "data": float((each - whole) / (streams - 1)),
        "estimators": {name: float(noise.errors.mean()) for name, noise in found.items()},
    }


def _alone(subject, b, key, told):
    """The mean squared norm of one stream's exact gradient; the estimator is there because one must be."""
    data = jax.tree.map(lambda a: a[:, b : b + 1], subject.data)
    shortest = {"one": TBPTT(horizon=1, stride=1)}
    return measure(subject.model, shortest, data, repetitions=1, key=key, told=told)["one"].truth.mean()
