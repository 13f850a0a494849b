"""From named features to slots of a vector: features and categories get the next free slot when they first appear."""

import datetime as dt
import decimal
import math
import numbers
from collections.abc import Hashable, Mapping
from typing import Any, cast

import numpy as np

from evergrad._core.checks import InputError, refuse_unless
from evergrad.river import arrays
from evergrad.river.scaler import LARGEST

CATEGORIES = 16  # of one feature with a slot of their own; later ones share one more
NUMBER, CATEGORY = "number", "category"


class Slots:
    """Which feature is where. Never changed once a learner has it, but replaced.

    A number takes one slot, and its first value becomes that slot's origin, subtracted in float64 before anything is
    rounded to float32; a date is a number of seconds. A string takes one slot per category, 1 in its own and 0 in the
    others. None, NaN and an absent feature are NaN: missing.
    """

    def __init__(self) -> None:
        self.kinds: dict[Hashable, str] = {}
        self.places: dict[Hashable, int] = {}  # of numbers
        self.categories: dict[Hashable, dict[str, int]] = {}  # places of the categories of a feature
        self.origins: list[float] = []

    def __len__(self) -> int:
        return len(self.origins)

    def check(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float | str]:
        """The features that are not missing, as floats and strings. Refuses what cannot be used; changes nothing."""
        found = {}
        for name, value in x.items():
            value = self._plain(name, value)
            if value is not None:
                found[name] = value
        return found

    def with_room(self, found: Mapping[Hashable, float | str]) -> "Slots":
        """These, or if something appears for the first time others with room for it.

        A number that is NaN gets its origin with its first value.
        """
        if not any(self._is_new(name, value) for name, value in found.items()):
            return self
        new = self._copy()
        new._add(found)
        return new

    def _is_new(self, name, value):
        if name not in self.kinds:
            return True
        if isinstance(value, str):
            known = self.categories[name]
            return value not in known and len(known) <= CATEGORIES
        origin = self.origins[self.places[name]]
        return origin != origin and value == value

    def _copy(self):
        new = Slots()
        new.kinds, new.places, new.origins = dict(self.kinds), dict(self.places), list(self.origins)
        new.categories = {name: dict(known) for name, known in self.categories.items()}
        return new

    def _add(self, found: Mapping[Hashable, float | str]) -> None:
        for name in sorted((name for name in found if name not in self.kinds), key=repr):
            if isinstance(found[name], str):
                self.kinds[name], self.categories[name] = CATEGORY, {}
            else:
                self.kinds[name], self.places[name] = NUMBER, self._next(math.nan)
        for name, value in found.items():
            if isinstance(value, str):
                known = self.categories[name]
                if value not in known and len(known) <= CATEGORIES:
                    known[value] = self._next(0.0)
            elif (origin := self.origins[self.places[name]]) != origin:
                self.origins[self.places[name]] = value

    def write(self, found: Mapping[Hashable, float | str], row: np.ndarray, *, absolute: bool = False) -> None:
        """The values into a row of NaN, float64; numbers from their origins, unless they are to be `absolute`."""
        for name, value in found.items():
            if isinstance(value, str):
                places = list(self.categories[name].values())
                row[places] = 0.0
                row[self._places_of(name, value)] = 1.0
            else:
                place = self.places[name]
                row[place] = value if absolute else value - self.origins[place]

    def check_columns(self, columns: Mapping[Hashable, np.ndarray]) -> dict[Hashable, np.ndarray]:
        """Columns [T, B] of floats, or of strings and None. Refuses what cannot be used; changes nothing."""
        return {name: self._check_column(name, np.asarray(column)) for name, column in columns.items()}

    def with_room_for_columns(self, columns: Mapping[Hashable, np.ndarray]) -> "Slots":
        new = self._copy()
        new._add_columns(columns)
        return new

    def _add_columns(self, columns):
        for name in sorted(columns, key=repr):  # as `_add` does
            column = columns[name]
            if column.dtype == object:
                for value in dict.fromkeys(v for v in column.ravel().tolist() if v is not None):
                    self._add({name: value})
            else:
                present = column[~np.isnan(column)]
                if present.size:
                    self._add({name: float(present[0])})

    def write_columns(
        self, columns: Mapping[Hashable, np.ndarray], rows: np.ndarray, *, absolute: bool = False
    ) -> None:
        """The values into rows [T, B, d] of NaN, float64, as `write` does."""
        for name, column in columns.items():
            if column.dtype == object:
                present = column != None  # noqa: E711 (entry by entry)
                for place in self.categories.get(name, {}).values():
                    rows[present, place] = 0.0
                for value in dict.fromkeys(column[present].tolist()):
                    for place in self._places_of(name, value):
                        rows[column == value, place] = 1.0
            elif name in self.places:
                place = self.places[name]
                rows[..., place] = column if absolute else column - self.origins[place]

    def _check_column(self, name, column):
        if column.dtype.kind == "M":
            column = _seconds_of(column)
        if column.dtype.kind == "m":
            column = column / np.timedelta64(1, "us") / 1e6
        if column.dtype.kind in "fiub":
            column = column.astype(np.float64)
            kind, extreme = self.kinds.get(name, NUMBER), np.abs(column) > LARGEST
            if kind == NUMBER and not extreme.any():
                return column
            self._plain(name, float(column[extreme][0] if extreme.any() else column.flat[0]))
        plain: Any = np.empty(column.shape, object)
        plain.flat = [self._plain(name, value) for value in column.ravel().tolist()]
        kinds = {type(value) for value in plain.ravel().tolist() if value is not None}
        refuse_unless(
            len(kinds) < 2, f"feature {name!r} has numbers and strings in one column: make it one or the other."
        )
        return plain if str in kinds else np.array(plain, np.float64)

    def _places_of(self, feature, value):
        """Of a category: its own, or the one for all later ones; none for one that there still is room for."""
        known = self.categories[feature]
        if value in known:
            return [known[value]]
        return [list(known.values())[-1]] if len(known) > CATEGORIES else []

    def _next(self, origin: float) -> int:
        self.origins.append(origin)
        return len(self.origins) - 1

    def _plain(self, name, value):
        if type(value) is not float:
            value = self._unusual(name, value)
        if value is None or value != value:
            return None
        if self.kinds.get(name, NUMBER if isinstance(value, float) else CATEGORY) != (
            NUMBER if isinstance(value, float) else CATEGORY
        ):
            was, now = ("a number", "a string") if isinstance(value, str) else ("a string (a category)", "a number")
            raise InputError(
                f"feature {name!r} is {value!r}, {now}, and was {was} before: convert it, or give it another name."
            )
        if isinstance(value, float) and abs(value) > LARGEST:
            raise InputError(
                f"feature {name!r} is {value}: an infinite value has no place on a scale, nor has one beyond "
                f"{LARGEST:g}. Clip it, take a larger unit, or pass None or NaN for a missing value."
            )
        return value

    def _unusual(self, name, value):
        if isinstance(value, str):
            return value
        if arrays.is_missing(value):
            return None
        if isinstance(value, dt.date):
            return _seconds(value)
        if isinstance(value, dt.timedelta):
            return value.total_seconds()
        if isinstance(value, np.timedelta64):
            return float(value / np.timedelta64(1, "us")) / 1e6
        if isinstance(value, decimal.Decimal):
            return float(value)
        if isinstance(value, np.datetime64):
            return float(_seconds_of(value))
        if not isinstance(value, numbers.Real | np.bool_):
            raise InputError(
                f"feature {name!r} is {value!r}, a {type(value).__name__}: features are numbers, strings (categories) "
                "or None, dates or durations. Turn it into one of these."
            )
        if abs(cast(Any, value)) > LARGEST:  # float may not hold it
            return math.inf if cast(Any, value) > 0 else -math.inf
        return float(value)


def _seconds(date: dt.date) -> float:
    """Since 1970: of a date with a time zone the instant, of one without what its clock shows."""
    if not isinstance(date, dt.datetime):
        return (date - dt.date(1970, 1, 1)).total_seconds()
    return date.timestamp() if date.tzinfo else (date - dt.datetime(1970, 1, 1)).total_seconds()


def _seconds_of(dates: np.ndarray | np.datetime64) -> np.ndarray:
    """The same of NumPy's dates, in whatever unit they are; NaN where there is none."""
    return np.where(np.isnat(dates), np.nan, dates.astype("datetime64[us]").astype(np.int64) / 1e6)
