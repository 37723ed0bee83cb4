"""The largest of many numbers, without sorting them.

The numbers stand in a table by rows; the maxima of its columns are few, and n of them are no larger than the n-th
largest number. So one pass over all finds the maxima, and from then on few numbers are looked at.
"""

from __future__ import annotations

import numpy as np

MOST_ROWS = 64
SHORTEST_ROW = 1024
FEW = 256  # numbers that are sorted at once
PARTITIONED = 1 << 13  # numbers that np.partition is quick enough with


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
    return places_from(values, maxima, border)


def places_from(values: np.ndarray, maxima: np.ndarray, border: float | np.floating) -> np.ndarray:
    """Where the values (n,) from `border` on stand, ascending; −inf nowhere. maxima: their `column_maxima`."""
    columns = (maxima >= border).nonzero()[0]
    if len(columns) > len(maxima) // 2:
        return (values >= border if border > -np.inf else values > border).nonzero()[0]
    table, rest = _table(values, len(maxima))
    found = (table.take(columns, axis=1) >= border).ravel().nonzero()[0]  # much faster than nonzero() of a table
    row, column = np.divmod(found, max(1, len(columns)))
    places = row * len(maxima) + columns[column]
    if len(rest):
        places = np.concatenate([places, table.size + (rest >= border).nonzero()[0]])
    return places


def kth_largest(values: np.ndarray, k: int) -> np.floating:
    """The k-th largest of the values (n,), 1 ≤ k ≤ n."""
    rows = min(MOST_ROWS, len(values) // max(4 * k, SHORTEST_ROW))
    if rows > 1 and len(values) > PARTITIONED:
        table, _ = _table(values, len(values) // rows)
        values = values[values >= kth_largest(np.maximum.reduce(table, axis=0), k)]
    return np.partition(values, len(values) - k)[len(values) - k]


def fewest_reaching(scores: np.ndarray, weights: np.ndarray, needed: float) -> np.ndarray:
    """Where the highest scores (n,) stand, ascending, as few as have weights (n,) that sum to `needed`; one at least.

    Of equal scores the first ones count as the highest.
    """
    count = FEW
    while count < len(scores):
        places = (scores >= kth_largest(scores, count)).nonzero()[0]
        if weights[places].sum() >= needed:
            order = places[(-scores[places]).argsort(kind="stable")]
            break
        count *= 8
    else:
        order = (-scores).argsort(kind="stable")
    sums = weights[order].cumsum(dtype=np.float64)
    fewest = order[: 1 + int(sums[:-1].searchsorted(needed))]
    fewest.sort()
    return fewest


def _table(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The values in rows of `width`, and those that fill no row."""
    rows = len(values) // width
    return values[: rows * width].reshape(rows, width), values[rows * width :]
