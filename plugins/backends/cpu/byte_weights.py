"""Quantised weights as bytes, for the block formats of 32 weights: q, a vector of bytes, and the scales, d·q + m.

q is unsigned, but for formats of eight bits on targets that multiply signed bytes only: they take the bytes as they
are, with m = 0. The layouts are described in `ringlet.core.quantization`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ringlet.core.quantization import IQ4_VALUES
from ringlet.plugins.backends.cpu.byte_vectors import (
    TAKES_WIDE_UNSIGNED,
    bits_x32,
    dot,
    flip_top_bits,
    four,
    join,
    load_f32_x4,
    load_f32x8,
    load_half_x8,
    load_i8x32,
    load_two_halves,
    lower_half,
    spread_first,
    zeros_f32x4,
    zeros_f32x8,
    zeros_i32x8,
)
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f16, load_u8x16, load_u32
from ringlet.plugins.backends.cpu.records import RUN, SCALES_BYTES, SUM_BYTES
from ringlet.plugins.backends.cpu.simd import first_lane, fma, second_lane, sum_lanes, table_of_16, to_f32

ZERO = np.float32(0)
EIGHT_BITS_OFFSET = 128.0 if TAKES_WIDE_UNSIGNED else 0.0

iq4_value = table_of_16(IQ4_VALUES)


class ByteFormat(NamedTuple):
    """How a block format gives its weights. `row` is the address of a row; a run is 32 weights.

    q(row, run): the run's bytes. scales(row, run): f32x4 of d and m of the run's first half, d and m of its second.
    row_sum(row, n_columns, x): the row times the byte row x.
    """

    q: Callable[..., Any]
    scales: Callable[..., Any]
    row_sum: Callable[..., Any]
    has_halves: bool = False  # whether the two halves of a run have scales of their own
    is_unsigned: bool = True


def sum_of_runs(q: Any, spread: Any, m_lane: Any, m_factor: float = 1.0) -> Any:
    """The row_sum of blocks of one run. spread(row, run): d in every lane of f32x8, and f32x4 with what the minimum is
    m_factor times of in the lane `m_lane`. The rows are read in order, as memory likes it best."""
    factor = np.float32(m_factor)

    @kernel
    def add(row, run, x, scales, sums, total, minima):
        d, m = spread(row, run)
        products = to_f32(dot(zeros_i32x8(), q(row, run), load_i8x32(x + RUN * run)))
        total = fma(products, d * load_f32x8(scales + SCALES_BYTES * run), total)
        return total, fma(m, load_f32_x4(sums + SUM_BYTES * run), minima)

    @kernel
    def row_sum(row, n_columns, x):
        runs, scales = n_columns // RUN, x + n_columns
        sums, fours = scales + runs * SCALES_BYTES, runs // 4 * 4
        a = b = c = d = zeros_f32x8()
        m = n = zeros_f32x4()
        for run in range(0, fours, 4):
            a, m = add(row, run, x, scales, sums, a, m)
            b, n = add(row, run + 1, x, scales, sums, b, n)
            c, m = add(row, run + 2, x, scales, sums, c, m)
            d, n = add(row, run + 3, x, scales, sums, d, n)
        for run in range(fours, runs):
            a, m = add(row, run, x, scales, sums, a, m)
        return sum_lanes((a + b) + (c + d)) + factor * m_lane(m + n)

    return row_sum


@kernel
def halves_of_bytes(q):
    """Sixteen bytes as 32 numbers of four bits: the low halves, then the high ones."""
    return join(q & 15, q >> 4)


@kernel
def eight_bits(q):
    """Signed bytes, as the target takes them."""
    return flip_top_bits(q) if TAKES_WIDE_UNSIGNED else q


@kernel
def iq4_values(q):
    """Sixteen bytes as 32 values of the table."""
    return eight_bits(join(iq4_value(q & 15), iq4_value(q >> 4)))


def with_offset(q: Any, block_bytes: int, offset: float, is_unsigned: bool = True) -> ByteFormat:
    """The format of blocks that begin with d, whose weights are d·(q - offset)."""
    m_of_d = np.float32(-offset)

    @kernel
    def scales(row, run):
        d = load_f16(row + block_bytes * run)
        return four(d, d * m_of_d, d, d * m_of_d)

    @kernel
    def spread(row, run):
        d = load_half_x8(row + block_bytes * run)
        return d, lower_half(d)

    return ByteFormat(q, scales, sum_of_runs(q, spread, first_lane, -offset), is_unsigned=is_unsigned)


def with_minimum(q: Any, block_bytes: int) -> ByteFormat:
    """The format of blocks that begin with d and m."""

    @kernel
    def scales(row, run):
        both = load_two_halves(row + block_bytes * run)
        return four(first_lane(both), second_lane(both), first_lane(both), second_lane(both))

    @kernel
    def spread(row, run):
        both = load_two_halves(row + block_bytes * run)
        return spread_first(both), both

    return ByteFormat(q, scales, sum_of_runs(q, spread, second_lane))


@kernel
def q4_0_q(row, run):
    return halves_of_bytes(load_u8x16(row + 18 * run + 2))


@kernel
def q4_1_q(row, run):
    return halves_of_bytes(load_u8x16(row + 20 * run + 4))


@kernel
def q5_0_q(row, run):
    block = row + 22 * run
    return halves_of_bytes(load_u8x16(block + 6)) | bits_x32(load_u32(block + 2), 16)


@kernel
def q5_1_q(row, run):
    block = row + 24 * run
    return halves_of_bytes(load_u8x16(block + 8)) | bits_x32(load_u32(block + 4), 16)


@kernel
def q8_0_q(row, run):
    return eight_bits(load_i8x32(row + 34 * run + 2))


@kernel
def iq4_nl_q(row, run):
    return iq4_values(load_u8x16(row + 18 * run + 2))


BYTE_FORMATS_OF_32 = {
    "Q4_0": with_offset(q4_0_q, 18, 8),
    "Q4_1": with_minimum(q4_1_q, 20),
    "Q5_0": with_offset(q5_0_q, 22, 16),
    "Q5_1": with_minimum(q5_1_q, 24),
    "Q8_0": with_offset(q8_0_q, 34, EIGHT_BITS_OFFSET, TAKES_WIDE_UNSIGNED),
    "IQ4_NL": with_offset(iq4_nl_q, 18, EIGHT_BITS_OFFSET, TAKES_WIDE_UNSIGNED),
}
