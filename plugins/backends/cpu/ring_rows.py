"""How a key or a value is stored in a ring, in each of records.RING_KINDS; `ringlet.core.host_memory` says the same."""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import records
from ringlet.plugins.backends.cpu.byte_vectors import store_bytes
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32, load_f32s, store, store_f16, store_f16s, store_f32, store_u8
from ringlet.plugins.backends.cpu.simd import absolute, first_lane, max_lanes, round_to_i32, splat
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.vector_math import larger

F16, Q8 = records.RING_KINDS.index("F16"), records.RING_KINDS.index("Q8")
ZERO, LARGEST = np.float32(0), np.float32(127)
SMALLEST = np.float32(1e-30)  # what is smaller counts as 0: its inverse might overflow


@kernel
def pack_row(kind, values, n_columns, row, scale):
    """Write n_columns float32 values; and at `scale`, for bytes, what one of them stands for."""
    whole = n_columns // LANES * LANES
    if kind == F16:
        for i in range(0, whole, LANES):
            store_f16s(row + 2 * i, load_f32s(values + 4 * i))
        for i in range(whole, n_columns):
            store_f16(row + 2 * i, load_f32(values + 4 * i))
    elif kind == Q8:
        store_f32(scale, pack_bytes(values, n_columns, row))
    else:
        for i in range(0, whole, LANES):
            store(row + 4 * i, load_f32s(values + 4 * i))
        for i in range(whole, n_columns):
            store_f32(row + 4 * i, load_f32(values + 4 * i))


@kernel
def pack_bytes(values, n_columns, row):
    """Write float32 values as signed bytes q ≈ x/d; returns d = max|x|/127."""
    whole, largest, most = n_columns // LANES * LANES, splat(ZERO), ZERO
    for i in range(0, whole, LANES):
        largest = larger(largest, absolute(load_f32s(values + 4 * i)))
    for i in range(whole, n_columns):
        most = max(most, abs(load_f32(values + 4 * i)))
    most = max(most, max_lanes(largest))
    if most < SMALLEST:
        most = ZERO
    inverse = LARGEST / most if most > ZERO else ZERO
    for i in range(0, whole, LANES):
        store_bytes(row + i, round_to_i32(load_f32s(values + 4 * i) * inverse))
    for i in range(whole, n_columns):
        store_u8(row + i, first_lane(round_to_i32(splat(load_f32(values + 4 * i) * inverse))))
    return most / LARGEST
