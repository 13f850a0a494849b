"""CSV and Parquet files, good and bad."""

import datetime
import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import evergrad as eg
from evergrad._tasks.table import read_columns


def write(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, names=None, time=None, missing=False):
    return read_columns(path, names, time, missing=missing)


def test_a_csv_with_names_and_time_stamps(tmp_path):
    found = read(write(tmp_path, "date,a,b\n2024-01-01 00:00,1,2\n2024-01-01 01:00,3,5\n"))
    assert found.names == ("a", "b")
    assert found.values.tolist() == [[1, 2], [3, 5]]


def test_semicolons_decimal_commas_and_quotes(tmp_path):
    path = write(tmp_path, '"Timestamp";"x"\n0;-490,7\n117;4,5\n')
    assert read(path).values.tolist() == [[-490.7], [4.5]]


def test_a_compressed_file_without_names(tmp_path):
    path = write(tmp_path, gzip.compress(b"1,2\n3,4\n5,7\n"), "rates.txt.gz")
    found = read(path, names=["2"])
    assert found.names == ("2",)
    assert found.values.tolist() == [[2], [4], [7]]


def test_parquet_is_the_same_as_csv(tmp_path):
    table = pyarrow.table({"time": [1, 2, 3], "a": [1.5, None, 2.5], "b": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "data.parquet")
    found = read(tmp_path / "data.parquet", missing=True)
    expected = read(write(tmp_path, "time,a,b\n1,1.5,1\n2,,2\n3,2.5,3\n"), missing=True)
    assert found.names == expected.names
    np.testing.assert_array_equal(found.values, expected.values)


BAD = {
    "empty": ("", "data.csv is empty"),
    "only names": ("a,b\n", "names and no rows"),
    "ragged": ("a,b\n1,2\n3\n", "line 3 has 1 cells, but there are 2 columns"),
    "missing": ("a,b\n1,2\n3,\n5,6\n", r"line 3, column b: the cell is missing.*--missing skip"),
    "missing by name": ("a\n1\nNA\n2\n", "line 3, column a: the cell is missing"),
    "constant": ("a,b\n1,2\n1,3\n", "column a is 1 in every row"),
    "text": ("a,b\n1,2\n1,up\n", "line 3, column b: 'up' is not a number"),
    "infinite": ("a\n1\ninf\n", "line 3, column a: 'inf' is infinite"),
    "unsorted": ("time,a\n1,2\n3,4\n2,5\n", "line 4, column time: the time stamp 2 is earlier than"),
    "duplicate": ("date,a\n2024-01-01,2\n2024-01-01,4\n", "line 3, column date: the time stamp 2024-01-01 is the same"),
    "no time": ("date,a\n2024-01-01,2\nyesterday,4\n", "line 3, column date: 'yesterday' is no time stamp"),
    "missing time": ("date;a\n2024-01-01;2\n;4\n", "line 3, column date: the time stamp is missing"),
    "same name": ("a,a\n1,2\n", "same column name twice"),
    "binary": (b"\xff\xfe\x00a\n", "line 1 is not UTF-8"),
    "only time": ("time\n1\n2\n", "no column of numbers"),
    "open quotation mark": ('a\n1\n"' + "2\n" * 70_000, "never closed"),
    "times of two kinds": (
        "time,a\n2024-01-01,2\n3,4\n",
        "line 3, column time: the time stamp 3 cannot be compared with",
    ),
    "times of two zones": ("time,a\n2024-01-01,2\n2024-01-02T00:00+00:00,4\n", "all with a time zone or all without"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_file_and_line(tmp_path, case):
    content, message = BAD[case]
    with pytest.raises(eg.InputError, match=message) as refused:
        read(write(tmp_path, content))
    assert "data.csv" in str(refused.value)


def test_unknown_columns_are_refused_with_the_nearest(tmp_path):
    path = write(tmp_path, "time,load,price\n1,2,3\n2,3,4\n")
    with pytest.raises(eg.InputError, match='Did you mean "load"'):
        read(path, names=["laod"])
    with pytest.raises(eg.InputError, match='Did you mean "time"'):
        read(path, time="tim")


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n2,3\n")[:-9]], ids=["plain", "cut short"])
def test_a_file_that_is_no_whole_gzip_is_refused(tmp_path, content):
    with pytest.raises(eg.InputError, match=r"data\.csv\.gz is no whole gzip file"):
        read(write(tmp_path, content, "data.csv.gz"))


def test_a_column_is_named_once(tmp_path):
    with pytest.raises(eg.InputError, match="--columns has a twice"):
        read(write(tmp_path, "a,b\n1,2\n3,4\n"), names=["a", "b", "a"])


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    path = write(tmp_path, "a,b\n", "data.parquet")
    with pytest.raises(eg.InputError, match="no whole Parquet file"):
        read(path)
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0, 3.0]}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(32) + whole[36:])  # damage among the numbers
    with pytest.raises(eg.InputError, match="no whole Parquet file"):
        read(path)


