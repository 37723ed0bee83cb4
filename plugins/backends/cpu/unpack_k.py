"""The block formats of 256 weights; see `unpack`, and `ringlet.core.quantization` for the layouts."""

from __future__ import annotations

import numpy as np

from ringlet.core.quantization import IQ4_VALUES
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f16, load_i8, load_u8, load_u8x16, load_u16, store
from ringlet.plugins.backends.cpu.simd import table_of_16, to_f32, to_i8

iq4_value = table_of_16(IQ4_VALUES)


@kernel
def unpack_q2_k(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 84 * b, out + 1024 * b
        d, m = load_f16(block + 80), load_f16(block + 82)
        for run in range(16):  # 16 weights each
            half, shift, part = run // 8, run // 2 % 4 * 2, run % 2
            both = load_u8(block + run)
            q = load_u8x16(block + 16 + 32 * half + 16 * part) >> shift & 3
            store(at + 64 * run, to_f32(q) * (d * np.float32(both & 15)) - m * np.float32(both >> 4))


@kernel
def unpack_q3_k(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 110 * b, out + 1024 * b
        d = load_f16(block + 108)
        for run in range(16):
            half, shift, part = run // 8, run // 2 % 4 * 2, run % 2
            low = load_u8(block + 96 + run % 8) >> (run // 8 * 4) & 15
            high = load_u8(block + 104 + run % 4) >> (run // 4 * 2) & 3
            scale = d * np.float32((low | high << 4) - 32)
            third = load_u8x16(block + 16 * part) >> (run // 2) & 1
            q = load_u8x16(block + 32 + 32 * half + 16 * part) >> shift & 3
            store(at + 64 * run, to_f32(to_i8((q | third << 2) - 4)) * scale)


@kernel
def six_bit_scale(block, run):
    """s of a run of 32 weights of Q4_K or Q5_K."""
    if run < 4:
        return load_u8(block + 4 + run) & 63
    return load_u8(block + 8 + run) & 15 | load_u8(block + run) >> 2 & 48


@kernel
def six_bit_minimum(block, run):
    """t of the same."""
    if run < 4:
        return load_u8(block + 8 + run) & 63
    return load_u8(block + 8 + run) >> 4 | load_u8(block + 4 + run) >> 2 & 48


@kernel
def unpack_q4_k(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 144 * b, out + 1024 * b
        d, m = load_f16(block), load_f16(block + 2)
        for run in range(8):  # 32 weights each
            scale = d * np.float32(six_bit_scale(block, run))
            minimum = m * np.float32(six_bit_minimum(block, run))
            for part in range(2):
                q = load_u8x16(block + 16 + run // 2 * 32 + 16 * part) >> (run % 2 * 4) & 15
                store(at + 128 * run + 64 * part, to_f32(q) * scale - minimum)


@kernel
def unpack_q5_k(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 176 * b, out + 1024 * b
        d, m = load_f16(block), load_f16(block + 2)
        for run in range(8):
            scale = d * np.float32(six_bit_scale(block, run))
            minimum = m * np.float32(six_bit_minimum(block, run))
            for part in range(2):
                fifth = load_u8x16(block + 16 + 16 * part) >> run & 1
                q = load_u8x16(block + 48 + run // 2 * 32 + 16 * part) >> (run % 2 * 4) & 15
                store(at + 128 * run + 64 * part, to_f32(q | fifth << 4) * scale - minimum)


@kernel
def unpack_q6_k(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 210 * b, out + 1024 * b
        d = load_f16(block + 208)
        for run in range(16):
            half, place = run // 8, run % 8
            scale = d * np.float32(load_i8(block + 192 + run))
            low = load_u8x16(block + 64 * half + place % 4 * 16) >> (place // 4 * 4) & 15
            high = load_u8x16(block + 128 + 32 * half + place % 2 * 16) >> (place // 2 * 2) & 3
            store(at + 64 * run, to_f32(to_i8((low | high << 4) - 32)) * scale)


@kernel
def unpack_iq4_xs(row, n_columns, out):
    for b in range(n_columns // 256):
        block, at = row + 136 * b, out + 1024 * b
        d, upper = load_f16(block), load_u16(block + 2)
        for run in range(8):
            s = load_u8(block + 4 + run // 2) >> (run % 2 * 4) & 15 | (upper >> (2 * run) & 3) << 4
            scale = d * np.float32(s - 32)
            q = load_u8x16(block + 8 + 16 * run)
            store(at + 128 * run, to_f32(iq4_value(q & 15)) * scale)
            store(at + 128 * run + 64, to_f32(iq4_value(q >> 4)) * scale)
