"""Quantised weights as bytes: for each block format, a run of 32 weights as a vector q, and its scales.

A weight is d·q + m. Where a run has one scale (`WHOLE`), the scales are the float32 vector (d, m, 0, 0); where each
half of it has its own (`HALVES`), they are (d of the first, d of the second, m of the first, m of the second). q is
unsigned, but for formats of eight bits on targets that multiply signed bytes only: they take the bytes as they are,
with m = 0.
The layouts are described in `ringlet.core.quantization`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ringlet.core.quantization import IQ4_VALUES
from ringlet.plugins.backends.cpu.byte_vectors import (
    TAKES_WIDE_UNSIGNED,
    flip_top_bits,
    four,
    join,
    load_i8x32,
    load_two_halves,
    load_u8x32,
)
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f16, load_i8, load_u8, load_u8x16, load_u16, load_u32
from ringlet.plugins.backends.cpu.simd import bits_x16, table_of_16
from ringlet.plugins.backends.cpu.unpack_k import six_bit_minimum, six_bit_scale

ZERO = np.float32(0)
WHOLE, HALVES = 1, 2

iq4_value = table_of_16(IQ4_VALUES)


class ByteFormat(NamedTuple):
    """How a block format gives its runs of 32. q, scales: kernels of (address of the row, number of the run)."""

    q: Callable[..., Any]
    scales: Callable[..., Any]
    parts: int  # WHOLE or HALVES
    is_unsigned: bool = True


@kernel
def offset_scales(d, offset):
    """The scales of weights d·(q - offset)."""
    return four(d, d * -offset, ZERO, ZERO)


@kernel
def halves_of_bytes(q):
    """Sixteen bytes as 32 numbers of four bits: the low halves, then the high ones."""
    return join(q & 15, q >> 4)


@kernel
def fifth_bits(bits):
    """32 bits, each as 0 or 16."""
    return join(bits_x16(bits), bits_x16(bits >> 16)) << 4


@kernel
def q4_0_q(row, run):
    return halves_of_bytes(load_u8x16(row + 18 * run + 2))


@kernel
def q4_0_scales(row, run):
    return offset_scales(load_f16(row + 18 * run), np.float32(8))


@kernel
def q4_1_q(row, run):
    return halves_of_bytes(load_u8x16(row + 20 * run + 4))


@kernel
def q4_1_scales(row, run):
    return load_two_halves(row + 20 * run)


@kernel
def q5_0_q(row, run):
    block = row + 22 * run
    return halves_of_bytes(load_u8x16(block + 6)) | fifth_bits(load_u32(block + 2))


@kernel
def q5_0_scales(row, run):
    return offset_scales(load_f16(row + 22 * run), np.float32(16))


@kernel
def q5_1_q(row, run):
    block = row + 24 * run
    return halves_of_bytes(load_u8x16(block + 8)) | fifth_bits(load_u32(block + 4))


@kernel
def q5_1_scales(row, run):
    return load_two_halves(row + 24 * run)


@kernel
def eight_bits(q):
    """Signed bytes, as the target takes them."""
    return flip_top_bits(q) if TAKES_WIDE_UNSIGNED else q


@kernel
def eight_bit_scales(d):
    return offset_scales(d, np.float32(128)) if TAKES_WIDE_UNSIGNED else four(d, ZERO, ZERO, ZERO)


@kernel
def q8_0_q(row, run):
    return eight_bits(load_i8x32(row + 34 * run + 2))


@kernel
def q8_0_scales(row, run):
    return eight_bit_scales(load_f16(row + 34 * run))


@kernel
def q2_k_q(row, run):
    block = row + run // 8 * 84
    return load_u8x32(block + 16 + 32 * (run // 4 % 2)) >> (run % 4 * 2) & 3


@kernel
def q2_k_scales(row, run):
    block = row + run // 8 * 84
    d, m = load_f16(block + 80), -load_f16(block + 82)
    first, second = load_u8(block + run % 8 * 2), load_u8(block + run % 8 * 2 + 1)
    return four(
        d * np.float32(first & 15), d * np.float32(second & 15), m * np.float32(first >> 4), m * np.float32(second >> 4)
    )


@kernel
def q3_k_q(row, run):
    block = row + run // 8 * 110
    third = load_u8x32(block) >> (run % 8) & 1
    return load_u8x32(block + 32 + 32 * (run // 4 % 2)) >> (run % 4 * 2) & 3 | third << 2


@kernel
def q3_k_scale(block, half_run):
    """s - 32 of a run of 16 weights."""
    low = load_u8(block + 96 + half_run % 8) >> (half_run // 8 * 4) & 15
    high = load_u8(block + 104 + half_run % 4) >> (half_run // 4 * 2) & 3
    return np.float32((low | high << 4) - 32)


@kernel
def q3_k_scales(row, run):
    block = row + run // 8 * 110
    d = load_f16(block + 108)
    first, second = d * q3_k_scale(block, run % 8 * 2), d * q3_k_scale(block, run % 8 * 2 + 1)
    return four(first, second, first * np.float32(-4), second * np.float32(-4))


@kernel
def six_bit_scales(block, run):
    """The scales of a run of Q4_K or Q5_K."""
    d = load_f16(block) * np.float32(six_bit_scale(block, run))
    m = -load_f16(block + 2) * np.float32(six_bit_minimum(block, run))
    return four(d, m, ZERO, ZERO)


@kernel
def q4_k_q(row, run):
    block = row + run // 8 * 144
    return load_u8x32(block + 16 + run % 8 // 2 * 32) >> (run % 2 * 4) & 15


@kernel
def q4_k_scales(row, run):
    return six_bit_scales(row + run // 8 * 144, run % 8)


@kernel
def q5_k_q(row, run):
    block = row + run // 8 * 176
    fifth = load_u8x32(block + 16) >> (run % 8) & 1
    return load_u8x32(block + 48 + run % 8 // 2 * 32) >> (run % 2 * 4) & 15 | fifth << 4


@kernel
def q5_k_scales(row, run):
    return six_bit_scales(row + run // 8 * 176, run % 8)


@kernel
def q6_k_q(row, run):
    block, half, place = row + run // 8 * 210, run // 4 % 2, run % 4
    low = load_u8x32(block + 64 * half + place % 2 * 32) >> (place // 2 * 4) & 15
    high = load_u8x32(block + 128 + 32 * half) >> (place * 2) & 3
    return low | high << 4


@kernel
def q6_k_scales(row, run):
    block = row + run // 8 * 210
    d, s = load_f16(block + 208), block + 192 + run % 8 * 2
    first, second = d * np.float32(load_i8(s)), d * np.float32(load_i8(s + 1))
    return four(first, second, first * np.float32(-32), second * np.float32(-32))


@kernel
def iq4_values(q):
    return eight_bits(join(iq4_value(q & 15), iq4_value(q >> 4)))


@kernel
def iq4_nl_q(row, run):
    return iq4_values(load_u8x16(row + 18 * run + 2))


@kernel
def iq4_nl_scales(row, run):
    return eight_bit_scales(load_f16(row + 18 * run))


@kernel
def iq4_xs_q(row, run):
    return iq4_values(load_u8x16(row + run // 8 * 136 + 8 + run % 8 * 16))


@kernel
def iq4_xs_scales(row, run):
    block, run = row + run // 8 * 136, run % 8
    low = load_u8(block + 4 + run // 2) >> (run % 2 * 4) & 15
    high = load_u16(block + 2) >> (2 * run) & 3
    return eight_bit_scales(load_f16(block) * np.float32((low | high << 4) - 32))


BYTE_FORMATS = {
    "Q4_0": ByteFormat(q4_0_q, q4_0_scales, WHOLE),
    "Q4_1": ByteFormat(q4_1_q, q4_1_scales, WHOLE),
    "Q5_0": ByteFormat(q5_0_q, q5_0_scales, WHOLE),
    "Q5_1": ByteFormat(q5_1_q, q5_1_scales, WHOLE),
    "Q8_0": ByteFormat(q8_0_q, q8_0_scales, WHOLE, TAKES_WIDE_UNSIGNED),
    "Q2_K": ByteFormat(q2_k_q, q2_k_scales, HALVES),
    "Q3_K": ByteFormat(q3_k_q, q3_k_scales, HALVES),
    "Q4_K": ByteFormat(q4_k_q, q4_k_scales, WHOLE),
    "Q5_K": ByteFormat(q5_k_q, q5_k_scales, WHOLE),
    "Q6_K": ByteFormat(q6_k_q, q6_k_scales, HALVES),
    "IQ4_NL": ByteFormat(iq4_nl_q, iq4_nl_scales, WHOLE, TAKES_WIDE_UNSIGNED),
    "IQ4_XS": ByteFormat(iq4_xs_q, iq4_xs_scales, WHOLE, TAKES_WIDE_UNSIGNED),
}
