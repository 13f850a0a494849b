"""The paper's set-up, said once: networks, tasks, estimators, and how a quick budget shrinks them."""

from typing import Any

from evergrad.paper.plan import Line, Plan

RELEASED_RATE = 10**-3.5
CHOSEN_RATE = 10**-2.5  # what every search has chosen so far; for a figure without a search of its own

COPY = {"cell": "rhn", "units": 128, "batch": 16}
PTB = {"cell": "rhn", "units": 256, "batch": 32, "reset_every": 100, "valid_every": 2_000}


def ok(rank: int, *, window: int = 0, mix: str = "signs") -> dict[str, Any]:
    """The paper's form unless said otherwise."""
    return {"estimator": "ok", "rank": rank, "window": window, "mix": mix}


def ours(rank: int, window: int = 16) -> dict[str, Any]:
    return ok(rank, window=window, mix="sampling")


def kf(copies: int = 1, *, diagonal_rank: int | None = None) -> dict[str, Any]:
    return {"estimator": "kf", "copies": copies, "diagonal_rank": diagonal_rank, "window": 0}


def ktp(rank: int, *, window: int = 0) -> dict[str, Any]:
    return {"estimator": "ktp", "rank": rank, "window": window}


def tbptt(horizon: int) -> dict[str, Any]:
    """horizon = stride, as the paper's."""
    return {"estimator": "tbptt", "horizon": horizon, "stride": horizon}


def line(
    plan: Plan,
    label: str,
    base: dict[str, Any],
    estimator: dict[str, Any],
    sizes: dict[str, tuple[int, int]],
    *,
    rate: float = RELEASED_RATE,
    search: bool = False,
) -> Line:
    """A line at the plan's budget; `sizes` has steps and seeds for each budget."""
    task = "text" if "valid_every" in base else "copy"
    steps, seeds = sizes[plan.budget]
    settings = base | estimator | {"learning_rate": rate, "clip": 1.0, "report": 1000, "keep": 2}
    settings |= {"checkpoint_seconds": 120.0} | ({"data": plan.data} if task == "text" else {})
    settings = _shrunk(settings) if plan.quick else settings
    return Line(label, task, settings, steps, seeds if search else plan.seeds(seeds), search)


_DIVISORS = {"units": 8, "batch": 8, "rank": 4, "copies": 4, "diagonal_rank": 4, "window": 4, "horizon": 5, "stride": 5}


def _shrunk(settings: dict[str, Any]) -> dict[str, Any]:
    small = {name: max(1, settings[name] // by) for name, by in _DIVISORS.items() if settings.get(name)}
    every = {"valid_every": 250} if "valid_every" in settings else {}
    small |= {"batch": max(4, small["batch"]), "report": 250, "learning_rate": 10 * RELEASED_RATE}
    return settings | small | every
