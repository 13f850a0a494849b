"""Forecasts of a series, h rows ahead, scored as they would have been made.

**Time.** At step t row t arrives. It completes the pair (row t − h, row t), the newest one that can be learned from, so
the learner's own streams run h rows late: they read row t − h, and their target is row t. A forecast cannot wait: a
second copy of the hidden state reads row t as soon as it is there, with the weights of that moment, and forecasts row
t + h. It is put away for h steps and scored when that row arrives. So a forecast made at t has seen rows up to t, and
weights that learned from targets up to t, and nothing later.

**Scale.** Inputs are (x − mean) / deviation with the mean and deviation of rows 0…t; a target is what row t differs
from row t − h, in units of the root mean square of such differences up to row t − h. A network that says 0 thus
forecasts persistence. Until the first such difference is known there is no unit: the forecast is persistence, whatever
the network says, and nothing is learned. Both are held within ±10, so that a freak value cannot throw the weights; scores are in the
data's own units.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evergrad._core import across
from evergrad._core.checks import refuse_unless, whole_number
from evergrad._core.model import Model
from evergrad._core.placing import along, everywhere
from evergrad._core.sources import Data, Source

FARTHEST = 10.0
_LARGEST_SINGLE, _LARGEST_DOUBLE = 1e30, 1e150  # of differences: their sums, and in float64 their squares, are finite


class SeriesPosition(eqx.Module):
    time: Int[Array, ""]
    hidden: Any  # of the copy that forecasts, streams first
    waiting: Float[Array, "h B outputs"]  # forecasts whose row has not come yet
    counted: Float[Array, " outputs"]  # forecasts scored since `scored_anew`
    errors: Float[Array, "3 outputs"]  # sums of absolute errors: ours, persistence, seasonal


class Series(Source):
    """B streams, one for each of B equal stretches of the rows; `targets` are the columns to forecast.

    Made from `values` [rows, columns], NaN where missing: a missing input is taken as the last one known, and a stream
    with a missing target learns nothing at that step. Scores are made of differences that are taken in double precision,
    so that single precision suffices for a column of large numbers that change little.
    """

    ahead: int = eqx.field(static=True)
    inputs: Float[Array, "L B columns"]
    targets: Float[Array, "L B outputs"]
    weight: Float[Array, "L B"]
    changes: Float[Array, "L B 2 outputs"]  # what came, less the guesses of persistence and season
    unit: Float[Array, "L B outputs"]  # of the network's output
    scored: Bool[Array, "L B outputs"]

    def __init__(
        self,
        values: Float[np.ndarray, "rows columns"],
        targets: list[int],
        *,
        batch: int = 1,
        ahead: int = 1,
        period: int | None = None,
    ):
        call = f"Series(batch={batch}, ahead={ahead}, period={period})"
        whole_number(ahead, 1, call, "ahead", "the number of rows from what is known to what is forecast")
        length = _check_length(call, len(values), batch, ahead, period)
        levels = values[: length * batch].reshape(batch, length, -1).transpose(1, 0, 2)
        lanes = levels - _first_known(levels)
        _check_sizes(lanes)
        chosen, known = _last_known(levels[..., targets]), ~np.isnan(levels[..., targets])
        base = _later(chosen, ahead)
        lag = ahead if period is None else period * -(-ahead // period)
        changes = np.stack([chosen - base, chosen - _later(chosen, lag)], axis=2)
        differences = np.where(known & _later(_ever(known), ahead, False), chosen - base, np.nan)
        unit = _later(_running(differences**2) ** 0.5, ahead)
        usable = ~np.isnan(differences)
        dtype = jnp.result_type(float)

        def as_array(a):
            return jnp.asarray(np.nan_to_num(a), dtype)

        self.ahead = ahead
        self.inputs = as_array(standardised(lanes, _last_known(lanes)))
        self.targets = as_array(_in_units(chosen - base, unit))
        self.weight = as_array((usable.all(axis=-1) & (unit > 0).any(axis=-1)).astype(float))
        self.changes, self.unit = as_array(changes), as_array(unit)
        self.scored = jnp.asarray(usable & (np.arange(length) >= lag)[:, None, None])

    @property
    def length(self) -> int:
        """Steps until the rows are used up."""
        return len(self.weight)

    def start(self, *, model: Model) -> SeriesPosition:
        _, batch, outputs = self.targets.shape
        dtype = self.targets.dtype
        return SeriesPosition(
            time=jnp.zeros((), jnp.int32),
            hidden=jax.vmap(lambda _: model.cell.initial())(jnp.arange(batch)),
            waiting=jnp.zeros((self.ahead, batch, outputs), dtype),
            counted=jnp.zeros(outputs, dtype),
            errors=jnp.zeros((3, outputs), dtype),
        )

    def emit(self, position):
        t = position.time
        late = jnp.maximum(t - self.ahead, 0)
        reset = jnp.broadcast_to(t <= self.ahead, self.weight[0].shape)
        data = Data(self.inputs[late], self.targets[t], reset, self.weight[t])
        return data, eqx.tree_at(lambda p: p.time, position, t + 1)

    def hear(self, position, losses, model):
        t = position.time - 1
        hidden, forecast = self._forecast(position, model, t)
        # what is forecast from row t − 1 falls due at t − 1 + ahead, the place that came up before this step's
        waiting = position.waiting.at[(t - 1) % self.ahead].set(forecast)
        ours = self.changes[t, :, 0] - self.unit[t] * waiting[t % self.ahead]
        missed = jnp.abs(jnp.concatenate([ours[:, None], self.changes[t]], axis=1))
        errors = jnp.where(self.scored[t][:, None], missed, 0).sum(axis=0)
        counted = jnp.asarray(self.scored[t].sum(axis=0), errors.dtype)
        errors, counted = across.total((errors, counted))
        return SeriesPosition(position.time, hidden, waiting, position.counted + counted, position.errors + errors)

    def stream_axes(self, position):
        lanes = along(0, position.hidden), along(1, position.waiting)
        return along(1, self), eqx.tree_at(lambda p: (p.hidden, p.waiting), everywhere(position), lanes)

    def _forecast(self, position, model, t):
        """The forecasting copy reads row t − 1: with the weights as they are before step t, it is still time t − 1."""
        moved = jax.vmap(model.cell.step)(position.hidden, self.inputs[jnp.maximum(t - 1, 0)])
        hidden = jax.tree.map(lambda new, old: jnp.where(t > 0, new, old), moved, position.hidden)
        outputs = jax.vmap(lambda state: model.readout(model.cell.output(state)))(hidden)
        return hidden, outputs


class Scale(NamedTuple):
    """From rows in the data's units to what the network reads, and from what it says to a forecast, `ahead` rows on:

    z = clip((row − mean) · inverse, ±10)        forecast = row[targets] + unit · output
    """

    mean: Float[np.ndarray, " columns"]
    inverse: Float[np.ndarray, " columns"]  # of the deviation; 0 for a column that never changed
    unit: Float[np.ndarray, " outputs"]
    targets: list[int]


def scale_after(
    values: Float[np.ndarray, "rows columns"], targets: list[int], *, batch: int, ahead: int, steps: int
) -> Scale:
    """What is known after so many steps; of several streams that of the last one, whose rows are the newest."""
    length = len(values) // batch
    levels = values[(batch - 1) * length : (batch - 1) * length + steps][:, None]
    first = _first_known(levels)
    lanes = levels - first
    mean = _running(lanes)[-1, 0]
    spread = np.sqrt(np.maximum(_running(lanes**2)[-1, 0] - mean**2, 0))
    inverse = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0)
    chosen = _last_known(levels[..., targets])
    differences = np.where(np.isnan(levels[..., targets]), np.nan, chosen - _later(chosen, ahead))
    unit = np.nan_to_num(_running(differences**2)[-1, 0]) ** 0.5
    return Scale(np.nan_to_num(mean + first[0, 0]), np.nan_to_num(inverse), unit, targets)


def scored_anew(position: SeriesPosition) -> SeriesPosition:
    """The same position with no forecast scored yet."""
    nothing = jnp.zeros_like(position.counted), jnp.zeros_like(position.errors)
    return eqx.tree_at(lambda p: (p.counted, p.errors), position, nothing)


def standardised(lanes: Float[np.ndarray, "L B C"], filled: Float[np.ndarray, "L B C"]) -> Float[np.ndarray, "L B C"]:
    """(x − mean) / deviation, both of the rows up to and with the same one; 0 where nothing is known yet."""
    mean = _running(lanes)
    spread = np.sqrt(np.maximum(_running(lanes**2) - mean**2, 0))
    return np.where(spread > 0, np.clip((filled - mean) / np.where(spread > 0, spread, 1), -FARTHEST, FARTHEST), 0)


def _running(a):
    """Mean of the entries so far that are no NaN; NaN before the first."""
    known = ~np.isnan(a)
    count = known.cumsum(0)
    total = np.where(known, a, 0).cumsum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _in_units(differences, unit):
    """Within ±10 of a unit; 0 where there is none yet."""
    there = unit > 0
    return np.where(there, np.clip(differences / np.where(there, unit, 1), -FARTHEST, FARTHEST), 0)


def _ever(known):
    return np.maximum.accumulate(known, axis=0)


def _first_known(a):
    first = np.take_along_axis(a, np.argmax(~np.isnan(a), axis=0)[None], axis=0)
    return np.nan_to_num(first)


def _last_known(a):
    """NaN replaced by the last number above it, where there is one."""
    rows = np.where(np.isnan(a), -1, np.arange(len(a))[:, None, None])
    rows = np.maximum.accumulate(rows, axis=0)
    return np.where(rows >= 0, np.take_along_axis(a, np.maximum(rows, 0), axis=0), np.nan)


def _later(a, steps, nothing=np.nan):
    """Row t − steps at row t."""
    moved = np.full_like(a, nothing)
    moved[steps:] = a[: len(a) - steps]
    return moved


def _check_sizes(lanes):
    """Refuses numbers whose differences, or sums of them, would be infinite."""
    single = jnp.result_type(float) == jnp.float32
    largest, bound = float(np.nanmax(np.abs(lanes), initial=0)), _LARGEST_SINGLE if single else _LARGEST_DOUBLE
    advice = ", or --precision float64" if single else ""
    refuse_unless(
        largest <= bound,
        f"the series has numbers that differ by {largest:.3g}, and more than {bound:g} cannot be reckoned with: use a "
        f"larger unit{advice}.",
    )


def _check_length(call, rows, batch, ahead, period):
    whole_number(batch, 1, call, "batch", "the number of streams")
    refuse_unless(rows >= batch, f"the series has {rows} rows, fewer than the {batch} streams: use a smaller --batch.")
    length = rows // batch
    refuse_unless(
        length > 2 * ahead,
        f"each of {batch} streams has {length} rows, too few to forecast {ahead} ahead: use a smaller --batch or "
        "--ahead.",
    )
    if period is not None:
        whole_number(period, 1, call, "period", "the number of rows in a season")
        refuse_unless(
            period * -(-ahead // period) < length,
            f"--period {period} is longer than the {length} rows of a stream, so there is no season to look back to.",
        )
    return length
