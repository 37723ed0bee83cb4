"""Rows of weights, or keys and values of a ring, to float32: one short function a block format.

The layouts are described in `ringlet.core.quantization`, and the sums are its sums, in the same order, so that the
values are the same to the last bit. A run of 16 weights is 64 bytes of output.

unpack(row, n_columns, out) writes the row's n_columns weights as float32 to `out`, and zeros up to a multiple of
PADDING.
"""

from __future__ import annotations

import numpy as np

from ringlet.core.quantization import IQ4_VALUES
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import (
    load_bf16,
    load_bf16s,
    load_f16,
    load_f16s,
    load_f32,
    load_f32s,
    load_i8,
    load_i8s_as_f32s,
    load_i8x16,
    load_u8x16,
    load_u32,
    store,
    store_f32,
)
from ringlet.plugins.backends.cpu.records import PADDING
from ringlet.plugins.backends.cpu.simd import bits_x16, table_of_16, to_f32, to_i8
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.unpack_k import (
    unpack_iq4_xs,
    unpack_q2_k,
    unpack_q3_k,
    unpack_q4_k,
    unpack_q5_k,
    unpack_q6_k,
)

iq4_value = table_of_16(IQ4_VALUES)


@kernel
def zero_padding(out, n_columns):
    for i in range(n_columns, -(-n_columns // PADDING) * PADDING):
        store_f32(out + 4 * i, np.float32(0))


@kernel
def unpack_f32(row, n_columns, out):
    whole = n_columns // LANES * LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_f32s(row + 4 * i))
    for i in range(whole, n_columns):
        store_f32(out + 4 * i, load_f32(row + 4 * i))
    zero_padding(out, n_columns)


@kernel
def unpack_f16(row, n_columns, out):
    whole = n_columns // LANES * LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_f16s(row + 2 * i))
    for i in range(whole, n_columns):
        store_f32(out + 4 * i, load_f16(row + 2 * i))
    zero_padding(out, n_columns)


@kernel
def unpack_bf16(row, n_columns, out):
    whole = n_columns // LANES * LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_bf16s(row + 2 * i))
    for i in range(whole, n_columns):
        store_f32(out + 4 * i, load_bf16(row + 2 * i))
    zero_padding(out, n_columns)


@kernel
def unpack_i8(row, n_columns, out):
    """Bytes of a ring, whose scale is elsewhere."""
    whole = n_columns // LANES * LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_i8s_as_f32s(row + i))
    for i in range(whole, n_columns):
        store_f32(out + 4 * i, np.float32(load_i8(row + i)))
    zero_padding(out, n_columns)


@kernel
def unpack_q4_0(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 18 * b, out + 128 * b
        d, q = load_f16(block), load_u8x16(block + 2)
        store(at, to_f32(to_i8((q & 15) - 8)) * d)
        store(at + 64, to_f32(to_i8((q >> 4) - 8)) * d)


@kernel
def unpack_q4_1(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 20 * b, out + 128 * b
        d, m, q = load_f16(block), load_f16(block + 2), load_u8x16(block + 4)
        store(at, to_f32(q & 15) * d + m)
        store(at + 64, to_f32(q >> 4) * d + m)


@kernel
def unpack_q5_0(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 22 * b, out + 128 * b
        d, fifth, q = load_f16(block), load_u32(block + 2), load_u8x16(block + 6)
        store(at, to_f32(to_i8(((q & 15) | (bits_x16(fifth) << 4)) - 16)) * d)
        store(at + 64, to_f32(to_i8(((q >> 4) | (bits_x16(fifth >> 16) << 4)) - 16)) * d)


@kernel
def unpack_q5_1(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 24 * b, out + 128 * b
        d, m, fifth, q = load_f16(block), load_f16(block + 2), load_u32(block + 4), load_u8x16(block + 8)
        store(at, to_f32((q & 15) | (bits_x16(fifth) << 4)) * d + m)
        store(at + 64, to_f32((q >> 4) | (bits_x16(fifth >> 16) << 4)) * d + m)


@kernel
def unpack_q8_0(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 34 * b, out + 128 * b
        d = load_f16(block)
        store(at, to_f32(load_i8x16(block + 2)) * d)
        store(at + 64, to_f32(load_i8x16(block + 18)) * d)


@kernel
def unpack_iq4_nl(row, n_columns, out):
    for b in range(n_columns // 32):
        block, at = row + 18 * b, out + 128 * b
        d, q = load_f16(block), load_u8x16(block + 2)
        store(at, to_f32(iq4_value(q & 15)) * d)
        store(at + 64, to_f32(iq4_value(q >> 4)) * d)


UNPACK = {
    "F32": unpack_f32,
    "F16": unpack_f16,
    "BF16": unpack_bf16,
    "Q4_0": unpack_q4_0,
    "Q4_1": unpack_q4_1,
    "Q5_0": unpack_q5_0,
    "Q5_1": unpack_q5_1,
    "Q8_0": unpack_q8_0,
    "Q2_K": unpack_q2_k,
    "Q3_K": unpack_q3_k,
    "Q4_K": unpack_q4_k,
    "Q5_K": unpack_q5_k,
    "Q6_K": unpack_q6_k,
    "IQ4_NL": unpack_iq4_nl,
    "IQ4_XS": unpack_iq4_xs,
}
