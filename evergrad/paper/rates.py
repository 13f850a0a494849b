"""The paper's choice of a learning rate: each of four for a while with one seed, then on with the best."""

from typing import Any

from evergrad.paper.claims import Claim, better
from evergrad.paper.experiment import Grid
from evergrad.paper.plan import Line, Plan
from evergrad.paper.results import Result, value_at
from evergrad.paper.setup import RELEASED_RATE, line

RATES = tuple(10**-e for e in (2.5, 3.0, 3.5, 4.0))


_BEST = ", best rate"


def best_named(label: str) -> str:
    """What the line of a label's best rate is called."""
    return label + _BEST


def is_best(label: str) -> bool:
    return label.endswith(_BEST)


def estimator_of(label: str) -> str:
    """The label without what `best_named` puts to it."""
    return label.removesuffix(_BEST)


def best_of(result: Result, label: str) -> str:
    """The line of a label's best rate if there is one, else the label's own."""
    return best_named(label) if result.line(best_named(label)) else label


def with_rates(plan: Plan, label: str, base: dict, estimator: dict, sizes: dict, search: dict) -> list[Line]:
    """Each rate for `search` steps, and the line of the best; that of the released runs' rate is drawn for itself."""
    tried = [line(plan, label, base, estimator, search, rate=rate, search=True) for rate in RATES]
    best = best_rate(plan, tried)
    if best is None or best == RELEASED_RATE:
        return tried
    return [*tried, line(plan, best_named(label), base, estimator, sizes, rate=best)]


def best_rate(plan: Plan, tried: list[Line]) -> float | None:
    """Of search lines, the larger one if two are as good; None while one has neither reached its end nor diverged."""
    scores = {}
    for each in tried:
        (run,) = each.runs()
        if not plan.finished(run):
            return None
        figure = plan.figure_at(run, each.steps)
        if figure is not None:
            scores[each.settings["learning_rate"]] = figure if each.task == "text" else -figure
    return min(scores, key=scores.__getitem__) if scores else None


def at_best_rate(result: Result, ours: str, others: dict[str, str], **how: Any) -> list[Claim]:
    """Ours against the others (and what the paper says of them), each with the best of the rates that it was tried with."""
    return [better(result, best_of(result, ours), best_of(result, other), said=s, **how) for other, s in others.items()]


def rate_grid(result: Result) -> list[Grid]:
    """The search for a learning rate, as far as it has come."""
    tried = result.lines(search=True)
    if not tried:
        return []
    rates = sorted({each["settings"]["learning_rate"] for each in tried}, reverse=True)
    rows = []
    for name in dict.fromkeys(each["label"] for each in tried):
        here = {each["settings"]["learning_rate"]: each for each in tried if each["label"] == name}
        steps = max(each["steps"] for each in here.values())
        ends = {rate: value_at(result.curves(each)[0], each["steps"]) for rate, each in here.items()}
        rows.append((name, f"{steps:,}", *("–" if (v := ends.get(rate)) is None else f"{v:.3f}" for rate in rates)))
    head = ("estimator", "steps", *(f"rate {rate:.2g}" for rate in rates))
    title = "Choice of a learning rate among the paper's four: figure at the end of a short run, one seed"
    return [Grid(title, head, rows)]
