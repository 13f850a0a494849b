"""How far back a gradient was found to look, in a number, a sentence and a file."""

import dataclasses
import fractions
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evergrad._cells.base import Cell
from evergrad._core.checks import InputError
from evergrad._core.planner import multiply_adds
from evergrad._estimators import OK, RTRL, TBPTT, Estimator


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a step of horizon costs TBPTT, in multiply-adds, beside what an untruncated estimator costs in all."""

    a_step: int
    beside: str
    untruncated: int


@dataclasses.dataclass(frozen=True)
class Reach:
    """`shares[i]` of the squared gradient lies within the last `at[i]` steps; `error` is a standard error over what was looked at.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> xs = ys = jnp.ones((30, 2, 1))
        >>> found = eg.lab.reach(model, xs, ys, samples=4, key=key)
        >>> found.looked_at, found.most
        (4, 30)
        >>> bool(found.shares[-1] > 0.99)  # of the squared gradient, within as many steps
        True
    """

    shares: Float[np.ndarray, " lags"]
    error: Float[np.ndarray, " lags"]
    looked_at: int  # steps whose gradient was taken apart, or directions
    most: int  # lags that could have been seen; beyond the last share nothing was
    lags: Int[np.ndarray, " lags"] | None = None  # 1, 2, 3, … unless said
    cost: Cost | None = None

    @property
    def at(self) -> Int[np.ndarray, " lags"]:
        return np.arange(1, len(self.shares) + 1) if self.lags is None else self.lags

    def horizon(self, share: float = 0.99) -> int | None:
        """The fewest steps after which no more than 1 − share of the gradient's square is missing; None if all are too few."""
        missing = 1 - self.shares
        inside = np.flatnonzero(np.maximum.accumulate(missing[::-1])[::-1] <= 1 - share)
        return int(self.at[inside[0]]) if len(inside) else None

    @property
    def sees_the_end(self) -> bool:
        """Whether the horizon of 99 % lies well within what could be seen."""
        far = self.horizon()
        return far is not None and far <= 0.9 * self.most

    @property
    def advised(self) -> int | None:
        """The horizon to use: the next power of two; None if it is not known how far the gradient looks."""
        far = self.horizon()
        return 1 << max(0, (far - 1).bit_length()) if far is not None and self.sees_the_end else None

    def __str__(self) -> str:
        far, half, tries = self.horizon(), self.horizon(0.5), self.advised
        if tries is None:
            if half is None:
                return f"half of this gradient is older than {self.at[-1]} steps: use an estimator without a horizon."
            return (
                f"more than 1 % of this gradient is older than {0.9 * self.most:.0f} steps, nearly all that could be seen; half of "
                f"it comes from the last {half}. Look at longer sequences, or use an estimator without a horizon."
            )
        return (
            f"99 % of this gradient comes from the last {far} steps, half of it from the last {half}: "
            f"TBPTT(horizon={tries}, stride=1) would do{self._at_what_cost(tries)}."
        )

    def _at_what_cost(self, horizon):
        if self.cost is None:
            return ""
        return f", at {in_words(self.cost.a_step * horizon / self.cost.untruncated)} the multiply-adds of {self.cost.beside}"

    def as_json(self) -> dict[str, Any]:
        return {
            "horizon_99": self.horizon(),
            "horizon_50": self.horizon(0.5),
            "advised": self.advised,
            "sentence": str(self),
            "looked_at": self.looked_at,
            "most": self.most,
            "lags": self.at.tolist(),
            "shares": self.shares.tolist(),
            "errors": self.error.tolist(),
        }


def in_words(ratio: float) -> str:
    """A ratio as people say it: a fifth of, 0.7 of, 2.3 times."""
    if ratio >= 1.05:
        return f"{ratio:.2g} times"
    if ratio >= 0.95:
        return "about as many as"
    nearest = fractions.Fraction(1, max(2, round(1 / ratio)))
    names = {2: "half", 3: "a third of", 4: "a quarter of", 5: "a fifth of", 10: "a tenth of"}
    close = abs(float(nearest) / ratio - 1) < 0.12
    return names.get(nearest.denominator, f"1/{nearest.denominator} of") if close else f"{ratio:.2g} of"


def cost_of(cell: Cell) -> Cost | None:
    """None for a cell whose work nobody has counted."""
    try:
        beside = _untruncated(cell)
        a_step = multiply_adds(TBPTT(horizon=64, stride=1), cell) / 64
        return Cost(math.ceil(a_step), repr(beside).replace(", mix='sampling'", ""), multiply_adds(beside, cell))
    except (InputError, NotImplementedError):
        return None


def _untruncated(cell: Cell) -> Estimator:
    """The first of those that fit: OK as it is usually used; RTRL, which is cheap where units do not see each other."""
    for estimator in OK.usual(cell):
        try:
            estimator.check(cell)
        except InputError:
            continue
        return estimator
    return RTRL()


def read(path: Path) -> Reach:
    """Of a reach.json, as `evergrad lab reach --out` leaves it."""
    try:
        found = json.loads(path.read_text("utf-8"))
        arrays = [np.asarray(found[name], float) for name in ("shares", "errors")]
        lags = np.asarray(found.get("lags", range(1, len(arrays[0]) + 1)), int)
        most = int(found.get("most", found.get("steps", len(lags))))
        sound = arrays[0].ndim == 1 and len(arrays[0]) == len(arrays[1]) == len(lags) > 0
        sound = sound and all(np.isfinite(each).all() for each in arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no reach.json ({error!r}): make one with `evergrad lab reach RUN --out DIR`."
        ) from None
    if not sound:
        raise InputError(f"{path} is damaged: make it again with `evergrad lab reach RUN --out DIR`.")
    return Reach(arrays[0], arrays[1], int(found.get("looked_at", found.get("samples", 0))), most, lags)
