"""How a service goes: for Prometheus, and for the page."""

import math
import time
from typing import Any

from evergrad.serve.engine import Engine


def report(engine: Engine) -> dict[str, Any]:
    """All that there is to say, as JSON."""
    half, most = engine.quantiles(0.5, 0.99)
    service = {
        "uptime_seconds": time.time() - engine.started,
        "samples": dict(engine.samples),
        "refused": engine.refused,
        "waiting": engine.waiting,
        "changes": engine.keeper.number,
        "seconds_p50": half,
        "seconds_p99": most,
    }
    return {"service": service, "model": _plain(engine.model.report())}


def prometheus(engine: Engine) -> str:
    """The text format that Prometheus reads."""
    said = report(engine)
    service = said["service"]
    lines = ["# TYPE evergrad_samples_total counter"]
    lines += [f'evergrad_samples_total{{action="{name}"}} {count}' for name, count in service["samples"].items()]
    lines += _lines("evergrad_refused_total", "counter", service["refused"])
    for name in ("uptime_seconds", "waiting", "changes", "seconds_p50", "seconds_p99"):
        lines += _lines(f"evergrad_{name}", "gauge", service[name])
    lines.append("# TYPE evergrad_model gauge")
    numbers = ((name, value) for name, value in said["model"].items() if isinstance(value, int | float))
    lines += [f'evergrad_model{{what="{name}"}} {value}' for name, value in numbers]
    return "\n".join(lines) + "\n"


def _lines(name, kind, value):
    return [f"# TYPE {name} {kind}", f"{name} {value}"]


def _plain(value: Any) -> Any:
    """As JSON; what is no finite number is null."""
    if isinstance(value, dict):
        return {_name(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _name(name: Any) -> str:
    """Features made by the model, which are pairs, read "evergrad: last target"."""
    return ": ".join(map(str, name)) if isinstance(name, tuple) else str(name)
