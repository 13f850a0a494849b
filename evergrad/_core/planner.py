"""What a choice of estimator costs, before anything is run."""

import dataclasses
import functools
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from evergrad._cells.base import Cell, outputs_of
from evergrad._core.checks import InputError, refuse_unless, whole_number
from evergrad._core.costs import Cost, sizes_of
from evergrad._core.learner import Learner
from evergrad._core.model import Model
from evergrad._core.not_none import not_none
from evergrad._core.readouts import Linear
from evergrad._core.room import bytes_of
from evergrad._core.streamwise import SMALL
from evergrad._estimators import RTRL, TBPTT, Estimator
from evergrad._registry import ESTIMATORS

PATIENCE = 3
EFFICIENCY = 0.7  # of a step, against loops that do nothing else


@dataclasses.dataclass(frozen=True)
class Rates:
    """Of this machine: numbers a second in large products, in thin ones and in passes; seconds a small operation takes."""

    products: float
    thin: float
    touched: float
    operation: float


@dataclasses.dataclass(frozen=True)
class Option:
    """An estimator with what a training step with it is predicted to take, all streams together."""

    estimator: Estimator
    bytes: int
    multiply_adds: int | float
    seconds: int | float | None
    fits: bool
    layerwise: bool = False  # whether paths through higher layers are left out
    exact: bool = False  # whether the gradient is, on this cell

    @property
    def bias(self) -> str:
        if self.layerwise:
            return "biased"
        if self.exact:
            return "none"
        return "unbiased" if self.estimator.unbiased else "biased"


@dataclasses.dataclass(frozen=True)
class Plan:
    """One option for each kind of estimator, the largest that fits, or the smallest where none does.

    Examples:
        >>> found = eg.plan(eg.LSTM(inputs=50, units=256, key=key), batch=4, memory=1e8)
        >>> [type(option.estimator).__name__ for option in found.options if option.fits][:3]
        ['OK', 'KTP', 'KF']
    """

    options: tuple[Option, ...]
    recommended: Option | None
    why: str


def plan(
    cell: Cell,
    *,
    batch: int,
    outputs: int | None = None,
    memory: int | float | None = None,
    seconds: int | float | None = None,
    rates: Rates | None = None,
    reach: int | None = None,
) -> Plan:
    """For each kind of estimator the largest rank and window (TBPTT: horizon) whose predicted step fits into `memory`
    bytes and `seconds` a step; without a budget, usual ones. `outputs` of the readout: as many as inputs
    unless said. `rates` of the machine are measured, in a second or two, unless given. `reach` is a horizon that is known to
    hold nearly all of the gradient (`eg.lab.reach(...).advised`): rolling TBPTT with it is then recommended where it fits and
    takes less time than what would be recommended otherwise.

    Examples:
        >>> found = eg.plan(eg.LSTM(inputs=50, units=32, key=key), batch=4, memory=1e9)
        >>> found.recommended.estimator
        RTRL(window=64)
        >>> print(found.why)
        it is exact, and it fits.
    """
    whole_number(batch, 1, f"plan(batch={batch})", "batch", "the number of streams")
    for name, budget in (("memory", memory), ("seconds", seconds)):
        refuse_unless(budget is None or budget > 0, f"plan({name}={budget}): a budget is above 0; None is no limit.")
    outputs = cell.inputs if outputs is None else outputs
    whole_number(outputs, 1, f"plan(outputs={outputs})", "outputs", "the numbers that are predicted")
    rates = measured_rates() if rates is None else rates
    predicted = functools.partial(predict, cell, batch=batch, outputs=outputs, rates=rates)

    def judged(estimator: Estimator) -> Option:
        option = predicted(estimator)
        fits = (memory is None or option.bytes <= memory) and (seconds is None or not_none(option.seconds) <= seconds)
        return dataclasses.replace(option, fits=fits)

    bounded = memory is not None or seconds is not None
    options = tuple(_best(family, judged) for family in _families(cell, bounded))
    best, why = _recommend(options, unhurried=seconds is None)
    if reach is None:
        return Plan(options, best, why)
    whole_number(reach, 1, f"plan(reach={reach})", "reach", "the steps that hold nearly all of the gradient")
    rolling = judged(TBPTT(horizon=reach, stride=1))
    return Plan((*options, rolling), *_with_reach(rolling, best, why))


def multiply_adds(estimator: Estimator, cell: Cell) -> int:
    """Of one stream and step, beyond the forward pass."""
    return round(counted(estimator, cell).multiply_adds)


def counted(estimator: Estimator, cell: Cell) -> Cost:
    """Of one stream and step, beyond the forward pass, in full."""
    return _influence_cost(estimator, cell) + estimator.past.cost(cell)


def _influence_cost(estimator: Estimator, cell: Cell) -> Cost:
    """Of all linear maps, and of the other parameters, whose influence the Kronecker family keeps exactly."""
    maps, rest = sizes_of(cell)
    influence, period = estimator.influence, estimator.past.period
    block = 0 if period == 1 else period
    of_rest = RTRL().influence if influence.needs_kronecker else influence
    costs = [influence.cost(each, block) for each in maps] + [of_rest.cost(each, block) for each in rest]
    return sum(costs, Cost())


