"""What cells whose units do not see each other can hold: a vector that has to be turned on and on.

Every cell has the same number of state variables and exact gradients (RTRL). Printed is the squared error over the last
steps, a mean over seeds with its spread: 0 can be had, and 1 is what saying 0 costs.

    python examples/rotation_memory.py            # all cells, some minutes
    python examples/rotation_memory.py rnn mingru
"""

import sys
from typing import Any

import jax
import numpy as np
import optax

import evergrad as eg
from evergrad._tasks import Rotation

STATES, DIMENSIONS, EPISODE, BATCH, SEEDS = 32, 4, 32, 16, 3
STEPS, LAST, RATE = 5_000, 1_000, 3e-3
CELLS = {
    "rnn": (eg.RNN, STATES, {"initial": "orthogonal:0.9"}),
    "leaky": (eg.Leaky, STATES, {}),
    "lru": (eg.LRU, STATES // 2, {"r_min": 0.9, "r_max": 0.999}),
    "rtu": (eg.RTU, STATES // 2, {"r_min": 0.9, "r_max": 0.999}),
    "mingru": (eg.MinGRU, STATES, {"initial": "chrono:32"}),
    "minlstm": (eg.MinLSTM, STATES, {"initial": "chrono:32"}),
    "rglru": (eg.RGLRU, STATES, {"initial": "chrono:32"}),
    "elstm": (eg.ELSTM, STATES, {"initial": "chrono:32"}),
    "indrnn": (eg.IndRNN, STATES, {"initial": "chrono:32", "activation": "tanh"}),
}
OPTIMISER = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))


def begun(name: str, seed: int) -> tuple[eg.Learner, eg.State, Rotation, Any]:
    """A run before its first step: the learner, its state, the task and where it is."""
    kind, units, options = CELLS[name]
    keys = jax.random.split(jax.random.key(seed), 4)
    task = Rotation(DIMENSIONS, EPISODE, seed)
    cell = kind(task.inputs, units, key=keys[0], **options)
    seen = getattr(cell, "outputs", cell.units)
    model = eg.Model(cell, eg.Linear(seen, task.outputs, key=keys[1], initial="fan_in"))
    estimator = eg.RTRL(window=0 if isinstance(cell, eg.UnitCell) else STATES)
    learner = eg.Learner(model, estimator, OPTIMISER, clip=1.0)
    return learner, learner.init(batch=BATCH, key=keys[2]), task, task.start(batch=BATCH, key=keys[3])


def squared_error(name: str, seed: int) -> float:
    """Over the last steps of a run."""
    learner, state, task, position = begun(name, seed)
    _, _, losses = learner.follow(state, task, position, STEPS, room=STEPS)
    return float(np.asarray(losses)[-LAST:].mean())


def main(names: list[str]) -> None:
    for name in names or CELLS:
        errors = [squared_error(name, seed) for seed in range(SEEDS)]
        print(f"{name:8} {np.mean(errors):.3f} ± {np.std(errors):.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
