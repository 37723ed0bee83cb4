"""Activations in bytes: a token's row in runs of 16, each with a float32 scale, made once for all the rows it meets.

A byte row is n_columns signed bytes q with x ≈ d·q, d = max|x|/127; then, as float32, for each two runs d of the first
four times and d of the second four times; then for each two runs d·Σq of both; then for each run d·Σq. The sums serve
formats whose weights have a minimum or an offset. (Runs of 16, not of 32 as elsewhere, halve the divergence.)
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import records
from ringlet.plugins.backends.cpu.byte_vectors import four, store_bytes, sum_of_ints
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32s, store, store_f32
from ringlet.plugins.backends.cpu.records import HALF_SUMS_BYTES, RUN, SCALES_BYTES, SUM_BYTES
from ringlet.plugins.backends.cpu.simd import absolute, max_lanes, round_to_i32
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.vector_math import larger

HALF = records.RUN // 2
ZERO, LARGEST = np.float32(0), np.float32(127)
SMALLEST = np.float32(1e-30)  # what is smaller counts as 0: its inverse might overflow


byte_row_bytes = kernel(records.byte_row_bytes)


@kernel
def fill_byte_row(x, n_columns, first, last, row):
    """Write the columns RUN·first to RUN·last of the float32 activations at x into a byte row."""
    scales = row + n_columns
    sums = scales + n_columns // RUN * SCALES_BYTES
    half_sums = sums + n_columns // RUN * SUM_BYTES
    for run in range(first, last):
        start, bytes = x + 4 * RUN * run, row + RUN * run
        d_first, sum_first = fill_half(start, bytes)
        d_second, sum_second = fill_half(start + 4 * HALF, bytes + HALF)
        store(scales + SCALES_BYTES * run, four(d_first, d_first, d_first, d_first))
        store(scales + SCALES_BYTES * run + 16, four(d_second, d_second, d_second, d_second))
        store_f32(sums + SUM_BYTES * run, sum_first + sum_second)
        store_f32(half_sums + HALF_SUMS_BYTES * run, sum_first)
        store_f32(half_sums + HALF_SUMS_BYTES * run + 4, sum_second)


@kernel
def fill_half(x, bytes):
    """Write 16 activations as bytes; returns d and d·Σq."""
    largest = absolute(load_f32s(x))
    for i in range(LANES, HALF, LANES):
        largest = larger(largest, absolute(load_f32s(x + 4 * i)))
    most = max_lanes(largest)
    if most < SMALLEST:
        most = ZERO
    d, inverse = most / LARGEST, LARGEST / most if most > ZERO else ZERO
    total = np.int32(0)
    for i in range(0, HALF, LANES):
        q = round_to_i32(load_f32s(x + 4 * i) * inverse)
        store_bytes(bytes + i, q)
        total += sum_of_ints(q)
    return d, d * np.float32(total)