def predict(cell: Cell, estimator: Estimator, *, batch: int, outputs: int, rates: Rates | None = None) -> Option:
    """Bytes, multiply-adds and seconds of a training step with Adam, of all streams together."""
    estimator.check(cell)
    maps, rest = sizes_of(cell)
    parameters = sum(each.parameters for each in (*maps, *rest))
    mine, remembering = _influence_cost(estimator, cell), dataclasses.replace(estimator.past.cost(cell), calls=0)
    updated = Cost(0, 2 * parameters + 3 * outputs_of(cell) * outputs, 0) + remembering
    total = batch * (mine.multiply_adds + updated.multiply_adds)
    each = mine + updated
    cost = Cost(batch * each.products, batch * each.thin, batch * each.touched + 14 * parameters)
    calls = 120 + estimator.past.cost(cell).calls + batch * each.calls

    def state():
        model = Model(cell, Linear(outputs_of(cell), outputs, key=jax.random.key(0)))
        return Learner(model, estimator, optax.adam(1e-3)).init(batch=batch, key=jax.random.key(0))

    bytes_ = bytes_of(state) + scratch(cell, estimator, batch)
    seconds = rates and _seconds(cost, calls, rates)
    return Option(estimator, bytes_, total, seconds, True, cell.layerwise, estimator.exact_for(cell))


def scratch(cell: Cell, estimator: Estimator, batch: int) -> int:
    """Bytes that a training step holds beside the state."""
    maps, rest = sizes_of(cell)
    carried = sum(a.size for a in jax.tree.leaves(eqx.filter_eval_shape(estimator.influence.init, cell)))
    at_once = 1 if carried >= SMALL and jax.default_backend() == "cpu" else batch
    each = estimator.past.cost(cell).scratch + 4 * sum(one.p + one.q for one in maps)
    parameters = sum(one.parameters for one in (*maps, *rest))
    numbers = at_once * _influence_cost(estimator, cell).scratch + batch * each + 2 * parameters
    return round(jnp.result_type(float).itemsize * numbers)


def _seconds(cost: Cost, calls: int | float, rates: Rates) -> int | float:
    work = cost.products / rates.products + cost.thin / rates.thin + cost.touched / rates.touched
    return work / EFFICIENCY + calls * rates.operation


def _families(cell: Cell, bounded: bool) -> list[list[Estimator]]:
    """Of every kind that the cell can be used with, the settings to choose from, the most wanted first."""
    kinds = [entry.load() for entry in ESTIMATORS.values()]
    families = [kind.choices(cell) if bounded else kind.usual(cell) for kind in kinds]
    allowed = [[e for e in family if _allowed(e, cell)] for family in families]
    return [family for family in allowed if family]


def _allowed(estimator: Estimator, cell: Cell) -> bool:
    try:
        estimator.check(cell)
    except InputError:
        return False
    return True


def _best(family: list[Estimator], judged: Callable[[Estimator], Option]) -> Option:
    """The first that fits, beyond which none is looked at; where none does, the smallest."""
    tried: list[Option] = []
    for estimator in family:
        tried.append(judged(estimator))
        if tried[-1].fits:
            return tried[-1]
    return min(tried, key=lambda option: option.bytes)


def _recommend(options: tuple[Option, ...], unhurried: bool) -> tuple[Option | None, str]:
    """The first that fits; without a limit of time, not what takes `PATIENCE` times as long as the next."""
    fitting = [option for option in options if option.fits]
    if unhurried and len(fitting) > 1 and not_none(fitting[0].seconds) > PATIENCE * not_none(fitting[1].seconds):
        slower, option = fitting[:2]
        times = not_none(slower.seconds) / not_none(option.seconds)
        return option, f"{slower.estimator!r} fits as well, and is less noisy, but takes {times:.0f} times as long."
    for option in fitting:
        return option, option.estimator.recommended
    return None, "nothing fits: allow more memory or time, or use fewer units or streams."


def _with_reach(rolling: Option, best: Option | None, why: str) -> tuple[Option | None, str]:
    """Whether a horizon that loses next to nothing is the better choice."""
    known = f"a horizon of {rolling.estimator.past.period} steps was found to hold 99 % of the gradient"
    if not rolling.fits or (best is not None and best.estimator == rolling.estimator):
        return best, why
    if best is None:
        return rolling, f"{known}, and nothing else fits."
    ratio = not_none(rolling.seconds) / not_none(best.seconds)
    if ratio < 1:
        return (
            rolling,
            f"{known}, and takes {ratio:.2g} of the time of {best.estimator!r}, which reaches back to the beginning.",
        )
    return best, f"{why} ({known}, but takes {ratio:.2g} times as long.)"


@functools.cache
def measured_rates() -> Rates:
    """How fast this machine is, each figure the best of a few tries."""
    n, batch, rank = 256, 4, 8
    a, h = jnp.ones((n, rank * n)), jnp.eye(n)
    terms, weights = jnp.ones((n, 16, 2 * n)), jnp.ones((n, 16, 16))
    large, small, weight = jnp.ones((1 << 23,)), jnp.ones((4, 32)), jnp.eye(32)
    return Rates(
        products=rank * n**3 / _best_time(lambda a: h @ a, a, 4),
        thin=16 * 16 * 2 * n * n / _best_time(lambda t: jnp.matmul(weights, t), terms, 4),
        touched=2 * large.size / _best_time(lambda x: 0.5 * x + 0.5, large, batch),
        operation=_best_time(lambda x: jnp.tanh(x @ weight + x), small, 1000) / 2,
    )


def _best_time(function: Callable, array: jax.Array, times: int) -> float:
    many = jax.jit(lambda a: jax.lax.fori_loop(0, times, lambda _, a: function(a), a), donate_argnums=0)
    array, best = jax.block_until_ready(many(array)), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        array = jax.block_until_ready(many(array))
        best = min(best, (time.perf_counter() - start) / times)
    return best
