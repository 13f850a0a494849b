"""Columns of numbers from a CSV or Parquet file, read with errors that name the file, the line and the column."""

import csv
import dataclasses
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._core.printable import brief, first_line, printable
from evergrad._tasks.reading import read_file

_TIME_NAMES = ("time", "date", "datetime", "timestamp")
_MISSING = ("", "na", "nan", "null", "none", "?")


@dataclass(frozen=True)
class Table:
    """Cells as they were read: text (CSV) or values (Parquet), None where missing. `where` names a row's place."""

    path: Path
    names: tuple[str, ...]
    cells: Callable[[str], Sequence]  # of a column
    where: Callable[[int], str]
    parse: Callable[[Any], float]
    fixed: bool = False  # a run has chosen the columns before, so that it is of no use to advise others

    def place(self, row: int, name: str) -> str:
        return f"{self.where(row)}, column {printable(name)}"


@dataclass(frozen=True)
class Columns:
    """Rows of numbers, NaN where a cell is missing, and the hash of the file that they are from."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "rows columns"]
    digest: str


def read_columns(
    path: Path,
    names: Sequence[str] | None,
    time: str | None,
    *,
    missing: bool,
    header: bool | None = None,
    fixed: bool = False,
) -> Columns:
    """The named columns, or all but the time stamps; `missing` says whether cells may be, `header` whether the first
    row of a CSV has names (None: if it has anything but numbers), and `fixed` whether the columns can be chosen no more.

    The file is read once, so that it may be a pipe.
    """
    raw = read_file(path, pipe=True)
    table = _read_parquet(path, raw, header) if path.suffix == ".parquet" else _read_csv(path, raw, header)
    table = dataclasses.replace(table, fixed=fixed)
    time = _check_time(table, time)
    wanted = list(names or ())
    for name in wanted:
        refuse_unknown("column", name, table.names, f"{path} has")
        refuse_unless(wanted.count(name) == 1, f"--columns has {printable(name)} twice: name each column once.")
    chosen = tuple(names) if names else tuple(name for name in table.names if name != time)
    refuse_unless(len(chosen) > 0, f"{path} has no column of numbers beside the time stamps.")
    values = np.stack([_numbers(table, name, missing) for name in chosen], axis=1)
    _check_constant(table, chosen, values)
    return Columns(chosen, values, hashlib.sha256(raw).hexdigest())


def _read_csv(path: Path, raw: bytes, header: bool | None) -> Table:
    content = _decode(path, _unpacked(path, raw))
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
    names, skip = _header(path, rows[0], parse, header)
    rows, lines = rows[skip:], lines[skip:]
    refuse_unless(len(rows) > 0, f"{path} has names and no rows: there is nothing to forecast.")
    for row, line in zip(rows, lines, strict=True):
        refuse_unless(
            len(row) == len(names), f"{path}, line {line} has {len(row)} cells, but there are {len(names)} columns."
        )
    columns = ([None if c.lower() in _MISSING else c for c in column] for column in zip(*rows, strict=True))
    by_name = dict(zip(names, columns, strict=True))
    return Table(path, names, by_name.__getitem__, lambda row: f"{path}, line {lines[row]}", parse)


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


def _header(path, row, parse, header):
    """Names, and how many rows they take: none if the first row is of numbers, and columns are then called 1, 2, …"""
    if header is False or (header is None and all(_is_number(cell, parse) for cell in row)):
        return tuple(str(i + 1) for i in range(len(row))), 0
    refuse_unless(len(set(row)) == len(row), f"{path}, line 1 has the same column name twice: rename one.")
    return tuple(row), 1


def _is_number(cell, parse):
    try:
        parse(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, raw: bytes, header: bool | None) -> Table:
    refuse_unless(header is not False, f"--no-header: {path} is a Parquet file, whose columns always have names.")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow: install `evergrad[parquet]`, or write the file as CSV."
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(raw))
        names = tuple(table.column_names)
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        why = first_line(error)
        raise InputError(f"{path} is no whole Parquet file ({why}): write it again, or give a CSV.") from None
    refuse_unless(table.num_rows > 0, f"{path} has no rows: there is nothing to forecast.")
    refuse_unless(len(set(names)) == len(names), f"{path} has the same column name twice: rename one.")

    def cells(name):
        try:
            return table[name].to_pylist()
        except (pyarrow.ArrowException, ValueError, OverflowError) as error:
            why = f"has values that Python cannot hold ({first_line(error)}), as dates after the year 9999"
            raise InputError(f"{path}, column {printable(name)} {why}: mend them.") from None

    return Table(path, names, cells, lambda row: f"{path}, row {row + 1}", float)


def _numbers(table: Table, name: str, missing: bool) -> Float[np.ndarray, " rows"]:
    cells = table.cells(name)
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is not None:
            numbers[row] = _number(table, name, row, cell)
    absent = np.flatnonzero(np.isnan(numbers))
    if len(absent) and not missing:
        advice = "" if table.fixed else ", or use --missing skip: a step whose target is missing then teaches nothing"
        raise InputError(
            f"{table.place(absent[0], name)}: the cell is missing (one of {len(absent)}). Fill it{advice}."
        )
    return numbers


def _number(table, name, row, cell):
    try:
        number = table.parse(cell)
    except (ValueError, TypeError, OverflowError):
        names = printable(", ".join(table.names))
        advice = "" if table.fixed else f", or choose other columns with --columns ({names})"
        raise InputError(f"{table.place(row, name)}: {brief(cell)} is not a number. Mend it{advice}.") from None
    if np.isinf(number):
        raise InputError(f"{table.place(row, name)}: {brief(cell)} is infinite: mend it or leave the cell empty.")
    return number


def _check_time(table: Table, time: str | None) -> str | None:
    """The name of the column of time stamps, if there is one; they must rise from row to row."""
    if time is None:
        time = next((name for name in table.names if name.lower() in _TIME_NAMES), None)
        if time is None:
            return None
    refuse_unknown("column", time, table.names, f"{table.path} has")
    cells = table.cells(time)
    stamps = [_stamp(table, time, row, cell) for row, cell in enumerate(cells)]
    for row in range(1, len(stamps)):
        before: Any
        before, now = stamps[row - 1 : row + 1]
        refuse_unless(
            _comparable(before, now),
            f"{table.place(row, time)}: the time stamp {_shown(cells[row])} cannot be compared with {_shown(cells[row - 1])} before "
            "it: use numbers or dates throughout, all with a time zone or all without.",
        )
        what = "the same as" if now == before else "earlier than"
        refuse_unless(
            now > before,
            f"{table.place(row, time)}: the time stamp {_shown(cells[row])} is {what} the one before. Sort the rows "
            "by time and keep one for each.",
        )
    return time


def _shown(cell):
    return printable(str(cell)[:100])


def _comparable(before, now):
    if isinstance(before, datetime) and isinstance(now, datetime):
        return (before.tzinfo is None) == (now.tzinfo is None)
    return not isinstance(before, datetime) and not isinstance(now, datetime)


def _stamp(table, time, row, cell):
    refuse_unless(cell is not None, f"{table.place(row, time)}: the time stamp is missing: fill it in.")
    if isinstance(cell, datetime | int | float):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    try:
        return table.parse(cell)
    except (ValueError, TypeError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(cell)
    except (ValueError, TypeError):
        raise InputError(
            f"{table.place(row, time)}: {brief(cell)} is no time stamp: use ISO 8601 (2024-01-31 12:00) or numbers."
        ) from None


def _check_constant(table, names, values):
    path, advice = table.path, "give data where it changes" if table.fixed else "leave it out with --columns"
    refuse_unless(len(values) > 1, f"{path} has one row: there is nothing to forecast.")
    for name, column in zip(names, values.T, strict=True):
        known = column[~np.isnan(column)]
        refuse_unless(len(known) > 0, f"{path}, column {printable(name)} has no numbers at all: {advice}.")
        refuse_unless(
            bool(np.any(known != known[0])),
            f"{path}, column {printable(name)} is {known[0]:g} in every row, so there is nothing to forecast or to learn from: "
            f"{advice}.",
        )
