"""Columns of numbers from a CSV or Parquet file, read with errors that name the file, the line and the column."""

import csv
import dataclasses
import gzip
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import numpy as np
from jaxtyping import Float

from evergrad.checks import InputError, refuse_unless
from evergrad.names import refuse_unknown
from evergrad.tasks.reading import read_file

_TIME_NAMES = ("time", "date", "datetime", "timestamp")
_MISSING = ("", "na", "nan", "null", "none", "?")


@dataclass(frozen=True)
class Table:
    """Cells as they were read: text (CSV) or values (Parquet), None where missing. `where` names a row's place."""

    path: Path
    names: tuple[str, ...]
    columns: tuple[Sequence, ...]
    where: Callable[[int], str]
    parse: Callable[[object], float]
    fixed: bool = False  # a run has chosen the columns before, so that it is of no use to advise others


@dataclass(frozen=True)
class Columns:
    """Rows of numbers, NaN where a cell is missing."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "rows columns"]


def read_columns(
    path: Path, names: Sequence[str] | None, time: str | None, *, missing: bool, fixed: bool = False
) -> Columns:
    """The named columns, or all but the time stamps; `missing` says whether cells may be, and `fixed` whether the
    columns can be chosen no more."""
    table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    table = dataclasses.replace(table, fixed=fixed)
    time = _check_time(table, time)
    for name in names or ():
        refuse_unknown("column", name, table.names, f"{path} has")
        refuse_unless(names.count(name) == 1, f"--columns has {name} twice: name each column once.")
    chosen = tuple(names) if names else tuple(name for name in table.names if name != time)
    refuse_unless(len(chosen) > 0, f"{path} has no column of numbers beside the time stamps.")
    values = np.stack([_numbers(table, name, missing) for name in chosen], axis=1)
    _check_constant(table, chosen, values)
    return Columns(chosen, values)


def _read_csv(path: Path) -> Table:
    content = _decode(path, _unpacked(path, read_file(path)))
    first = content.split("\n", 1)[0]
    delimiter = max((",", ";", "\t"), key=first.count)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    rows, lines = [], []
    try:
        for row in reader:
            if row:
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}. Is a quotation mark never closed?") from None
    refuse_unless(len(rows) > 0, f"{path} is empty: give a file with a row of names and rows of numbers.")
    parse = float if delimiter == "," else lambda cell: float(cell.replace(",", "."))
    names, skip = _header(path, rows[0], parse)
    rows, lines = rows[skip:], lines[skip:]
    refuse_unless(len(rows) > 0, f"{path} has names and no rows: there is nothing to forecast.")
    for row, line in zip(rows, lines, strict=True):
        refuse_unless(
            len(row) == len(names), f"{path}, line {line} has {len(row)} cells, but there are {len(names)} columns."
        )
    columns = tuple([None if c.lower() in _MISSING else c for c in column] for column in zip(*rows, strict=True))
    return Table(path, names, columns, lambda row: f"{path}, line {lines[row]}", parse)


def _unpacked(path, raw):
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no whole gzip file ({error}): make it again, or give the file unpacked.") from None


def _decode(path, raw):
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line} is not UTF-8 text: give a CSV or a .parquet file.") from None


def _header(path, row, parse):
    """Names, and how many rows they take: none if the first row has only numbers, which are then called 1, 2, …"""
    if all(_is_number(cell, parse) for cell in row):
        return tuple(str(i + 1) for i in range(len(row))), 0
    refuse_unless(len(set(row)) == len(row), f"{path}, line 1 has the same column name twice: rename one.")
    return tuple(row), 1


def _is_number(cell, parse):
    try:
        parse(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow: install `evergrad[parquet]`, or write the file as CSV."
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(read_file(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is no whole Parquet file ({error}): write it again, or give a CSV.") from None
    refuse_unless(table.num_rows > 0, f"{path} has no rows: there is nothing to forecast.")
    columns = tuple(column.to_pylist() for column in table.columns)
    return Table(path, tuple(table.column_names), columns, lambda row: f"{path}, row {row + 1}", float)


def _numbers(table: Table, name: str, missing: bool) -> Float[np.ndarray, " rows"]:
    cells = table.columns[table.names.index(name)]
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is not None:
            numbers[row] = _number(table, name, row, cell)
    absent = np.flatnonzero(np.isnan(numbers))
    if len(absent) and not missing:
        advice = "" if table.fixed else ", or use --missing skip: a step whose target is missing then teaches nothing"
        raise InputError(
            f"{table.where(absent[0])}, column {name}: the cell is missing (one of {len(absent)}). Fill it{advice}."
        )
    return numbers


def _number(table, name, row, cell):
    try:
        number = table.parse(cell)
    except (ValueError, TypeError):
        advice = "" if table.fixed else f", or choose other columns with --columns ({', '.join(table.names)})"
        raise InputError(f"{table.where(row)}, column {name}: {cell!r} is not a number. Mend it{advice}.") from None
    if np.isinf(number):
        raise InputError(f"{table.where(row)}, column {name}: {cell!r} is infinite: mend it or leave the cell empty.")
    return number


def _check_time(table: Table, time: str | None) -> str | None:
    """The name of the column of time stamps, if there is one; they must rise from row to row."""
    if time is None:
        time = next((name for name in table.names if name.lower() in _TIME_NAMES), None)
        if time is None:
            return None
    refuse_unknown("column", time, table.names, f"{table.path} has")
    cells = table.columns[table.names.index(time)]
    stamps = [_stamp(table, time, row, cell) for row, cell in enumerate(cells)]
    for row in range(1, len(stamps)):
        before, now = stamps[row - 1 : row + 1]
        refuse_unless(
            _comparable(before, now),
            f"{table.where(row)}, column {time}: the time stamp {cells[row]!s} cannot be compared with {cells[row - 1]!s} before "
            "it: use numbers or dates throughout, all with a time zone or all without.",
        )
        what = "the same as" if now == before else "earlier than"
        refuse_unless(
            now > before,
            f"{table.where(row)}, column {time}: the time stamp {cells[row]!s} is {what} the one before. Sort the rows "
            "by time and keep one for each.",
        )
    return time


def _comparable(before, now):
    if isinstance(before, datetime) and isinstance(now, datetime):
        return (before.tzinfo is None) == (now.tzinfo is None)
    return not isinstance(before, datetime) and not isinstance(now, datetime)


def _stamp(table, time, row, cell):
    if isinstance(cell, datetime | int | float):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    try:
        return table.parse(cell)
    except (ValueError, TypeError):
        pass
    try:
        return datetime.fromisoformat(cell)
    except (ValueError, TypeError):
        raise InputError(
            f"{table.where(row)}, column {time}: {cell!r} is no time stamp: use ISO 8601 (2024-01-31 12:00) or numbers."
        ) from None


def _check_constant(table, names, values):
    path, advice = table.path, "give data where it changes" if table.fixed else "leave it out with --columns"
    refuse_unless(len(values) > 1, f"{path} has one row: there is nothing to forecast.")
    for name, column in zip(names, values.T, strict=True):
        known = column[~np.isnan(column)]
        refuse_unless(len(known) > 0, f"{path}, column {name} has no numbers at all: {advice}.")
        refuse_unless(
            bool(np.any(known != known[0])),
            f"{path}, column {name} is {known[0]:g} in every row, so there is nothing to forecast or to learn from: "
            f"{advice}.",
        )
