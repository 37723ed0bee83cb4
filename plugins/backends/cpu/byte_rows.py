"""Activations in bytes: a token's row in runs of 32, each with a float32 scale, made once for all the rows it meets.

A byte row is n_columns signed bytes q, then for each run four float32: d, d·Σq over the run, and d·Σq over its first
and its second half; x ≈ d·q with d = max|x|/127. The sums serve formats whose weights have a minimum or an offset.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu.byte_vectors import four, store_bytes, sum_of_ints, to_i32
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32s, store
from ringlet.plugins.backends.cpu.simd import absolute, max_lanes, nearest
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.vector_math import larger

RUN = 32  # columns that share a scale
ZERO, LARGEST = np.float32(0), np.float32(127)
SMALLEST = np.float32(1e-30)  # what is smaller counts as 0: its inverse might overflow


@kernel
def byte_row_bytes(n_columns):
    """Bytes that a byte row takes; n_columns is a multiple of RUN."""
    return n_columns + n_columns // 2


@kernel
def fill_byte_row(x, n_columns, first, last, row):
    """Write the runs from first to last of the float32 activations at x into a byte row."""
    scales = row + n_columns
    for run in range(first, last):
        start = x + 4 * RUN * run
        largest = absolute(load_f32s(start))
        for i in range(LANES, RUN, LANES):
            largest = larger(largest, absolute(load_f32s(start + 4 * i)))
        most = max_lanes(largest)
        if most < SMALLEST:
            most = ZERO
        d, inverse = most / LARGEST, LARGEST / most if most > ZERO else ZERO
        first = second = np.int32(0)
        for i in range(0, RUN, LANES):
            q = to_i32(nearest(load_f32s(start + 4 * i) * inverse))
            store_bytes(row + RUN * run + i, q)
            if i < RUN // 2:
                first += sum_of_ints(q)
            else:
                second += sum_of_ints(q)
        store(scales + 16 * run, four(d, d * np.float32(first + second), d * np.float32(first), d * np.float32(second)))
