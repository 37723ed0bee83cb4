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
    table, rest = _table(values, len(values) // rows)
    maxima = np.maximum.reduce(table, axis=0)
    if len(rest):
        np.maximum(maxima[: len(rest)], rest, out=maxima[: len(rest)])
    return maxima


def places_of_largest(values: np.ndarray, maxima: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest of the values (n,) stand, and all that are equal to the smallest of them; −inf nowhere.

    Ascending, and perhaps some more. maxima: their `column_maxima`.
    """
    border = kth_largest(maxima, count) if count <= len(maxima) // 2 else -np.inf
    if border == -np.inf:
        border = kth_largest(values, min(count, len(values)))
        return (values >= border if border > -np.inf else values > border).nonzero()[0]
    table, rest = _table(values, len(maxima))
    columns = (maxima >= border).nonzero()[0]
    found = (table.take(columns, axis=1) >= border).ravel().nonzero()[0]  # much faster than nonzero() of a table
    row, column = np.divmod(found, len(columns))
    places = row * len(maxima) + columns[column]
    if len(rest):
        places = np.concatenate([places, table.size + (rest >= border).nonzero()[0]])
    return places


def kth_largest(values: np.ndarray, k: int) -> np.floating:
    """The k-th largest of the values (n,), 1 ≤ k ≤ n."""
    rows = min(MOST_ROWS, len(values) // max(4 * k, SHORTEST_ROW))
    if rows > 1:
        table, _ = _table(values, len(values) // rows)
        values = values[values >= kth_largest(np.maximum.reduce(table, axis=0), k)]
    return np.partition(values, len(values) - k)[len(values) - k]


def _table(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The values in rows of `width`, and those that fill no row."""
    rows = len(values) // width
    return values[: rows * width].reshape(rows, width), values[rows * width :]
