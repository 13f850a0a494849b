"""What the figures with learning curves have in common: which lines are drawn, and the tables beside them."""

from evergrad.paper.claims import Unit, between, spread
from evergrad.paper.experiment import Grid
from evergrad.paper.rates import Choice, rate_in_words
from evergrad.paper.results import Result, Trace
from evergrad.paper.setup import RATES, RELEASED_RATE


def drawn(result: Result, also_released: tuple[str, ...] = ()) -> list[Trace]:
    """Every label at its best rate, and those that the authors' curves are of at the released runs' rate too."""
    found = []
    for label in result.labels():
        best = result.best(label)
        other = result.at_rate(label, RELEASED_RATE)
        found += [best] if best else []
        if other is not None and label in also_released and (best is None or other.rate != best.rate):
            found.append(other)
    return found


def own_rate(result: Result, label: str) -> Trace | None:
    """A label's line at the released runs' rate; at a budget that shrinks everything, what there is."""
    return result.at_rate(label, RELEASED_RATE) or (result.best(label) if result.budget == "quick" else None)


def rate_grid(result: Result, unit: Unit) -> list[Grid]:
    """The choice of a learning rate for every label, as far as it has come."""
    rows = []
    for label in result.labels():
        choice = result.choice(label)
        if choice is not None:
            rows.append((label, *(_compared(choice, rate, unit) for rate in RATES), choice.in_words()))
    head = ("line", *map(rate_in_words, RATES), "chosen")
    title = (
        f"Choice of a learning rate among the paper's four, one seed each: {unit.name} at the last step that all have; "
        "then again among those that went on"
    )
    return [Grid(title, head, rows)] if rows else []


def _compared(choice: Choice, rate: float, unit: Unit) -> str:
    found = choice.compared(rate)
    if found is None:
        return "–"
    figure, steps = found
    return unit.shown(figure) + ("" if steps == choice.steps else f" at {steps:,}")


def released_grid(traces: list[Trace], theirs: Trace | None, steps: list[int], unit: Unit) -> list[Grid]:
    """Ours beside the released runs at equal steps. What is early is told here, and not judged."""
    if theirs is None:
        return []
    rows = []
    for step in steps:
        range_ = theirs.at(step)
        ours = [trace.at(step) for trace in traces]
        if range_ and any(ours):
            rows.append((f"{step:,}", between(range_, unit), *(spread(each, unit) if each else "–" for each in ours)))
    head = ("steps", f"{len(theirs.runs)} released runs", *(trace.name for trace in traces))
    return [Grid(f"Beside the released runs ({unit.name})", head, rows)] if rows else []
