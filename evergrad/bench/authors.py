"""What the paper's authors' own scripts take a step. Nobody measured that here: the figures are those of the issue."""

import dataclasses
from collections.abc import Iterator

from evergrad.bench.row import Row
from evergrad.bench.settings import COPY, PTB, Setting


@dataclasses.dataclass(frozen=True)
class Authors:
    """Milliseconds a step on two such cores, and on their GPU in the fastest of their runs; and how many times faster than
    on the cores ours should be."""

    cores: float
    gpu: float
    factor: float


AUTHORS = {COPY: Authors(cores=280.0, gpu=50.0, factor=50.0), PTB: Authors(cores=810.0, gpu=100.0, factor=25.0)}


def against_authors(setting: Setting, ours: float) -> Iterator[Row]:
    """`ours`: milliseconds a step of `setting.ok()`."""
    theirs, estimator = AUTHORS[setting], f"OK(window={setting.window})"
    cores = f"{setting.name}: the authors' OK on two such cores ({theirs.cores:g} ms, from the issue) / {estimator}"
    gpu = f"{setting.name}: {estimator} a step; the authors' GPU took {theirs.gpu:g} ms (from the issue)"
    yield Row("7", cores, theirs.cores / ours, theirs.factor, at_least=True)
    yield Row("7", gpu, ours, theirs.gpu, unit="ms")
