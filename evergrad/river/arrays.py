"""Tables, frames and arrays as columns."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from evergrad._core.checks import InputError, refuse_unless


def row_columns(X: Any) -> dict[Hashable, np.ndarray]:
    """Of a frame or an array [B, d], one row a lane: columns [1, B]."""
    return {name: column[None] for name, column in _columns(X).items()}


def series_columns(X: Any, lanes: int | None) -> dict[Hashable, np.ndarray]:
    """Of a series: a frame or an array [T, d] or [T] of one lane, or [T, B, d] of B lanes: columns [T, B]."""
    array = X if hasattr(X, "columns") else np.asarray(X)
    if not hasattr(array, "columns") and array.ndim == 3:
        return {j: array[:, :, j] for j in range(array.shape[2])}
    refuse_unless(
        lanes in (None, 1),
        f"X has shape {list(np.shape(X))}, one stream, and the model has {lanes} lanes: pass [T, {lanes}, d].",
    )
    return {name: column[:, None] for name, column in _columns(array).items()}


def _columns(X):
    if hasattr(X, "columns"):
        refuse_unless(
            len(set(X.columns)) == len(X.columns), f"X has columns of one name, {list(X.columns)}: rename one of them."
        )
        return {name: X[name].to_numpy() for name in X.columns}
    X = np.asarray(X)
    X = X[:, None] if X.ndim == 1 else X
    refuse_unless(X.ndim == 2, f"X has shape {list(X.shape)}: pass rows of features, [rows, features].")
    return {j: X[:, j] for j in range(X.shape[1])}


def series_shape(X: Any) -> tuple[int, int]:
    """Steps and lanes."""
    return np.shape(X)[:2] if np.ndim(X) == 3 else (len(X), 1)


def labels(y: Any) -> np.ndarray:
    """Labels as an array; those of a list as they are, where NumPy would make strings of numbers beside strings."""
    y = np.asarray(y) if hasattr(y, "dtype") else np.array(y, object)
    check_rows(y)
    return y


def check_rows(y: np.ndarray) -> None:
    if y.ndim == 0:
        raise InputError(f"y is {y.item()!r}, a single value: pass a list or an array, one a row.")


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, and pandas' NA, which has no truth value and is met by name, since pandas need not be there."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return not hasattr(value, "__len__") and bool(value != value)  # an array is something else


def like(X: Any, values: np.ndarray) -> Any:
    """Values a row as a pandas series with the frame's index where X is a frame, else as they are."""
    if not hasattr(X, "columns"):
        return values
    import pandas as pd

    return pd.Series(values, index=X.index)
