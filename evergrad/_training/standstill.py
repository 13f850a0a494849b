"""What to say, once, of a run that has learned nothing yet."""

from typing import Any

from evergrad._registry import CELLS, tagged
from evergrad._training.settings import Settings
from evergrad._training.tasks import Task

PATIENCE = 5_000  # steps after which a run should have left the level of knowing nothing


def is_due(step: int, last: int) -> bool:
    """At the first report at or after so many steps, whether or not the run was resumed in between."""
    return last < PATIENCE <= step


def warning(task: Task, settings: Settings, row: dict[str, Any]) -> str | None:
    """None for a run that has learned something."""
    why = task.standstill(row)
    return None if why is None else f"note: after {row['step']:,} steps {why}. Try {_advice(settings)}."


def _advice(settings: Settings) -> str:
    way = "lower" if settings.learning_rate >= 0.01 else "higher"
    tries = [f"a {way} --learning-rate (now {settings.learning_rate:.3g})"]
    if settings.initial in (None, "normal"):
        tries.append(f"--initial fan_in (now {settings.initial or 'as the cell has it'})")
    if settings.initial is None or not settings.initial.startswith(("chrono", "orthogonal")):
        far = "orthogonal" if settings.cell in tagged(CELLS, "ungated") else "chrono:T"
        tries.append(f"--initial {far} if what matters lies far back{'' if far == 'orthogonal' else ' (T: how far)'}")
    if settings.estimator == "tbptt":
        tries.append(f"a longer --horizon (now {settings.horizon}), or --stride 1 (now {settings.stride})")
    return ", ".join(tries[:-1]) + (" or " if len(tries) > 1 else "") + tries[-1] + ", or more --steps"
