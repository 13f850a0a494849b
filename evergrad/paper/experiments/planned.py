"""The table of lines at a budget: what is to be trained next."""

from evergrad.paper.experiments.lines import FIGURES, Figure, Row
from evergrad.paper.plan import Line, Plan
from evergrad.paper.rates import Choice, choose
from evergrad.paper.setup import RATES, RELEASED_RATE, task_of, trained_with

_DOUBLINGS = 2  # of a search whose halves choose different rates


def lines(plan: Plan, name: str) -> list[Line]:
    """Of a figure. Asked again when all of it is done: the search for a rate decides what goes on."""
    return [line for row in FIGURES[name].rows for line in of_row(plan, name, row)]


def of_row(plan: Plan, name: str, row: Row) -> list[Line]:
    figure, found = FIGURES[name], []
    if plan.budget in row.sizes:
        steps, seeds = row.sizes[plan.budget]
        found.append(at_rate(plan, figure, row, RELEASED_RATE, steps, plan.seeds(seeds)))
    if plan.budget not in row.best:
        return found
    tried, choice = searched(plan, name, row)
    found += tried
    if choice is not None:
        steps, seeds = row.best[plan.budget]
        found.append(at_rate(plan, figure, row, choice.rate, steps, plan.seeds(seeds), best=True))
    return found


def best_line(plan: Plan, name: str, label: str) -> Line | None:
    """Once its rate is chosen."""
    return next((line for line in of_row(plan, name, FIGURES[name].row(label)) if line.best), None)


def searched(plan: Plan, name: str, row: Row) -> tuple[list[Line], Choice | None]:
    """The four rates for a while, for longer while the two halves of the search disagree; and the choice, when they are done."""
    if row.rate_of is not None:
        other, label = row.rate_of
        return searched(plan, other, FIGURES[other].row(label))
    for doubling in range(_DOUBLINGS + 1):
        steps = row.search[plan.budget] * 2**doubling
        tried = [at_rate(plan, FIGURES[name], row, rate, steps, 1, search=True) for rate in RATES]
        runs = {line.settings["learning_rate"]: line.runs()[0] for line in tried}
        if not all(map(plan.finished, runs.values())):
            return tried, None
        lasting = {rate: run for rate, run in runs.items() if not plan.diverged(run).exists()}
        choice = choose({rate: plan.curve(run, steps) for rate, run in lasting.items()}, tried[0].task)
        if choice is None or choice.agrees:
            break
    return tried, choice


def at_rate(
    plan: Plan,
    figure: Figure,
    row: Row,
    rate: float,
    steps: int,
    seeds: int,
    *,
    first: int = 0,
    search: bool = False,
    best: bool = False,
) -> Line:
    settings = figure.settings(row)
    made = trained_with(settings, rate=rate, data=plan.data, quick=plan.quick)
    return Line(row.label, task_of(settings), made, steps, seeds, search, best, first, row.turn)
