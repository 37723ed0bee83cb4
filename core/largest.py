"""The largest of many numbers, without sorting them.

The numbers stand in a table by rows; the maxima of its columns are few, and n of them are no larger than the n-th
largest number. So one pass over all finds the maxima, and from then on few numbers are looked at.
"""

from __future__ import annotations

import numpy as np

MOST_ROWS = 64
SHORTEST_ROW = 1024


def column_maxima(values: np.ndarray) -> np.ndarray:
    """The maxima of the columns, (width,), of values (n,) in rows of `width`; what is left over joins the first ones.

    NaN where any value of a column is.
    """
    rows = min(MOST_ROWS, max(1, len(values) // SHORTEST_ROW))
    width = len(values) // rows
    maxima = values[: rows * width].reshape(rows, width).max(axis=0)
    rest = values[rows * width :]
    np.maximum(maxima[: len(rest)], rest, out=maxima[: len(rest)])
    return maxima


def places_of_largest(values: np.ndarray, maxima: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest of the values (n,) stand, and all that are equal to the smallest of them; −inf nowhere.

    Ascending, and perhaps some more. maxima: their `column_maxima`.
    """
    width = len(maxima)
    if count > width // 2:
        return np.flatnonzero(values >= kth_largest(values, count) if count < len(values) else values > -np.inf)
    border = kth_largest(maxima, count)
    if border == -np.inf:
        return np.flatnonzero(values > -np.inf)
    columns = np.flatnonzero(maxima >= border)
    end = len(values) // width * width
    table = values[:end].reshape(-1, width).take(columns, axis=1)
    row, column = np.divmod(np.flatnonzero(table >= border), len(columns))
    places = row * width + columns[column]
    rest = np.flatnonzero(values[end:] >= border)
    return np.concatenate([places, end + rest]) if len(rest) else places


def kth_largest(values: np.ndarray, k: int) -> np.floating:
    """The k-th largest of the values (n,), 1 ≤ k ≤ n."""
    rows = min(MOST_ROWS, len(values) // (4 * k))
    if rows > 1:
        width = len(values) // rows
        maxima = values[: rows * width].reshape(rows, width).max(axis=0)
        values = values[values >= kth_largest(maxima, k)]
    return np.partition(values, len(values) - k)[len(values) - k]