def test_days_are_time_stamps(tmp_path):
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    parquet.write_table(pyarrow.table({"date": days, "a": [1.0, 2.0, 3.0]}), tmp_path / "data.parquet")
    assert read(tmp_path / "data.parquet").names == ("a",)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(eg.InputError, match="cannot be read"):
        read(tmp_path / "nowhere.csv")


def test_a_header_of_numbers_is_one_if_it_is_said_to_be(tmp_path):
    path = write(tmp_path, "2020,2021\n1,2\n3,5\n")
    assert read(path).values.tolist() == [[2020, 2021], [1, 2], [3, 5]]
    named = read_columns(path, ["2021"], None, missing=False, header=True)
    assert (named.names, named.values.tolist()) == (("2021",), [[2], [5]])
    path = write(tmp_path, "a,b\n1,2\n3,5\n")
    with pytest.raises(eg.InputError, match="line 1, column 1: 'a' is not a number"):
        read_columns(path, None, None, missing=False, header=False)
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0]}), tmp_path / "data.parquet")
    with pytest.raises(eg.InputError, match=r"--no-header: .* always have names"):
        read_columns(tmp_path / "data.parquet", None, None, missing=False, header=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pyarrow.date32(), 2_932_897), (pyarrow.timestamp("s"), 253_402_300_800), (pyarrow.date64(), 2**62)],
)
def test_dates_that_python_cannot_hold_are_refused(tmp_path, kind, value):
    """The year 10,000 begins 2,932,897 days after 1970."""
    days = pyarrow.array([0, value], pyarrow.int32() if kind == pyarrow.date32() else pyarrow.int64()).cast(kind)
    parquet.write_table(pyarrow.table({"date": days, "a": [1.0, 2.0]}), tmp_path / "data.parquet")
    with pytest.raises(eg.InputError, match="column date has values that Python cannot hold"):
        read(tmp_path / "data.parquet")


def test_parquet_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0])], names=["a", "a"])
    parquet.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(eg.InputError, match=r"data\.parquet"):
        read(tmp_path / "data.parquet")


def test_a_pipe_is_read_once(tmp_path):
    content = b"a\n1\n2\n4\n"
    out, into = os.pipe()
    os.write(into, content)
    os.close(into)
    found = read(Path(f"/dev/fd/{out}"))
    os.close(out)
    assert found.values.tolist() == [[1], [2], [4]]
    assert found.digest == hashlib.sha256(content).hexdigest()


def test_nobody_waits_for_a_pipe_that_nobody_writes_to(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(eg.InputError, match=r"pipe\.csv is empty"):
        read(tmp_path / "pipe.csv")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_devices_are_refused_unread(device):
    with pytest.raises(eg.InputError, match=f"{device} is a device and no file"):
        read(Path(device))
