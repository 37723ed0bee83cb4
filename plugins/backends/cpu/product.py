"""Products of rows with activations: weights with tokens, keys with queries.

Each output is the sum of one vector of partial sums, over the columns in order, whatever rows and tokens are computed
beside it: the same bits in any batch and on any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32s, prefetch, store, store_f32
from ringlet.plugins.backends.cpu.records import PADDING
from ringlet.plugins.backends.cpu.simd import first_lane, fma, second_lane, splat, sums_of_four, third_lane
from ringlet.plugins.backends.cpu.target import LANES

CACHE_LINE = 64  # bytes
AHEAD = 4096  # bytes that rows are asked for before they are needed
ROWS = 4  # unpacked together; with TOKENS, what 16 vector registers hold
TOKENS = 3
ZERO = np.float32(0)


def multiplier(unpack: Any, load: Any = None, number_bytes: int = 0) -> Any:
    """The kernel that multiplies rows which `unpack` brings to float32; see `byte_product.multiplier`.

    x: float32 activations, each token's padded. memory: for ROWS unpacked rows. load, number_bytes: of rows of numbers
    that a vector can be loaded from, so that one token meets them where they lie; the sums are the same.
    """
    can_load, meet_rows = load is not None, _meet_rows(load or load_f32s, number_bytes)

    @kernel
    def multiply(address, row_bytes, n_columns, start, stop, x, n_tokens, memory, out, out_bytes):
        columns, met = -(-n_columns // PADDING) * PADDING, start
        if can_load and n_tokens == 1 and n_columns % LANES == 0:
            met = meet_rows(address, row_bytes, n_columns, start, stop, x, out)
        for first in range(met, stop, ROWS):
            n_rows = min(ROWS, stop - first)
            for r in range(n_rows):
                unpack(address + (first + r) * row_bytes, n_columns, memory + 4 * columns * r)
            multiply_unpacked(memory, n_rows, columns, x, 4 * columns, n_tokens, out + 4 * first, out_bytes)

    return multiply


def _meet_rows(load: Any, number_bytes: int) -> Any:
    """The kernel by which one token meets whole groups of ROWS rows; returns the first row that is left."""
    line = CACHE_LINE // number_bytes if number_bytes else 1  # numbers

    @kernel
    def meet_rows(address, row_bytes, n_columns, start, stop, x, out):
        left = start
        while left + ROWS <= stop:
            row = address + left * row_bytes
            a0 = a1 = a2 = a3 = splat(ZERO)
            for i in range(0, n_columns, LANES):
                a, at = load_f32s(x + 4 * i), row + number_bytes * i
                if i % line == 0:
                    for r in range(ROWS):
                        prefetch(at + r * row_bytes + AHEAD)
                a0, a1 = fma(a, load(at), a0), fma(a, load(at + row_bytes), a1)
                a2, a3 = fma(a, load(at + 2 * row_bytes), a2), fma(a, load(at + 3 * row_bytes), a3)
            store(out + 4 * left, sums_of_four(a0, a1, a2, a3))
            left += ROWS
        return left

    return meet_rows


@kernel
def multiply_unpacked(rows, n_rows, columns, x, x_bytes, n_tokens, out, out_bytes):
    """out[t, r] = x[t]·rows[r] for up to ROWS float32 rows of `columns` padded columns; what is beyond n_rows is read
    but not used."""
    whole = n_tokens // TOKENS * TOKENS
    for t in range(0, whole, TOKENS):
        four_by_three(rows, n_rows, columns, x + t * x_bytes, x_bytes, out + t * out_bytes, out_bytes)
    for t in range(whole, n_tokens):
        four_by_one(rows, n_rows, columns, x + t * x_bytes, out + t * out_bytes)


@kernel
def four_by_three(rows, n_rows, columns, x, x_bytes, out, out_bytes):
    a0 = a1 = a2 = a3 = splat(ZERO)
    b0 = b1 = b2 = b3 = splat(ZERO)
    c0 = c1 = c2 = c3 = splat(ZERO)
    row_bytes = 4 * columns
    for i in range(0, row_bytes, 4 * LANES):
        a, b, c = load_f32s(x + i), load_f32s(x + x_bytes + i), load_f32s(x + 2 * x_bytes + i)
        w = load_f32s(rows + i)
        a0, b0, c0 = fma(a, w, a0), fma(b, w, b0), fma(c, w, c0)
        w = load_f32s(rows + row_bytes + i)
        a1, b1, c1 = fma(a, w, a1), fma(b, w, b1), fma(c, w, c1)
        w = load_f32s(rows + 2 * row_bytes + i)
        a2, b2, c2 = fma(a, w, a2), fma(b, w, b2), fma(c, w, c2)
        w = load_f32s(rows + 3 * row_bytes + i)
        a3, b3, c3 = fma(a, w, a3), fma(b, w, b3), fma(c, w, c3)
    store_sums(a0, a1, a2, a3, n_rows, out)
    store_sums(b0, b1, b2, b3, n_rows, out + out_bytes)
    store_sums(c0, c1, c2, c3, n_rows, out + 2 * out_bytes)


@kernel
def four_by_one(rows, n_rows, columns, x, out):
    a0 = a1 = a2 = a3 = splat(ZERO)
    row_bytes = 4 * columns
    for i in range(0, row_bytes, 4 * LANES):
        a = load_f32s(x + i)
        a0, a1 = fma(a, load_f32s(rows + i), a0), fma(a, load_f32s(rows + row_bytes + i), a1)
        a2 = fma(a, load_f32s(rows + 2 * row_bytes + i), a2)
        a3 = fma(a, load_f32s(rows + 3 * row_bytes + i), a3)
    store_sums(a0, a1, a2, a3, n_rows, out)


@kernel
def store_sums(a0, a1, a2, a3, n_rows, out):
    sums = sums_of_four(a0, a1, a2, a3)
    if n_rows == ROWS:
        store(out, sums)
        return
    store_f32(out, first_lane(sums))
    if n_rows > 1:
        store_f32(out + 4, second_lane(sums))
    if n_rows > 2:
        store_f32(out + 8, third_lane(sums))
