"""Quantised weights as bytes, for the block formats of 256 weights; see `byte_weights`.

A block has 8 runs of 32 weights or 16 half runs of 16, whose scales are brought out together: vectors of 8 numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu.byte_vectors import (
    TAKES_WIDE_UNSIGNED,
    bytes_of_i64,
    dot,
    four,
    load_f32x8,
    load_i8x32,
    load_u8x32,
    spread_lane,
    spread_lanes,
    zeros_f32x8,
    zeros_i32x8,
)
from ringlet.plugins.backends.cpu.byte_weights import EIGHT_BITS_OFFSET, ByteFormat, iq4_values
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f16, load_i8, load_i64, load_u8, load_u8x16, load_u16, load_u32
from ringlet.plugins.backends.cpu.records import HALF_SUMS_BYTES, RUN, SCALES_BYTES, SUM_BYTES
from ringlet.plugins.backends.cpu.simd import fma, sum_lanes, to_f32, to_i8
from ringlet.plugins.backends.cpu.unpack_k import six_bit_minimum, six_bit_scale

ONES = 0x0101010101010101  # times a byte: that byte eight times


def run_adder(q: Any) -> Any:
    """The kernel that adds a run's products to a sum; d: its scales, in the lanes of f32x8."""

    @kernel
    def add(row, run, d, x, n_columns, total):
        products = to_f32(dot(zeros_i32x8(), q(row, run), load_i8x32(x + RUN * run)))
        return fma(products, d * load_f32x8(x + n_columns + SCALES_BYTES * run), total)

    return add


