"""The paper's set-up, said once: networks, tasks, estimators, and how a quick budget shrinks them."""

from typing import Any

RELEASED_RATE = 10**-3.5
RATES = tuple(10**-e for e in (2.5, 3.0, 3.5, 4.0))  # the paper's four

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


def exact(window: int) -> dict[str, Any]:
    return {"estimator": "rtrl", "window": window}


def tbptt(horizon: int) -> dict[str, Any]:
    """horizon = stride, as the paper's."""
    return {"estimator": "tbptt", "horizon": horizon, "stride": horizon}


def rolling(horizon: int) -> dict[str, Any]:
    """An update at every step, as the online algorithms have."""
    return {"estimator": "tbptt", "horizon": horizon, "stride": 1}


def task_of(settings: dict[str, Any]) -> str:
    return "text" if "valid_every" in settings else "copy"


def trained_with(settings: dict[str, Any], *, rate: float, data: str | None, quick: bool) -> dict[str, Any]:
    """All that `evergrad train` is told, but the seed."""
    made = settings | {"learning_rate": rate, "clip": 1.0, "report": 1000, "keep": 2, "checkpoint_seconds": 120.0}
    made |= {"data": data} if task_of(settings) == "text" else {}
    return _shrunk(made) if quick else made


_DIVISORS = {"units": 8, "batch": 8, "rank": 4, "copies": 4, "diagonal_rank": 4, "window": 4, "horizon": 5, "stride": 5}


def _shrunk(settings: dict[str, Any]) -> dict[str, Any]:
    small = {name: max(1, settings[name] // by) for name, by in _DIVISORS.items() if settings.get(name)}
    every = {"valid_every": 250} if "valid_every" in settings else {}
    small |= {"batch": max(4, small["batch"]), "report": 250, "learning_rate": 10 * RELEASED_RATE}
    return settings | small | every