def format_of_8(q: Any, block_bytes: int, scales: Any, block_scales: Any, m_factor: float = 1.0, **options: Any) -> Any:
    """The format of blocks whose 8 runs have scales: block_scales(block) is d and m of all, as two f32x8; a minimum is
    `m_factor` times m."""
    factor, add = np.float32(m_factor), run_adder(q)

    @kernel
    def row_sum(row, n_columns, x):
        a = b = minima = zeros_f32x8()
        sums = x + n_columns + n_columns // RUN * SCALES_BYTES
        for block in range(n_columns // 256):
            d, m = block_scales(row + block_bytes * block)
            run = 8 * block
            minima = fma(m, load_f32x8(sums + SUM_BYTES * run), minima)
            a = add(row, run, spread_lane(d, 0), x, n_columns, a)
            b = add(row, run + 1, spread_lane(d, 1), x, n_columns, b)
            a = add(row, run + 2, spread_lane(d, 2), x, n_columns, a)
            b = add(row, run + 3, spread_lane(d, 3), x, n_columns, b)
            a = add(row, run + 4, spread_lane(d, 4), x, n_columns, a)
            b = add(row, run + 5, spread_lane(d, 5), x, n_columns, b)
            a = add(row, run + 6, spread_lane(d, 6), x, n_columns, a)
            b = add(row, run + 7, spread_lane(d, 7), x, n_columns, b)
        return sum_lanes(a + b) + factor * sum_lanes(minima)

    return ByteFormat(q, scales, row_sum, **options)


def format_of_16(q: Any, block_bytes: int, scales: Any, block_scales: Any, m_factor: float = 1.0) -> Any:
    """The same where each half run has scales: block_scales(block) is d of the first 8 and of the other 8, and m."""
    factor, add = np.float32(m_factor), run_adder(q)

    @kernel
    def row_sum(row, n_columns, x):
        a = b = minima = zeros_f32x8()
        sums = x + n_columns + n_columns // RUN * (SCALES_BYTES + SUM_BYTES)
        for block in range(n_columns // 256):
            d, e, m, n = block_scales(row + block_bytes * block)
            run = 8 * block
            minima = fma(m, load_f32x8(sums + HALF_SUMS_BYTES * run), minima)
            minima = fma(n, load_f32x8(sums + HALF_SUMS_BYTES * (run + 4)), minima)
            a = add(row, run, spread_lanes(d, 0), x, n_columns, a)
            b = add(row, run + 1, spread_lanes(d, 1), x, n_columns, b)
            a = add(row, run + 2, spread_lanes(d, 2), x, n_columns, a)
            b = add(row, run + 3, spread_lanes(d, 3), x, n_columns, b)
            a = add(row, run + 4, spread_lanes(e, 0), x, n_columns, a)
            b = add(row, run + 5, spread_lanes(e, 1), x, n_columns, b)
            a = add(row, run + 6, spread_lanes(e, 2), x, n_columns, a)
            b = add(row, run + 7, spread_lanes(e, 3), x, n_columns, b)
        return sum_lanes(a + b) + factor * sum_lanes(minima)

    return ByteFormat(q, scales, row_sum, has_halves=True)


@kernel
def q2_k_q(row, run):
    block = row + (run >> 3) * 84
    return load_u8x32(block + 16 + 32 * (run >> 2 & 1)) >> ((run & 3) * 2) & 3


@kernel
def q2_k_scales(row, run):
    block = row + (run >> 3) * 84
    d, m = load_f16(block + 80), -load_f16(block + 82)
    first, second = load_u8(block + (run & 7) * 2), load_u8(block + (run & 7) * 2 + 1)
    return four(
        d * np.float32(first & 15), m * np.float32(first >> 4), d * np.float32(second & 15), m * np.float32(second >> 4)
    )


@kernel
def q2_k_block_scales(block):
    d, m = load_f16(block + 80), -load_f16(block + 82)
    first, second = bytes_of_i64(load_i64(block)), bytes_of_i64(load_i64(block + 8))
    return to_f32(first & 15) * d, to_f32(second & 15) * d, to_f32(first >> 4) * m, to_f32(second >> 4) * m


@kernel
def q3_k_q(row, run):
    block = row + (run >> 3) * 110
    third = load_u8x32(block) >> (run & 7) & 1
    return load_u8x32(block + 32 + 32 * (run >> 2 & 1)) >> ((run & 3) * 2) & 3 | third << 2


@kernel
def q3_k_scale(block, half_run):
    """s - 32 of a run of 16 weights."""
    low = load_u8(block + 96 + (half_run & 7)) >> ((half_run >> 3) * 4) & 15
    high = load_u8(block + 104 + (half_run & 3)) >> ((half_run >> 2) * 2) & 3
    return np.float32((low | high << 4) - 32)


@kernel
def q3_k_scales(row, run):
    block = row + (run >> 3) * 110
    d = load_f16(block + 108)
    first, second = d * q3_k_scale(block, (run & 7) * 2), d * q3_k_scale(block, (run & 7) * 2 + 1)
    return four(first, first * np.float32(-4), second, second * np.float32(-4))


@kernel
def q3_k_block_scales(block):
    d, low, high = load_f16(block + 108), load_i64(block + 96), load_u32(block + 104)
    first = low & (15 * ONES) | (high & 0x03030303) << 4 | (high >> 2 & 0x03030303) << 36
    second = low >> 4 & (15 * ONES) | (high >> 4 & 0x03030303) << 4 | (high >> 6 & 0x03030303) << 36
    a, b = to_f32(to_i8(bytes_of_i64(first) - 32)) * d, to_f32(to_i8(bytes_of_i64(second) - 32)) * d
    return a, b, a, b


@kernel
def six_bit_scales(block, run):
    """The scales of a run of Q4_K or Q5_K."""
    d = load_f16(block) * np.float32(six_bit_scale(block, run))
    m = -load_f16(block + 2) * np.float32(six_bit_minimum(block, run))
    return four(d, m, d, m)


@kernel
def six_bit_block_scales(block):
    d, m = load_f16(block), -load_f16(block + 2)
    s, t, both = load_u32(block + 4), load_u32(block + 8), load_u32(block + 12)
    s = s & 0x3F3F3F3F | (both & 0x0F0F0F0F | s >> 2 & 0x30303030) << 32
    t = t & 0x3F3F3F3F | (both >> 4 & 0x0F0F0F0F | t >> 2 & 0x30303030) << 32
    return to_f32(bytes_of_i64(s)) * d, to_f32(bytes_of_i64(t)) * m


@kernel
def q4_k_q(row, run):
    block = row + (run >> 3) * 144
    return load_u8x32(block + 16 + ((run & 7) >> 1) * 32) >> ((run & 1) * 4) & 15


@kernel
def q4_k_scales(row, run):
    return six_bit_scales(row + (run >> 3) * 144, run & 7)


@kernel
def q5_k_q(row, run):
    block = row + (run >> 3) * 176
    fifth = load_u8x32(block + 16) >> (run & 7) & 1
    return load_u8x32(block + 48 + ((run & 7) >> 1) * 32) >> ((run & 1) * 4) & 15 | fifth << 4


@kernel
def q5_k_scales(row, run):
    return six_bit_scales(row + (run >> 3) * 176, run & 7)


@kernel
def q6_k_q(row, run):
    block, half, place = row + (run >> 3) * 210, (run >> 2 & 1), (run & 3)
    low = load_u8x32(block + 64 * half + (place & 1) * 32) >> ((place >> 1) * 4) & 15
    high = load_u8x32(block + 128 + 32 * half) >> (place * 2) & 3
    return low | high << 4


@kernel
def q6_k_scales(row, run):
    block = row + (run >> 3) * 210
    d, s = load_f16(block + 208), block + 192 + (run & 7) * 2
    first, second = d * np.float32(load_i8(s)), d * np.float32(load_i8(s + 1))
    return four(first, first * np.float32(-32), second, second * np.float32(-32))


@kernel
def q6_k_block_scales(block):
    d = load_f16(block + 208)
    a = to_f32(to_i8(bytes_of_i64(load_i64(block + 192)))) * d
    b = to_f32(to_i8(bytes_of_i64(load_i64(block + 200)))) * d
    return a, b, a, b


@kernel
def iq4_xs_q(row, run):
    return iq4_values(load_u8x16(row + (run >> 3) * 136 + 8 + (run & 7) * 16))


@kernel
def iq4_xs_scale(block, run):
    """d·(s - 32) of a run."""
    low = load_u8(block + 4 + (run >> 1)) >> ((run & 1) * 4) & 15
    high = load_u16(block + 2) >> (2 * run) & 3
    return load_f16(block) * np.float32((low | high << 4) - 32)


@kernel
def iq4_xs_scales(row, run):
    d = iq4_xs_scale(row + (run >> 3) * 136, run & 7)
    m = d * np.float32(-EIGHT_BITS_OFFSET)
    return four(d, m, d, m)


@kernel
def iq4_xs_block_scales(block):
    low, high, s = load_u32(block + 4), load_u16(block + 2), 0
    for run in range(8):
        s |= (low >> (4 * run) & 15 | (high >> (2 * run) & 3) << 4) << (8 * run)
    d = to_f32(to_i8(bytes_of_i64(s) - 32)) * load_f16(block)
    return d, d


BYTE_FORMATS_OF_256 = {
    "Q2_K": format_of_16(q2_k_q, 84, q2_k_scales, q2_k_block_scales),
    "Q3_K": format_of_16(q3_k_q, 110, q3_k_scales, q3_k_block_scales, -4),
    "Q4_K": format_of_8(q4_k_q, 144, q4_k_scales, six_bit_block_scales),
    "Q5_K": format_of_8(q5_k_q, 176, q5_k_scales, six_bit_block_scales),
    "Q6_K": format_of_16(q6_k_q, 210, q6_k_scales, q6_k_block_scales, -32),
    "IQ4_XS": format_of_8(
        iq4_xs_q, 136, iq4_xs_scales, iq4_xs_block_scales, -EIGHT_BITS_OFFSET, is_unsigned=TAKES_WIDE_UNSIGNED
    ),
}
